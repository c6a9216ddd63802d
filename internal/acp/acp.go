// Package acp speaks the Agent Client Protocol, version 1 (schema 1.7.0), as an
// agent does: JSON-RPC 2.0, one object a line. It has the messages that a daemon's
// client needs, and the connection that they go over.
//
// Concurrency: any goroutine may call any method of a Conn, and Serve is called
// once. A Handler is called by Serve's goroutine only. Nothing that sends waits for
// the client: what it leaves unread is held up to 4 MiB, and then the connection is
// given up. Calm is for those who send much and can wait.
//
// It refuses to know a daemon, and to log.
package acp

// Version is the version of the protocol that is spoken.
const Version = 1

// What the client calls.
const (
	Initialize      = "initialize"
	Authenticate    = "authenticate"
	SessionNew      = "session/new"
	SessionLoad     = "session/load"
	SessionResume   = "session/resume"
	SessionClose    = "session/close"
	SessionList     = "session/list"
	SessionDelete   = "session/delete"
	SessionPrompt   = "session/prompt"
	SessionCancel   = "session/cancel" // a notification
	SetMode         = "session/set_mode"
	SetModel        = "session/set_model" // of agents older than the options
	SetConfigOption = "session/set_config_option"
	Steer           = "_noused/steer" // ours
)

// What is called on the client's side. CancelRequest goes both ways.
const (
	SessionUpdate     = "session/update" // a notification
	RequestPermission = "session/request_permission"
	CreateElicitation = "elicitation/create"
	CancelRequest     = "$/cancel_request" // a notification
)

// The kinds of updates that say what can be chosen.
const (
	CommandsUpdate     = "available_commands_update"
	CurrentModeUpdate  = "current_mode_update"
	ConfigOptionUpdate = "config_option_update"
)

// StopReason says why a prompt was answered.
type StopReason string

// The stop reasons.
const (
	EndTurn         StopReason = "end_turn"
	MaxTokens       StopReason = "max_tokens"
	MaxTurnRequests StopReason = "max_turn_requests"
	Refusal         StopReason = "refusal"
	StopCancelled   StopReason = "cancelled"
)

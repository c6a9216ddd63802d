package acp

import (
	"github.com/go-json-experiment/json/jsontext"
)

// InitializeResult says what the agent is and can do.
type InitializeResult struct {
	ProtocolVersion int            `json:"protocolVersion"`
	Agent           Implementation `json:"agentInfo"`
	Capabilities    Capabilities   `json:"agentCapabilities"`
	AuthMethods     []struct{}     `json:"authMethods"`
}

// Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// Capabilities are what an agent can do. What is not named it cannot.
type Capabilities struct {
	LoadSession bool `json:"loadSession"`
	Prompt      struct {
		Image           bool `json:"image"`
		EmbeddedContext bool `json:"embeddedContext"`
	} `json:"promptCapabilities"`
	MCP struct {
		HTTP bool `json:"http"`
	} `json:"mcpCapabilities"`
	Session struct {
		List   struct{} `json:"list"`
		Resume struct{} `json:"resume"`
		Delete struct{} `json:"delete"`
	} `json:"sessionCapabilities"`
}

// OpenResult answers session/new, and without an id session/load and
// session/resume.
type OpenResult struct {
	SessionID string         `json:"sessionId,omitzero"`
	Modes     Modes          `json:"modes"`
	Options   []ConfigOption `json:"configOptions"`
}

// Modes are the modes of a session and the one that it has.
type Modes struct {
	Current   string `json:"currentModeId"`
	Available []Mode `json:"availableModes"`
}

// Mode is one of them.
type Mode struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
}

// ConfigOption is something to choose. Type is "select".
type ConfigOption struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Description string        `json:"description,omitzero"`
	Category    string        `json:"category,omitzero"`
	Type        string        `json:"type"`
	Current     string        `json:"currentValue"`
	Options     []ConfigValue `json:"options"`
}

// ConfigValue is one value of an option.
type ConfigValue struct {
	Value       string `json:"value"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
}

// OptionsResult answers session/set_config_option.
type OptionsResult struct {
	Options []ConfigOption `json:"configOptions"`
}

// ListResult answers session/list. NextCursor is empty on the last page.
type ListResult struct {
	Sessions   []SessionInfo `json:"sessions"`
	NextCursor string        `json:"nextCursor,omitzero"`
}

// SessionInfo is a session in a list. UpdatedAt is RFC 3339.
type SessionInfo struct {
	SessionID string `json:"sessionId"`
	CWD       string `json:"cwd"`
	Title     string `json:"title,omitzero"`
	UpdatedAt string `json:"updatedAt,omitzero"`
}

// PromptResult answers session/prompt.
type PromptResult struct {
	StopReason StopReason `json:"stopReason"`
}

// SteerResult answers _noused/steer: the text is accepted.
type SteerResult struct {
	RunID   string `json:"runId"`
	InputID string `json:"inputId"`
}

// Notification is session/update.
type Notification struct {
	SessionID string `json:"sessionId"`
	Update    any    `json:"update"`
}

// Chunk is a part of a message. Kind is one of the three constants.
type Chunk struct {
	Kind      string       `json:"sessionUpdate"`
	MessageID string       `json:"messageId,omitzero"`
	Content   ContentBlock `json:"content"`
}

// The kinds of a Chunk.
const (
	UserChunk    = "user_message_chunk"
	AgentChunk   = "agent_message_chunk"
	ThoughtChunk = "agent_thought_chunk"
)

// TextBlock is a text.
func TextBlock(text string) ContentBlock { return ContentBlock{Type: "text", Text: &text} }

// ToolCall is a call, whole with Kind "tool_call", and with "tool_call_update" what
// is new about it. A list that is there replaces the one before.
type ToolCall struct {
	Update    string         `json:"sessionUpdate,omitzero"`
	ID        string         `json:"toolCallId"`
	Title     string         `json:"title,omitzero"`
	Kind      string         `json:"kind,omitzero"`
	Status    string         `json:"status,omitzero"`
	Content   []ToolContent  `json:"content,omitzero"`
	Locations []Location     `json:"locations,omitzero"`
	RawInput  jsontext.Value `json:"rawInput,omitzero"`
	RawOutput jsontext.Value `json:"rawOutput,omitzero"`
}

// The two updates that are a ToolCall, and its states.
const (
	NewToolCall    = "tool_call"
	ToolCallUpdate = "tool_call_update"

	Pending    = "pending"
	InProgress = "in_progress"
	Completed  = "completed"
	Failed     = "failed"
)

// ToolContent is something that a call shows: Type "content" with Content, or
// "diff" with the other fields. Old is nil where the file is written anew.
type ToolContent struct {
	Type    string        `json:"type"`
	Content *ContentBlock `json:"content,omitzero"`
	Path    string        `json:"path,omitzero"`
	Old     *string       `json:"oldText,omitzero"`
	New     *string       `json:"newText,omitzero"`
}

// ToolText is a text that a call shows.
func ToolText(text string) ToolContent {
	block := TextBlock(text)
	return ToolContent{Type: "content", Content: &block}
}

// Location is a place in a file. Line counts from 1; 0 is none.
type Location struct {
	Path string `json:"path"`
	Line int64  `json:"line,omitzero"`
}

// Plan is what the agent means to do.
type Plan struct {
	Update  string      `json:"sessionUpdate"` // "plan"
	Entries []PlanEntry `json:"entries"`
}

// PlanEntry is a step of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// Commands are what can be written behind a slash.
type Commands struct {
	Update string    `json:"sessionUpdate"` // "available_commands_update"
	List   []Command `json:"availableCommands"`
}

// Command is one of them.
type Command struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Input       *Hint  `json:"input,omitzero"`
}

// Hint says what may stand behind a command.
type Hint struct {
	Hint string `json:"hint"`
}

// Usage says how full the model's window is, in tokens.
type Usage struct {
	Update string `json:"sessionUpdate"` // "usage_update"
	Used   int64  `json:"used"`
	Size   int64  `json:"size"`
	Cost   *Cost  `json:"cost,omitzero"`
}

// Cost is what a session has cost so far.
type Cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

// Info says what a session is called.
type Info struct {
	Update string `json:"sessionUpdate"` // "session_info_update"
	Title  string `json:"title"`
}

// ModeUpdate says that a session has another mode.
type ModeUpdate struct {
	Update  string `json:"sessionUpdate"` // "current_mode_update"
	Current string `json:"currentModeId"`
}

// OptionsUpdate says that an option has another value.
type OptionsUpdate struct {
	Update  string         `json:"sessionUpdate"` // "config_option_update"
	Options []ConfigOption `json:"configOptions"`
}

// Notice is something that a person should know, for clients that show notices.
type Notice struct {
	Update   string `json:"sessionUpdate"` // "notice"
	Severity string `json:"severity"`
	Title    string `json:"title"`
}

// PermissionParams asks whether a call may be made.
type PermissionParams struct {
	SessionID string             `json:"sessionId"`
	ToolCall  ToolCall           `json:"toolCall"`
	Options   []PermissionOption `json:"options"`
}

// PermissionOption is one of the answers.
type PermissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// The kinds of a PermissionOption.
const (
	AllowOnce   = "allow_once"
	AllowAlways = "allow_always"
	RejectOnce  = "reject_once"
)

// PermissionResult is what the client answers. Outcome is "selected" or
// "cancelled".
type PermissionResult struct {
	Outcome struct {
		Outcome  string `json:"outcome"`
		OptionID string `json:"optionId"`
	} `json:"outcome"`
}

// FormParams asks a person to fill in a form, in Mode "form".
type FormParams struct {
	SessionID  string         `json:"sessionId"`
	ToolCallID string         `json:"toolCallId,omitzero"`
	Mode       string         `json:"mode"`
	Message    string         `json:"message"`
	Schema     jsontext.Value `json:"requestedSchema"`
}

// FormResult is what the client answers. Action is "accept", with Content, "decline"
// or "cancel".
type FormResult struct {
	Action  string         `json:"action"`
	Content jsontext.Value `json:"content"`
}

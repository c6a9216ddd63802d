package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Code is one of the wire's codes: of an error (wire-v1 §2), or of a status,
// warning or error event (wire-v1 §4).
type Code string

// The codes of responses that are errors.
const (
	InvalidCommand  Code = "invalid_command"
	InvalidPayload  Code = "invalid_payload"
	CommandRejected Code = "command_rejected"
	SessionNotFound Code = "session_not_found"
	SessionError    Code = "session_error"
	ProviderError   Code = "provider_error"
	Timeout         Code = "timeout"
	InternalError   Code = "internal_error"
)

// Reason is the word that an invalid_command or command_rejected message
// starts with, so that programs can tell them apart.
type Reason string

// Reasons of invalid_command, then those of command_rejected.
const (
	InvalidJSON    Reason = "invalid_json"
	InvalidVersion Reason = "invalid_version"
	MissingID      Reason = "missing_id"
	MissingType    Reason = "missing_type"
	UnknownCommand Reason = "unknown_command"
	LineTooLong    Reason = "line_too_long"

	NoActiveRun        Reason = "no_active_run"
	RunInProgress      Reason = "run_in_progress"
	ToolNotRegistered  Reason = "tool_not_registered"
	ExtensionNotFound  Reason = "extension_command_not_found"
	RejectedByHook     Reason = "rejected_by_hook"
	ShuttingDown       Reason = "shutting_down"
	QueueFull          Reason = "queue_full"
	NotPending         Reason = "not_pending"
	NothingToCompact   Reason = "nothing_to_compact"
	Aborted            Reason = "aborted"
	TooManyPending     Reason = "too_many_pending"
	ApprovalResolved   Reason = "approval_resolved"
	NoSuchApproval     Reason = "no_such_approval"
	Forbidden          Reason = "forbidden"
	NoModel            Reason = "no_model"
	AgentMissing       Reason = "agent_missing"
	UnsupportedByAgent Reason = "unsupported_by_agent"
	SessionBegun       Reason = "session_begun"
	Busy               Reason = "busy"
	NoSuchRewind       Reason = "no_such_rewind"
	HasChildren        Reason = "has_children"
)

// CauseBegun is the cause of a shutting_down that ends a command which had begun. Without
// it nothing was done, and the command may be sent to the next daemon.
const CauseBegun = "it had begun"

// Error is the error object of a response. It is also the Go error that
// handlers return and clients receive.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Cause   string `json:"cause,omitzero"`
}

func (e *Error) Error() string {
	if e.Cause == "" {
		return string(e.Code) + ": " + e.Message
	}
	return string(e.Code) + ": " + e.Message + ": " + e.Cause
}

// Text is the error for people: the sentence first, and in parentheses the word to look it up by.
func (e *Error) Text() string {
	message, word := e.Message, string(e.Code)
	if before, rest, ok := strings.Cut(e.Message, ": "); ok && before != "" && (e.Reason() == Reason(before) ||
		e.Code == ProviderError && slices.Contains(runCodes, Code(before))) {
		message, word = rest, before
	}
	message = strings.TrimPrefix(message, "session_id: ")
	if e.Cause != "" {
		message += ": " + e.Cause
	}
	return Coded(word, message)
}

// runCodes are the words that the message of a provider_error may start with.
var runCodes = []Code{KeyRefused, OverBudget, AnswerUnfit, Refused, StepLimit, CrashLoop}

// ErrorText is an error for people: what it has as its Text, as what a daemon says does, or the whole of it.
func ErrorText(err error) string {
	if e := (interface{ Text() string })(nil); errors.As(err, &e) {
		return e.Text()
	}
	return err.Error()
}

// Coded is a message with its code behind it, or the one of them that there is.
func Coded[S ~string](code S, message string) string {
	message = strings.TrimRight(message, "\r\n")
	switch {
	case code == "":
		return message
	case message == "":
		return string(code)
	}
	return message + " (" + string(code) + ")"
}

// Reason is the word that the message of an invalid_command or command_rejected
// starts with; "" for other codes.
func (e *Error) Reason() Reason {
	if e.Code != CommandRejected && e.Code != InvalidCommand {
		return ""
	}
	word, _, _ := strings.Cut(e.Message, ":")
	return Reason(word)
}

// Errorf makes an error of a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Rejectf makes a command_rejected error whose message starts with reason.
func Rejectf(reason Reason, format string, args ...any) *Error {
	return &Error{Code: CommandRejected, Message: string(reason) + ": " + fmt.Sprintf(format, args...)}
}

func invalidf(reason Reason, format string, args ...any) *Error {
	return &Error{Code: InvalidCommand, Message: string(reason) + ": " + fmt.Sprintf(format, args...)}
}

func badField(field, format string, args ...any) *Error {
	return &Error{Code: InvalidPayload, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// AsError is the one place where a Go error becomes a wire error. What is not
// a wire error already is an internal_error without detail: the detail goes to
// the log, never to the client.
func AsError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(Timeout, "the command took too long")
	default:
		return Errorf(InternalError, "internal error; the daemon's log has the detail")
	}
}

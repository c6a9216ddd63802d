package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// ApprovalMode says how approvals are decided.
type ApprovalMode string

// ApprovalsAsk asks a person. ApprovalsAuto allows what would be asked and never
// lifts a deny; ApprovalsDeny denies it.
const (
	ApprovalsAsk  ApprovalMode = "ask"
	ApprovalsAuto ApprovalMode = "auto"
	ApprovalsDeny ApprovalMode = "deny"
)

// ApprovalKind says what a question is about.
type ApprovalKind string

// A question is about one call of a tool, about a limit of config.toml that the
// run has reached, or it is a tool's own: a form that its call wants filled in.
const (
	ApprovalTool     ApprovalKind = "tool"
	ApprovalBudget   ApprovalKind = "budget"
	ApprovalQuestion ApprovalKind = "question"
)

// The options of tools, of a budget (continue and deny), and of a form.
const (
	OptionOnce     = "once"
	OptionSession  = "session"
	OptionAlways   = "always"
	OptionDeny     = "deny"
	OptionContinue = "continue"
	OptionAccept   = "accept"
	OptionDecline  = "decline"
	OptionCancel   = "cancel"
)

// ApprovalDecision is what an option stands for.
type ApprovalDecision string

// The decisions.
const (
	DecisionAllow ApprovalDecision = "allow"
	DecisionDeny  ApprovalDecision = "deny"
)

// ApprovalOutcome says how a question ended.
type ApprovalOutcome string

// A question is answered, by a person or its timeout, or withdrawn.
const (
	OutcomeAllowed   ApprovalOutcome = "allowed"
	OutcomeDenied    ApprovalOutcome = "denied"
	OutcomeWithdrawn ApprovalOutcome = "withdrawn"
)

// What ends a question without a person's answer to it.
const (
	ByTimeout = "timeout"
	ByAbort   = "abort"
	BySteer   = "steer"
	ByDelete  = "delete"
	ByCall    = "call"    // a form: the call that asked has ended, or asks no more
	ByRestart = "restart" // a form: its call has gone with a daemon
)

// ByProcess is the process that answered a question, as the wire has it.
func ByProcess(pid int, comm string) jsontext.Value {
	out, _ := jsontext.AppendQuote([]byte(`{"pid":`+strconv.Itoa(pid)+`,"comm":`), strings.ToValidUTF8(comm, "\uFFFD"))
	return append(out, '}')
}

// ByPeer is who answered a question from another machine, as the wire has it: there is
// no process that would mean anything here.
func ByPeer(peer string) jsontext.Value {
	out, _ := jsontext.AppendQuote([]byte(`{"pid":0,"comm":"fleet","peer":`), strings.ToValidUTF8(peer, "\uFFFD"))
	return append(out, '}')
}

// ByWord is one of the words for what ended a question, as the wire has it.
func ByWord(word string) jsontext.Value {
	out, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(word, "\uFFFD"))
	return out
}

// Approval is a question that waits for a person. Those of get_state name their
// session and run; in an event the event does.
type Approval struct {
	ApprovalID string         `json:"approval_id"`
	SessionID  string         `json:"session_id,omitzero"`
	RunID      string         `json:"run_id,omitzero"`
	Kind       ApprovalKind   `json:"kind" enum:"tool,budget,question"`
	ToolCallID string         `json:"tool_call_id,omitzero"`
	ToolName   string         `json:"tool_name,omitzero"`
	Arguments  jsontext.Value `json:"arguments,omitzero" doc:"what runs, byte for byte, if it is allowed"`
	Reason     string         `json:"reason,omitzero" doc:"the model's own, which limit was reached, or what the tool asks"`
	Rule       string         `json:"rule" doc:"why it is asked"`
	Workdir    string         `json:"workdir"`
	CreatedAt  time.Time      `json:"created_at"`
	Diff       string         `json:"diff,omitzero" doc:"of edit and write: what would change"`

	Path string `json:"path,omitzero" doc:"of a file tool whose path a symbolic link leads elsewhere: where it leads; an allowed call touches nothing else"`

	SessionPath []string `json:"session_path,omitzero" doc:"of a child session: the titles from the root down to it"`

	Schema jsontext.Value `json:"schema,omitzero" type:"object" doc:"of a question: the JSON Schema of the form, a flat object, as the server wrote it"`

	Options []ApprovalOption `json:"options"`
	// Shortened questions are only in the states of other sessions.
	Shortened bool `json:"shortened,omitzero" doc:"arguments, diff and schema are left out: the state of its session has them"`
}

// ApprovalOption is one of the answers that a question takes. Pattern says
// verbatim what else the option allows from then on.
type ApprovalOption struct {
	ID       string           `json:"id"`
	Decision ApprovalDecision `json:"decision" enum:"allow,deny"`
	Pattern  string           `json:"pattern,omitzero"`
}

// ApproveParams is the payload of approve.
type ApproveParams struct {
	ApprovalID string `json:"approval_id" min:"1"`
	Option     string `json:"option" min:"1" doc:"the id of one of the question's options"`
	Reason     string `json:"reason,omitzero" doc:"of a denial: what the model reads; at most 4096 bytes"`

	Content jsontext.Value `json:"content,omitzero" wire:"added" type:"object" doc:"of accept: what fills in the form; absent: its defaults; at most 65536 bytes"`
}

// ApproveAccepted answers approve.
type ApproveAccepted struct {
	Command    string          `json:"command"`
	ApprovalID string          `json:"approval_id"`
	Outcome    ApprovalOutcome `json:"outcome" enum:"allowed,denied"`
}

// SetApprovalModeParams is the payload of set_approval_mode.
type SetApprovalModeParams struct {
	Scope
	Mode ApprovalMode `json:"mode" enum:"ask,auto,deny"`
}

// ApprovalModeAccepted answers set_approval_mode.
type ApprovalModeAccepted struct {
	Command string       `json:"command"`
	Mode    ApprovalMode `json:"mode" enum:"ask,auto,deny"`
}

// MaxReason bounds what a model reads of a denial, in bytes.
const MaxReason = 4 << 10

// maxContent bounds what fills in a form, in bytes.
const maxContent = 64 << 10

func (p ApproveParams) validate() *Error {
	if len(p.Reason) > MaxReason {
		return badField("reason", "is %d bytes long, at most %d are allowed", len(p.Reason), MaxReason)
	}
	if p.Content != nil && p.Content.Kind() != '{' {
		return badField("content", "has to be an object")
	}
	if len(p.Content) > maxContent {
		return badField("content", "is %d bytes long, at most %d are allowed", len(p.Content), maxContent)
	}
	return firstOf(notEmpty("approval_id", p.ApprovalID), notEmpty("option", p.Option))
}

func (p SetApprovalModeParams) validate() *Error {
	return oneOf("mode", p.Mode, ApprovalsAsk, ApprovalsAuto, ApprovalsDeny)
}

func (ApproveAccepted) replyType() string      { return "accepted" }
func (ApprovalModeAccepted) replyType() string { return "accepted" }

// Because says why somebody is asked, as the end of a sentence: "it runs outside the sandbox";
// of a form whose it is.
// Names and patterns in it may hold any characters.
func (a Approval) Because() string {
	what, asks := strings.CutPrefix(a.Rule, "ask: ")
	tool, note, outside := strings.Cut(what, " outside the sandbox")
	switch {
	case a.Kind == ApprovalBudget:
		return "a limit of yours is reached"
	case !asks || a.Kind == ApprovalQuestion:
		return what
	case strings.HasSuffix(what, " asks"):
		return what + ", and no rule allows it"
	case what == "MCP tool":
		return "it is a tool of an MCP server, and no rule allows it"
	case !outside || tool == "" || strings.Contains(tool, " ") || note != "" && !strings.HasPrefix(note, " ("):
		return `"` + what + `" says so`
	}
	text := "it runs outside the sandbox"
	if note = strings.TrimSuffix(strings.TrimPrefix(note, " ("), ")"); note != "" {
		text += `; no "always": ` + note
	}
	return text
}

package model

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// Undotted is a tool's name as those spell it that take no dots in names
// (tools.md §1).
func Undotted(name string) string { return strings.ReplaceAll(name, ".", "__") }

// Means reports whether somebody who says said means the tool of that name.
func Means(said, name string) bool { return said == name || said == Undotted(name) }

// Invocation is one tool call on its way to a tool.
type Invocation struct {
	ToolCall
	// Scope says for which session, and in whose folder the tool is to run.
	Scope
	// Phase is the gevals phase: "setup", "verify" or "cleanup" (tools.md §3).
	Phase string
	// Prompt and Output are the session's last user and assistant texts; hosts
	// hand them on where a phase asks for them.
	Prompt, Output string
	// Allowed: the rules, or a person, let this call be made; without it the caller who makes
	// it asks the rules, and what they do not allow is not made.
	Allowed bool
	// Option is the id of the approval's option by which a person has allowed the call,
	// "" where nobody was asked.
	Option string
	// Path is where the call's path led when it was judged; the built-in tools open that
	// and nothing else. "": no rule is about paths.
	Path string
	// MaxResult bounds the text of the result beside what bounds every one, in
	// bytes; 0: not at all.
	MaxResult int
	// KeepImage takes an image that the tool gives with its result, before Call
	// returns; the error says why not. Nil: nobody looks at images.
	KeepImage func(name string, content io.ReaderAt, size int64) error
	// KeepIn names the file that is to have all that the call's updates have as Kept,
	// for the text of its result. Empty: nothing is kept.
	KeepIn string
	// Ask puts a form to the person who looks after the session, and blocks until somebody
	// has answered, nobody is there to answer, or ctx ends; the answer is Cancel
	// then. A call asks one thing at a time. The error says why it is not asked: the
	// form is not one, or too much is asked. Nil: there is nobody to ask.
	Ask func(ctx context.Context, q Question) (Answer, error)
}

// Question is a form that a tool wants filled in while its call runs. Schema is a
// JSON Schema of the tool's, as it came.
type Question struct {
	Message string
	Schema  json.RawMessage
}

// What people do with a form.
const (
	Accept  = "accept"
	Decline = "decline"
	Cancel  = "cancel"
)

// Answer is how a Question ended. Content, of an Accept, is a JSON object that
// fits the form.
type Answer struct {
	Action  string
	Content json.RawMessage
}

// Scope says from where tools are seen: which session, the folder it lives in, and
// the servers that are there for it alone.
type Scope struct {
	SessionID string
	// Workdir is the session's folder; "" is the daemon's.
	Workdir string
	// Servers came with the session; they are the same for as long as it lives.
	Servers []Server
}

// Server is an MCP server that a client gave to a session when it made it: a
// program, or the URL of one that runs elsewhere. Env and Headers may hold secrets.
type Server struct {
	Name    string            `json:"name"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// The states of a ServerInfo (mcp.md §3).
const (
	ServerConfigured = "configured"
	ServerStarting   = "starting"
	ServerReady      = "ready"
	ServerFailed     = "failed"
	ServerUntrusted  = "untrusted"
	ServerNeedsLogin = "needs_login"
)

// ServerInfo is an MCP server as people see it. Message says more where there is
// more to say; Workdir is the folder that a server is for, "" for one that is the
// user's in all of them; Tools is how many it has said it has. Instructions are what
// it tells models of itself, and is nothing for people.
type ServerInfo struct {
	Name         string
	State        string
	Message      string
	Workdir      string
	Tools        int
	Instructions string
	Prompts      []ServerPrompt
	LeftOut      []string // tools of it that cannot be used, each with the reason
}

// ServerPrompt is a text that a server makes for its user of some arguments.
type ServerPrompt struct {
	Name, Description string
	Arguments         []PromptArgument
}

// PromptArgument is one of them.
type PromptArgument struct {
	Name, Description string
	Required          bool
}

// Expanded is a text with what servers had for it, and images that go with it.
type Expanded struct {
	Text   string
	Images []Attachment
}

// The decisions of a Verdict. The zero one leaves the decision to the caller.
const (
	Allow = "allow"
	Ask   = "ask"
	Deny  = "deny"
)

// Verdict decides on a call (approvals.md §1). Rule says whence it
// is, Pattern the rule's own, Why more words for a person, Reason what the model
// said for it. Code is that of a denied call. With Failure set the call cannot be
// made whatever anybody says, and that is its result. Offer is what else a person
// may allow, nil for nothing.
type Verdict struct {
	Decision           string
	Rule, Pattern, Why string
	Reason             string
	Code               string
	Failure            *ToolResult
	Offer              *Offer
	ForSession         *Offer // for the session alone
	Always             string // a hosted agent's own way to be asked no more, in its words
	NotOnce            bool   // a hosted agent has no way to allow this one call
	Changes            bool   // a file, which can be shown before
	Reads              bool   // the call changes nothing, whatever its arguments are
	Delegates          bool   // the call is one of the built-in tool agent: the run loop makes it
	Host               string // the hosted agent that makes its child's turns
	Guarded            bool   // orchestrators and hooks have a say, too
	Warning            string // of a hook that failed
	Path               string // that it is about (Invocation.Path)
	Linked             bool   // a link on the way of the call's path leads to Path
	// Arguments are the call's with the tool's defaults filled in, nil where there are none
	// to fill in.
	Arguments json.RawMessage
}

// Offer is a rule, as JSON, that allows a call from then on, and what it says.
type Offer struct {
	Pattern string
	Rule    json.RawMessage
}

// ToolError is the wire's error of a tool call. Codes are the reserved ones of
// the Amplifier error schema (§4) and those of tools.md.
type ToolError struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitzero"`
}

// ToolResult is the outcome of one tool call. Text is what the model reads, on
// failure too. Outputs and Value are the tool's own, kept for clients. Images are
// paths that the tool names, absolute or from its workdir, Attachments what has
// been kept of them.
type ToolResult struct {
	OK      bool
	Text    string
	Outputs map[string]string
	Value   json.RawMessage
	Error   *ToolError

	Images      []string
	Attachments []Attachment

	// Paused says that there is no result yet: a hosted agent goes on with the call, under the
	// next program.
	Paused bool
}

// Codes of calls that the run loop itself fails; tools have more (package tool).
const (
	BadRequest  = "bad_request"
	Forbidden   = "forbidden"
	Internal    = "internal"
	Denied      = "denied"      // by a person, their mode, or since nobody answered
	Interrupted = "interrupted" // the daemon stopped while the call ran
	HookObjects = "hook"        // the call was made, and a hook objects to what came of it
	AtLimit     = "at_limit"    // a bound of [children]
)

// Failed returns the result of a call that went wrong, readable by the model.
func Failed(code, message string) ToolResult {
	return ToolResult{Text: code + ": " + message, Error: &ToolError{Code: code, Message: message}}
}

// Asset is a file a tool made known (narratoria §4.3). Path is as resolved
// against the tool's working directory.
type Asset struct {
	ID        string          `json:"asset_id"`
	Kind      string          `json:"kind"`
	MediaType string          `json:"media_type"`
	Path      string          `json:"path"`
	Tool      string          `json:"tool"`
	Supported bool            `json:"supported"`
	Metadata  json.RawMessage `json:"metadata,omitzero"`
}

// What a job does.
const (
	JobRunning = "running"
	JobExited  = "exited"
	JobStopped = "stopped" // by somebody, or with its daemon
)

// Job is a command that goes on in the background for a session. Command is as
// much of it as is told, ExitCode that of one that has ended by itself, OutputPath
// the file of what it prints.
type Job struct {
	ID         string `json:"id"`
	Command    string `json:"command"`
	Status     string `json:"status,omitzero"`
	ExitCode   *int   `json:"exit_code,omitzero"`
	OutputPath string `json:"output_path"`
}

// ToolUpdate is something a tool said while it ran. Delta is text for people;
// Update is the tool's own event, verbatim, a JSON object. Patch (a JSON
// object, RFC 7396) and Asset change the session. With Warning set the update
// is a refused event, told to people as a warning with that code.
type ToolUpdate struct {
	Delta   string
	Update  json.RawMessage
	Patch   json.RawMessage
	Asset   *Asset
	Job     *Job   // was started
	Kept    []byte // what KeepIn of the call is to have next
	Warning string
}

// ToolInfo is one callable operation as the registry knows it. Module is the
// descriptor's name; Name what the model calls. An unhealthy operation is not
// offered to a model and says why in Problem.
type ToolInfo struct {
	ToolSpec
	Module   string
	Protocol string
	Healthy  bool
	Problem  string
	// ReadOnly: the tool says that it changes nothing.
	ReadOnly bool
	// Delegates: it is the built-in tool agent, whose calls the run loop makes.
	Delegates bool
	Unheard   bool // not healthy as it has not said yet what it can do
	Silent    bool // not healthy as it said nothing when it was started, and is not started again as it is
}

// AuditEvent is what the audit journal keeps of something that happened
// (amplifier-protocols §3); the journal adds the id and the time. Names are
// those of the taxonomy, "module:invoke" for one. Data and Error are JSON
// objects or nil.
type AuditEvent struct {
	Event     string
	Component string // "session", "tool", "policy": the part of the daemon
	Module    string
	Status    string // "ok", "error" or ""
	Duration  time.Duration
	SessionID string
	RequestID string
	Data      json.RawMessage
	Error     *ToolError
}

// Package model is the vocabulary between the run loop, the model providers
// and the tools: messages, tool calls, requests, deltas and tool results.
//
// Concurrency: plain values; whoever holds one may read it, nobody changes one
// that was handed over.
//
// It refuses to do anything: no I/O, no provider, no tool, no third-party
// import. Providers translate it to their own wire, the session keeps it.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Errors of a stream that a caller may want to act on; providers wrap them.
var (
	// ErrTruncated: the answer broke off without a reason to stop. What was
	// yielded before it stands.
	ErrTruncated = errors.New("the model's answer broke off")
	// ErrContextTooLong: the provider refused the request for its length. The
	// same request will be refused again; a compacted one may not.
	ErrContextTooLong = errors.New("the context is too long for the model")
	// ErrRejected: the provider finds something wrong with the request. The same
	// one will be refused again; one that is put differently may not.
	ErrRejected = errors.New("the provider refuses the request as it is")
	// ErrRoleOrder is an ErrRejected about who may speak after whom.
	ErrRoleOrder = fmt.Errorf("%w: the roles are in the wrong order", ErrRejected)
	// ErrEffort: a model cannot be told to think as hard as that.
	ErrEffort = errors.New("the model has no such effort")
	// ErrRefused: the model, or a filter of its provider, does not want to answer.
	ErrRefused = errors.New("the model refused to answer")
	// ErrPassing: what went wrong may go well the next time.
	ErrPassing = errors.New("the provider may answer later")
)

// Role of a message in a conversation.
type Role string

// The roles a conversation knows.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// StopReason says why an assistant message ended.
type StopReason string

// Reasons for an assistant message to end. Length means that the provider cut
// it: its tool calls are failed, not run.
const (
	StopEnd       StopReason = "end"
	StopToolCalls StopReason = "tool_calls"
	StopLength    StopReason = "length"
	StopAborted   StopReason = "aborted"
	StopError     StopReason = "error"
)

// Usage counts tokens. Providers that do not report leave it zero.
// CachedTokens are those of InputTokens that the provider had in its cache,
// CacheWriteTokens those that it took up into it; ReasoningTokens those of
// OutputTokens that the model thought. Cost is in billionths of a US dollar, as
// far as prices are known.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CachedTokens     int64 `json:"cached_tokens,omitzero"`
	CacheWriteTokens int64 `json:"cache_write_tokens,omitzero"`
	ReasoningTokens  int64 `json:"reasoning_tokens,omitzero"`
	Cost             int64 `json:"cost_nano_usd,omitzero"`
}

// Add returns the sum of both.
func (u Usage) Add(o Usage) Usage {
	return Usage{
		sum(u.InputTokens, o.InputTokens), sum(u.OutputTokens, o.OutputTokens), sum(u.CachedTokens, o.CachedTokens),
		sum(u.CacheWriteTokens, o.CacheWriteTokens), sum(u.ReasoningTokens, o.ReasoningTokens), sum(u.Cost, o.Cost),
	}
}

// sum is of two counts; what does not fit is the most that does.
func sum(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// maxTokens is more than any model call takes.
const maxTokens = 1 << 40

// Believed returns the usage without the counts that no model call can have, so
// that sums of them do not overflow.
func (u Usage) Believed() Usage {
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CachedTokens, &u.CacheWriteTokens, &u.ReasoningTokens} {
		if *n < 0 || *n > maxTokens {
			*n = 0
		}
	}
	return u
}

// ToolCall is one call that an assistant message makes. Name is the name the
// model sees (tools.md §1), "module.operation" or a bare one; Arguments is a
// JSON object, or whatever the model wrote where that was none.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Message is one entry of a conversation as a model sees it. ToolCalls belong
// to assistant messages, and so do Maker and Blocks, which say who made the
// message and in what order it came; Attachments belong to user messages and to
// tool results; ToolCallID, ToolName and OK to tool results. A user message with Summary set
// stands for a part of the conversation that was compacted. Opens marks the
// first message of a turn, as far as that is known.
type Message struct {
	Role       Role       `json:"role"`
	Text       string     `json:"text"`
	Thinking   string     `json:"thinking,omitzero"`
	ToolCalls  []ToolCall `json:"tool_calls,omitzero"`
	ToolCallID string     `json:"tool_call_id,omitzero"`
	ToolName   string     `json:"tool_name,omitzero"`
	OK         bool       `json:"ok,omitzero"`
	Summary    bool       `json:"summary,omitzero"`
	Opens      bool       `json:"-"`

	Maker       string       `json:"maker,omitzero"`
	Blocks      []Block      `json:"blocks,omitzero"`
	Attachments []Attachment `json:"attachments,omitzero"`
}

// Attachment is something that a message shows beside its text, an image
// for one. A session has the first four fields only: File is its own copy's
// name beside the journal, Size the length in bytes, Name what people call it.
// Data, base64 in JSON, is there for as long as a request is made; a request
// for a summary has none.
type Attachment struct {
	MediaType string `json:"media_type"`
	Name      string `json:"name,omitzero"`
	Size      int64  `json:"size,omitzero"`
	File      string `json:"file,omitzero"`
	Data      []byte `json:"data,omitzero"`
}

// Title is what to call an attachment in a text for people and models.
func (a Attachment) Title() string {
	kind, _, _ := strings.Cut(a.MediaType, "/")
	if a.Name == "" {
		return kind
	}
	return kind + " " + a.Name
}

// Key names the model of a Choice, for what is learned of it.
func (c Choice) Key() string { return strings.TrimSuffix(c.Provider+"/"+c.Name+" "+c.BaseURL, " ") }

// Choice names a model and how much it can read, in tokens; a ContextWindow of 0
// has no end, or is not known yet. With BaseURL it is at another server than the
// configured one. Effort is how hard it is to think, one of the wire's levels, or
// as the model does by itself. Without a Provider it is the daemon's own model.
type Choice struct {
	Provider      string `json:"provider,omitzero"`
	Name          string `json:"name,omitzero"`
	BaseURL       string `json:"base_url,omitzero"`
	ContextWindow int64  `json:"context_window,omitzero"`
	Effort        string `json:"effort,omitzero"`
}

// ToolSpec describes one callable operation to a model. Params is a JSON
// Schema of an object.
type ToolSpec struct {
	Name        string
	Description string
	Params      json.RawMessage
}

// Request asks a model for one assistant message. Messages must not be changed by
// the receiver; every tool call in them is answered (session.Answered). With
// Summary set, System asks for a summary of Messages, and no tool may be called.
type Request struct {
	SessionID   string // for a provider's cache
	System      string
	Messages    []Message
	Tools       []ToolSpec
	Deferred    []string // names of tools that the model is not told of, and may call all the same
	Summary     bool
	Repair      Repair
	Effort      Effort
	OutputLimit int64 // tokens that the model can say at most, as far as that is known; else 0
}

// Effort is how hard a model is to think: Level, one of the wire's, or "" as it
// does by itself. Word is what the model calls that level, "" the same. Form is
// how it is told, where its wire has several ways, "" the wire's own:
//   - openrouter: an object with the word;
//   - thinking, qwen, together: a switch of their own and the word, and with a "!"
//     behind it the switch alone;
//   - adaptive, budget: Anthropic's two, as much as is needed or so many tokens.
type Effort struct{ Level, Word, Form string }

// Said is the word for the level, "" where the model decides.
func (e Effort) Said() string {
	if e.Word == "" {
		return e.Level
	}
	return e.Word
}

// NoEffort is the level of a model that is not to think.
const NoEffort = "none"

// Repair says how a request is put differently for a provider that refuses it as
// it is (models-today.md §4). The zero Repair changes nothing.
type Repair struct {
	NoImages     bool `json:"no_images,omitzero"`     // images are told of in words
	PlainSchemas bool `json:"plain_schemas,omitzero"` // of tools, with what every vendor takes
	NoOpaque     bool `json:"no_opaque,omitzero"`     // nothing that a maker attached goes back
	PlainCalls   bool `json:"plain_calls,omitzero"`   // calls and results are told as text
	Bridged      bool `json:"bridged,omitzero"`       // the assistant speaks between a result and the user
}

// Delta is one piece of a streamed assistant message; exactly one of the
// fields is set, but the last one carries Stop, and may carry Usage with it.
// ToolCalls come whole, and only when the message is complete. Maker and Blocks
// come with Stop, from those providers that want the message back as it was. A
// Notice is no piece of the message.
type Delta struct {
	Text     string
	Thinking string
	ToolCall *ToolCall
	Notice   *Notice
	Stop     StopReason
	Usage    Usage
	Maker    string
	Blocks   []Block
}

// Notice tells people of something that a model call got over. Code is that of
// a warning event. NoticeRetry: the request failed and is sent again, as the
// attempt with that number, after Delay.
type Notice struct {
	Code    string
	Message string
	Attempt int
	Delay   time.Duration
}

// NoticeRetry is the code of a Notice of a request that is sent again.
const NoticeRetry = "provider_retry"

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
	// Allowed: the rules, or a person, let this call be made; without it whoever makes
	// it asks the rules, and what they do not allow is not made.
	Allowed bool
	// MaxResult bounds the text of the result beside what bounds every one, in
	// bytes; 0: not at all.
	MaxResult int
	// KeepImage takes an image that the tool gives with its result, before Call
	// returns; the error says why not. Nil: nobody looks at images.
	KeepImage func(name string, content io.ReaderAt, size int64) error
	// Ask puts a form to whoever looks after the session, and blocks until somebody
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

// Answer is what became of a Question. Content, of an Accept, is a JSON object that
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

// The decisions of a Verdict. The zero one is whoever's who makes the call.
const (
	Allow = "allow"
	Ask   = "ask"
	Deny  = "deny"
)

// Verdict is what is to be done with a call (approvals.md §1). Rule says whence it
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
	Changes            bool // a file, which can be shown before
	Guarded            bool // orchestrators have a say, too
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
}

// Codes of calls that the run loop itself fails; tools have more (package tool).
const (
	BadRequest  = "bad_request"
	Forbidden   = "forbidden"
	Internal    = "internal"
	Denied      = "denied"      // by a person, their mode, or since nobody answered
	Interrupted = "interrupted" // the daemon stopped while the call ran
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
	Job     *Job // was started
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

// Package model is the vocabulary between the run loop, the model providers
// and the tools: messages, tool calls, requests, deltas and tool results.
//
// Concurrency: plain values; anyone who holds one may read it, nobody changes one
// that was handed over.
//
// It refuses to do anything: no I/O, no provider, no tool, no third-party
// import. Providers translate it to their own wire, the session keeps it.
package model

import (
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
	// ErrCancelled: a hosted agent has ended its turn early, of its own accord.
	ErrCancelled = errors.New("the agent has cancelled its turn")
	// ErrKey: the provider refuses the key, or wants one.
	ErrKey = errors.New("the provider refuses the key")
	// ErrGone: the provider answers for this model no more, as there is no credit, no such
	// model or no key that it takes. Another model may answer.
	ErrGone = errors.New("the provider does not answer for this model")
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
// What it shows is Data, base64 in JSON, where a module has given it, or else what
// Open reads, as long as a request is made: exactly Size bytes. A request for a
// summary has neither.
type Attachment struct {
	MediaType string `json:"media_type"`
	Name      string `json:"name,omitzero"`
	Size      int64  `json:"size,omitzero"`
	File      string `json:"file,omitzero"`
	Data      []byte `json:"data,omitzero"`

	Open func() (io.ReadCloser, error) `json:"-"`
}

// Content is what an attachment shows, as a whole. It is for those who cannot
// stream it.
func (a Attachment) Content() ([]byte, error) {
	if a.Open == nil {
		return a.Data, nil
	}
	in, err := a.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	data := make([]byte, a.Size)
	_, err = io.ReadFull(in, data)
	return data, err
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
//
// Where Load is set it has the messages, and Messages is empty: a conversation may be
// long, and an answer take minutes. Loaded calls it.
type Request struct {
	SessionID string // for a provider's cache
	System    string
	Messages  []Message
	Tools     []ToolSpec
	Deferred  []string // names of tools that the model is not shown, and may call all the same
	Summary   bool
	Repair    Repair
	Effort    Effort
	Output    json.RawMessage // JSON Schema that the last message is to fit, or nil
	Room      Room

	Agent *AgentTurn // of a hosted session, else nil

	OutputLimit int64 // tokens that the model can say at most, as far as that is known; else 0

	// Load returns the messages, once there is room in memory for them and for a request
	// of so many bytes; done, which is called once, gives the room back. It may block, and
	// be called again after done. It fails where the messages cannot be read, or others
	// keep the room.
	Load func(bytes int) (messages []Message, done func(), err error)
}

// Loaded is the request with its messages. They and what is made of them must have been
// let go when done is called, which has to be soon: other sessions wait for it. It blocks
// and fails as Load does.
func (r Request) Loaded(bytes int) (whole Request, done func(), err error) {
	if r.Load == nil {
		return r, func() {}, nil
	}
	r.Messages, done, err = r.Load(bytes)
	r.Load = nil
	return r, done, err
}

// Room is what the receiver of a request asks for before it keeps something long.
// Where a function is nil nobody counts.
type Room struct {
	// Hold is called with how many bytes of the answer are about to be kept, with a
	// number below zero when some of them have been let go. It may block. After an
	// error, which ends the answer, nothing more may be kept.
	Hold func(bytes int) error
	// Aside returns an empty file that nobody else sees, for a long request.
	Aside func() (File, error)
}

// File is a file that is written once and then read. It is gone when it is closed.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
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
	NoImages     bool `json:"no_images,omitzero"`     // images are described in words
	PlainSchemas bool `json:"plain_schemas,omitzero"` // of tools, with what every vendor takes
	NoOpaque     bool `json:"no_opaque,omitzero"`     // nothing that a maker attached goes back
	PlainCalls   bool `json:"plain_calls,omitzero"`   // calls and results are told as text
	Bridged      bool `json:"bridged,omitzero"`       // the assistant speaks between a result and the user
	ToldOutput   bool `json:"told_output,omitzero"`   // the schema of the answer is told in words alone
}

// MaxContent is how much text and thinking a message has at most, in bytes: of a provider or an agent.
const MaxContent = 4 << 20

// Delta is one piece of a streamed assistant message; exactly one of the
// fields is set, but the last one carries Stop, and may carry Usage with it. Usage
// alone is of an attempt that failed; all of them add up.
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
	More     bool // with Stop: the hosted agent's turn goes on with another message
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
	Most    int // attempts, where they are counted; 0: only the time ends them
	Delay   time.Duration
}

// NoticeRetry is the code of a Notice of a request that is sent again.
const NoticeRetry = "provider_retry"

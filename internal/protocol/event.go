package protocol

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Event is one of the sealed set of v1 event payloads. No type is ever added
// (wire-v1 §4): new things are new fields.
type Event interface {
	// Type is the event's type on the wire.
	Type() string
	// Where says which run, session and turn the event belongs to.
	Where() Ref
}

// Ref ties an event to its run. All are empty on daemon-wide events; TurnID is
// set inside a turn.
type Ref struct {
	RunID     string `json:"run_id,omitzero"`
	SessionID string `json:"session_id,omitzero"`
	TurnID    string `json:"turn_id,omitzero"`
}

// Where returns r itself, for the events that embed it.
func (r Ref) Where() Ref { return r }

// EventTypes is the frozen list, in the contract's order.
func EventTypes() []Event {
	return []Event{
		AgentStart{},
		AgentEnd{},
		TurnStart{},
		TurnEnd{},
		MessageStart{},
		MessageUpdate{},
		MessageEnd{},
		ToolStart{},
		ToolUpdate{},
		ToolEnd{},
		Status{},
		Warning{},
		ErrorEvent{},
	}
}

// Usage counts tokens.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CachedTokens int64 `json:"cached_tokens,omitzero" wire:"added"`
	// ReasoningTokens are those of OutputTokens that the model thought.
	ReasoningTokens int64 `json:"reasoning_tokens,omitzero" wire:"added"`
	// CacheWriteTokens are those of InputTokens that the provider took up into its
	// cache.
	CacheWriteTokens int64 `json:"cache_write_tokens,omitzero" wire:"added"`
	Cost             *Cost `json:"cost,omitzero" wire:"added" doc:"as far as prices are known"`
}

// Cost is what model calls cost, by the prices that were known when they were
// made.
type Cost struct {
	Amount   float64 `json:"amount" doc:"each call rounded to a billionth, half up"`
	Currency string  `json:"currency" enum:"USD"`
}

// ToolCall is a call an assistant message makes.
type ToolCall struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// ToolError says why a tool call failed.
type ToolError struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details jsontext.Value `json:"details,omitzero"`
}

// RunError says why a run ended in error.
type RunError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// AgentStart opens a run.
type AgentStart struct {
	Ref
	As string `json:"as,omitzero" wire:"added" doc:"the named agent that makes the run"`
}

// AgentEnd closes a run, exactly once.
type AgentEnd struct {
	Ref
	StopReason StopReason       `json:"stop_reason" enum:"completed,aborted,error"`
	Turns      int              `json:"turns"`
	Usage      Usage            `json:"usage"`
	Error      *RunError        `json:"error,omitzero" wire:"added"`
	Discarded  []DiscardedInput `json:"discarded,omitzero" wire:"added" doc:"accepted texts that the run was given up without delivering"`
	DurationMS int64            `json:"duration_ms,omitzero" wire:"added" doc:"from agent_start on, the time in which the daemon was away included"`
}

// TurnStart opens a turn and names the inputs it delivers.
type TurnStart struct {
	Ref
	Kind     Kind     `json:"kind" enum:"prompt,steer,follow_up"`
	InputIDs []string `json:"input_ids"`
}

// TurnEnd closes a turn.
type TurnEnd struct {
	Ref
	StopReason StopReason `json:"stop_reason" enum:"end,steered,aborted,error"`
	Error      *RunError  `json:"error,omitzero" wire:"added" doc:"of stop_reason error; the run may go on with a text that waits"`
}

// MessageStart opens a message. Text and Attachments are those of users.
type MessageStart struct {
	Ref
	MessageID   string       `json:"message_id"`
	Role        string       `json:"role" enum:"user,assistant"`
	Text        string       `json:"text,omitzero"`
	Attachments []Attachment `json:"attachments,omitzero" wire:"added" doc:"images that were sent with the text"`
	InputID     string       `json:"input_id,omitzero" wire:"added" doc:"of a user's message: the accepted text that it is"`
	Child       *ChildRun    `json:"child,omitzero" wire:"added" doc:"of a message that nobody has sent: the child session in the background whose end it tells"`
}

// Attachment is an image that was sent with a text. Path is the daemon's own
// copy, which is there as long as the session is; Size is its length in bytes.
type Attachment struct {
	MediaType string `json:"media_type" enum:"image/png,image/jpeg,image/gif,image/webp"`
	Name      string `json:"name,omitzero" doc:"for people"`
	Size      int64  `json:"size" doc:"in bytes"`
	Path      string `json:"path" doc:"the daemon's copy"`
}

// MessageUpdate carries one of the two deltas of an assistant message.
type MessageUpdate struct {
	Ref
	MessageID     string `json:"message_id"`
	Delta         string `json:"delta,omitzero"`
	ThinkingDelta string `json:"thinking_delta,omitzero"`
}

// MessageEnd closes a message with its whole text. The last three are set for
// assistants.
type MessageEnd struct {
	Ref
	MessageID  string     `json:"message_id"`
	Role       string     `json:"role" enum:"user,assistant"`
	Text       string     `json:"text"`
	ToolCalls  []ToolCall `json:"tool_calls,omitzero" wire:"added"`
	StopReason StopReason `json:"stop_reason,omitzero" enum:"end,tool_calls,length,aborted,error"`
	Usage      *Usage     `json:"usage,omitzero"`
}

// ToolStart opens a tool execution.
type ToolStart struct {
	Ref
	ToolCallID string         `json:"tool_call_id"`
	ToolName   string         `json:"tool_name"`
	Arguments  jsontext.Value `json:"arguments"`
}

// ToolUpdate is progress of a tool execution.
type ToolUpdate struct {
	Ref
	ToolCallID string         `json:"tool_call_id"`
	ToolName   string         `json:"tool_name"`
	Delta      string         `json:"delta" doc:"text a person can read"`
	Update     jsontext.Value `json:"update,omitzero" wire:"added" type:"object" doc:"the tool's own event, verbatim"`
	OfResult   bool           `json:"of_result,omitzero" wire:"added" doc:"the tool said nothing: delta is the beginning of the result that follows"`
}

// ToolEnd closes a tool execution.
type ToolEnd struct {
	Ref
	ToolCallID string            `json:"tool_call_id"`
	ToolName   string            `json:"tool_name"`
	OK         bool              `json:"ok"`
	Result     string            `json:"result" doc:"the text given to the model"`
	Outputs    map[string]string `json:"outputs,omitzero" wire:"added"`
	Value      jsontext.Value    `json:"value,omitzero" wire:"added"`
	Skipped    bool              `json:"skipped,omitzero" wire:"added"`
	Error      *ToolError        `json:"error,omitzero" wire:"added"`
	DurationMS int64             `json:"duration_ms"`

	Attachments []Attachment `json:"attachments,omitzero" wire:"added" doc:"images that the model is shown with the result"`
}

// Status tells what is going on. InputID and PendingCounts belong to the codes
// steer_queued, follow_up_queued and input_withdrawn; Usage, that of the summary, to compacted;
// Title to title_set; Approval to approval_requested, what follows it to
// approval_resolved.
type Status struct {
	Ref
	Message       string         `json:"message"`
	Code          Code           `json:"code"`
	InputID       string         `json:"input_id,omitzero"`
	PendingCounts *PendingCounts `json:"pending_counts,omitzero"`
	Usage         *Usage         `json:"usage,omitzero" wire:"added"`
	Title         string         `json:"title,omitzero" wire:"added" doc:"of title_set"`
	TokensBefore  int64          `json:"tokens_before,omitzero" wire:"added" doc:"of compacted: the context's, about"`
	TokensAfter   int64          `json:"tokens_after,omitzero" wire:"added" doc:"of compacted"`

	OutputID string `json:"output_id,omitzero" wire:"added" doc:"of operation_output: the one that the extension_command named; message is the text"`

	Approval   *Approval       `json:"approval,omitzero" wire:"added" doc:"of approval_requested"`
	ApprovalID string          `json:"approval_id,omitzero" wire:"added" doc:"of approval_resolved"`
	Outcome    ApprovalOutcome `json:"outcome,omitzero" wire:"added" enum:"allowed,denied,withdrawn" doc:"of approval_resolved"`
	Option     string          `json:"option,omitzero" wire:"added" doc:"of approval_resolved: the option's id, where one was taken"`
	By         jsontext.Value  `json:"by,omitzero" wire:"added" doc:"of approval_resolved: an object with the pid and comm of the process that answered, or one of the strings timeout, abort, steer, delete, call, restart"`
}

// Warning reports something that went wrong and was got over. FromSeq and
// ToSeq belong to the code events_dropped, Attempt and DelayMS to
// provider_retry: the request is sent again, as that attempt, after so many
// milliseconds.
type Warning struct {
	Ref
	Message    string `json:"message"`
	Code       Code   `json:"code"`
	FromSeq    uint64 `json:"from_seq,omitzero"`
	ToSeq      uint64 `json:"to_seq,omitzero"`
	ToolCallID string `json:"tool_call_id,omitzero"`
	Attempt    int    `json:"attempt,omitzero" wire:"added" doc:"of provider_retry: the number of the attempt that follows, 2 for the first retry"`
	DelayMS    int64  `json:"delay_ms,omitzero" wire:"added" doc:"of provider_retry: how long until then"`
	Attempts   int    `json:"attempts,omitzero" wire:"added" doc:"of provider_retry: how many are made at most; absent: as many as some minutes allow"`
}

// ErrorEvent reports something that failed.
type ErrorEvent struct {
	Ref
	Message string `json:"message"`
	Code    Code   `json:"code"`
	Cause   string `json:"cause,omitzero"`
}

// The wire names of the events.
func (AgentStart) Type() string    { return "agent_start" }
func (AgentEnd) Type() string      { return "agent_end" }
func (TurnStart) Type() string     { return "turn_start" }
func (TurnEnd) Type() string       { return "turn_end" }
func (MessageStart) Type() string  { return "message_start" }
func (MessageUpdate) Type() string { return "message_update" }
func (MessageEnd) Type() string    { return "message_end" }
func (ToolStart) Type() string     { return "tool_execution_start" }
func (ToolUpdate) Type() string    { return "tool_execution_update" }
func (ToolEnd) Type() string       { return "tool_execution_end" }
func (Status) Type() string        { return "status" }
func (Warning) Type() string       { return "warning" }
func (ErrorEvent) Type() string    { return "error" }

// EventEnvelope is a decoded event line, for clients.
type EventEnvelope struct {
	V       string         `json:"v"`
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Payload jsontext.Value `json:"payload"`
	TS      time.Time      `json:"ts"`
	// FromSeq is set where the envelope stands for several events, which a fleet joins:
	// Seq is the last of them (remote.md §2).
	FromSeq uint64 `json:"from_seq,omitzero"`
	// Parts are how many bytes of a joined delta are of each of them.
	Parts []int  `json:"parts,omitzero"`
	Seq   uint64 `json:"seq"`
}

// SubscribeParams is the payload of subscribe, the one line a client may send
// on the event socket (wire-v1 §5). A nil After means from now on.
type SubscribeParams struct {
	Epoch     string   `json:"epoch,omitzero"`
	After     *uint64  `json:"after,omitzero"`
	SessionID string   `json:"session_id,omitzero"`
	Types     []string `json:"types,omitzero"`

	Token string `json:"token,omitzero" wire:"added" doc:"of a hosted agent: its session's events, and those of no session; needed on the socket for agents"`
}

// Subscribed answers subscribe.
type Subscribed struct {
	Epoch   string `json:"epoch"`
	NextSeq uint64 `json:"next_seq"`
	Gap     bool   `json:"gap"`
}

func (p SubscribeParams) validate() *Error {
	if e := tokenFits(p.Token, Scope{SessionID: p.SessionID}); e != nil {
		return e
	}
	for _, want := range p.Types {
		if !isEventType(want) {
			return badField("types", "%.40q is no event type", want)
		}
	}
	return nil
}

func isEventType(name string) bool {
	for _, ev := range EventTypes() {
		if ev.Type() == name {
			return true
		}
	}
	return false
}

func (Subscribed) replyType() string { return "subscribed" }

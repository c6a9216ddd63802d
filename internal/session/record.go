// Package session keeps conversations: an append-only journal of facts, one
// JSONL file for each session, and the fold that makes a session of them.
//
// Concurrency: a State and its Journal belong to one goroutine; the entries
// and messages a State hands out are never changed afterwards and may be read
// by others. A Store may be used by many.
//
// It refuses to decide: what a prompt or an abort means is the run loop's. A
// State changes through Apply only, live as at start-up, so that the fold of
// the journal and the live session cannot differ.
package session

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
)

// recordVersion is the version of the disk format.
const recordVersion = 1

// JournalVersion is the newest version of journals that this program reads; it writes
// them in this one.
const JournalVersion = recordVersion

// Record is one journal line: a fact and when it became one.
type Record struct {
	At   time.Time
	Fact Fact
}

// Fact is one of the sealed set of things that can happen to a session. The
// struct's JSON form is the disk format, frozen with recordVersion.
type Fact interface {
	kind() string
	// durable facts are on the disk (fdatasync) before anybody hears of them;
	// the others are written.
	durable() bool
}

// Created opens every journal. Workdir is the folder that the session lives in, an
// absolute path without symlinks; journals of older daemons have none, and their
// sessions live in that of the daemon that opens them.
type Created struct {
	SessionID string `json:"session_id"`
	Title     string `json:"title,omitzero"`
	ParentID  string `json:"parent_id,omitzero"`
	Workdir   string `json:"workdir,omitzero"`
	// Agent is the hosted agent that makes the session's turns, "" for the daemon's own loop.
	Agent string `json:"agent,omitzero"`
	// Servers are there for this session alone.
	Servers []model.Server `json:"mcp_servers,omitempty"`
	// Parent is set of a child session, and Rules are then the answers of its parent.
	Parent *Parent          `json:"parent,omitzero"`
	Rules  []jsontext.Value `json:"rules,omitempty"`
}

// TitleSet gives the session another title. Agent says that its hosted agent did, which
// counts for nothing once a person has.
type TitleSet struct {
	Title string `json:"title"`
	Agent bool   `json:"agent,omitzero"`
}

// MarkedRead says that somebody has seen what the session has come to.
type MarkedRead struct{}

// Input is a text that was accepted and is now owed. Kind is "prompt", "steer"
// or "follow_up"; Key is the client's idempotency key. The files that Attachments
// name are on the disk before the record is (Store.KeepImages).
type Input struct {
	InputID string        `json:"input_id"`
	Kind    protocol.Kind `json:"kind"`
	Command string        `json:"command"`
	Text    string        `json:"text"`
	RunID   string        `json:"run_id"`
	Key     string        `json:"key,omitzero"`

	Attachments []model.Attachment `json:"attachments,omitzero"`

	Approvals protocol.ApprovalMode `json:"approvals,omitzero"` // of the run that it starts
	Terms     Terms                 `json:"terms,omitzero"`     // of that run
	// Root is the run at the root of the tree that the run it starts belongs to, "" for itself.
	Root string `json:"root_run_id,omitzero"`
}

// Terms are what a prompt asks of the run that it starts. The zero Terms ask nothing.
type Terms struct {
	OutputSchema  jsontext.Value `json:"output_schema,omitzero"` // that its answer has to fit
	MaxCost       int64          `json:"max_cost_nano_usd,omitzero"`
	MaxModelCalls int            `json:"max_model_calls,omitzero"`

	As *model.NamedAgent `json:"as,omitzero"` // that makes the run
}

// IsZero reports that nothing is asked.
func (t Terms) IsZero() bool {
	return t.OutputSchema == nil && t.MaxCost == 0 && t.MaxModelCalls == 0 && t.As == nil
}

// CommandOutputSchema is the Command of an Input by which the daemon asks for an answer
// again that does not fit its schema.
const CommandOutputSchema = "output_schema"

// CommandOnStop is the Command of an Input that a hook has sent a run back with.
const CommandOnStop = "on_stop"

// CommandCallTool is the Command of an Input that stands for a tool call of an agent
// outside the daemon: its run makes that call and asks no model.
const CommandCallTool = "call_tool"

// Withdrawn takes back an input that was not delivered yet.
type Withdrawn struct {
	InputID string `json:"input_id"`
}

// RunStarted opens a run. Model is what answers it where the session has chosen none: the
// session keeps that from then on. Approvals is its approval mode beside the
// session's mode.
type RunStarted struct {
	RunID     string                `json:"run_id"`
	Approvals protocol.ApprovalMode `json:"approvals,omitzero"`
	Model     model.Choice          `json:"model,omitzero"`
}

// TurnStarted opens a turn over some inputs. Each stays owed until its message
// is there.
type TurnStarted struct {
	RunID    string        `json:"run_id"`
	Turn     int           `json:"turn"`
	Kind     protocol.Kind `json:"kind"`
	InputIDs []string      `json:"input_ids"`
}

// MessageStarted says that an assistant message is being streamed. It is ended by
// the MessageAdded that has its id, after a crash as well.
type MessageStarted struct {
	ID    string `json:"id"`
	RunID string `json:"run_id"`
	Model string `json:"model,omitzero"`
}

// MessageAdded appends a message to the tree, below ParentID, and moves the
// leaf to it.
type MessageAdded struct {
	ID         string            `json:"id"`
	ParentID   string            `json:"parent_id,omitzero"`
	RunID      string            `json:"run_id"`
	TurnKind   protocol.Kind     `json:"turn_kind"`
	InputID    string            `json:"input_id,omitzero"` // the input that this message delivers
	Message    model.Message     `json:"message"`
	StopReason model.StopReason  `json:"stop_reason,omitzero"`
	Usage      *model.Usage      `json:"usage,omitzero"`
	Model      string            `json:"model,omitzero"`
	Outputs    map[string]string `json:"outputs,omitzero"`
	DurationMS int64             `json:"duration_ms,omitzero"` // of the tool call that it is the result of
	NotRun     protocol.NotRun   `json:"not_run,omitzero"`     // why that call was not run, "" if it was
	Child      string            `json:"child,omitzero"`       // ChildKey of the child in the background whose end it tells
}

// ToolStarted says that a call is about to run: after a crash it may
// have done part of its work, and it is not run again.
type ToolStarted struct {
	RunID  string `json:"run_id"`
	CallID string `json:"call_id"`
	Reads  bool   `json:"reads,omitzero"` // it changes no file of the folder
}

// TurnEnded closes a turn.
type TurnEnded struct {
	RunID      string              `json:"run_id"`
	Turn       int                 `json:"turn"`
	StopReason protocol.StopReason `json:"stop_reason"`
	Code       protocol.Code       `json:"code,omitzero"`
	Error      string              `json:"error,omitzero"`
}

// AbortRequested empties the queues; the run ends next. With AtEnd set nobody is there to hand the
// texts back to, and the end of the run does.
type AbortRequested struct {
	RunID string `json:"run_id"`
	AtEnd bool   `json:"at_end,omitzero"`
}

// RunEnded closes a run and drops what it still owed. Unread is always set now;
// daemons that kept no account of what was seen did not.
type RunEnded struct {
	RunID      string              `json:"run_id"`
	StopReason protocol.StopReason `json:"stop_reason"`
	Code       protocol.Code       `json:"code,omitzero"`
	Error      string              `json:"error,omitzero"`
	Unread     bool                `json:"unread,omitzero"`
	As         string              `json:"as,omitzero"` // the named agent that made it
	// Waits says that a child in the background works on, whose result starts the next run.
	Waits bool `json:"waits,omitzero"`
	// Spent is what the run's children have used, Children how many there were below it. Counted is
	// how many children its tree has had at least.
	Spent    *model.Usage `json:"spent,omitzero"`
	Children int          `json:"children,omitzero"`
	Counted  int          `json:"counted,omitzero"`
}

// RunParked says that the run waits for a model, or that the daemon stopped on purpose with the run at a
// boundary, so that its resumption counts as no crash.
type RunParked struct {
	RunID string `json:"run_id"`
}

// RunResumed says that the run was taken up again: after a restart, or with
// Fault set by the same daemon after its disk had failed.
type RunResumed struct {
	RunID string `json:"run_id"`
	Fault bool   `json:"fault,omitzero"`
}

// ModeSet changes how a queue is taken. Kind is "steer" or "follow_up".
type ModeSet struct {
	Kind protocol.Kind `json:"kind"`
	Mode protocol.Mode `json:"mode"`
}

// ToolsSet chooses the tools a session offers.
type ToolsSet struct {
	Tools []string `json:"tools"`
}

// ModelSet chooses the model that answers; the zero Choice is the daemon's own.
// Answered is then, in the middle of a run, which one that is: it answers from here on.
type ModelSet struct {
	Model    model.Choice `json:"model"`
	Answered model.Choice `json:"answered,omitzero"`
}

// RequestRepaired says how requests to a model (Key of its Choice) have to be put
// for it to take them.
type RequestRepaired struct {
	Model  string       `json:"model"`
	Repair model.Repair `json:"repair"`
}

// EnvironmentTaken is what models learn of where the session takes place, from
// here on until it is compacted. Workdir is the folder that the text is about,
// Servers what MCP servers say of themselves.
type EnvironmentTaken struct {
	Workdir string       `json:"workdir,omitzero"`
	Text    string       `json:"text"`
	Servers []ServerSaid `json:"servers,omitempty"`
}

// ServerSaid are the instructions of an MCP server.
type ServerSaid struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Of reports that one was taken, of that folder.
func (e EnvironmentTaken) Of(workdir string) bool { return e.Text != "" && e.Workdir == workdir }

// ToolsDeferred says that from here on models learn of no tool of an MCP server,
// but for those of Offered, in that order: the tool with the name Search finds the
// others. Servers are those whose tools it finds, as its description has them.
type ToolsDeferred struct {
	Search  string   `json:"search"`
	Servers []string `json:"servers"`
	Offered []string `json:"offered"`
}

// LeafSet moves the leaf.
type LeafSet struct {
	LeafID string `json:"leaf_id"`
}

// Patched merges a tool's patch (RFC 7396) into the session's state. With Usage it says what
// a model call used that left no message, and Patch is {}: so every daemon since the
// first reads it.
type Patched struct {
	Patch jsontext.Value `json:"patch"`
	RunID string         `json:"run_id,omitzero"`
	Usage *model.Usage   `json:"usage,omitzero"`
}

// Spent is the fact that such a call was made. RunID may be empty.
func Spent(runID string, used model.Usage) Patched {
	return Patched{Patch: jsontext.Value("{}"), RunID: runID, Usage: &used}
}

// isSpent reports that a line as appendRecord writes it is one of Spent: with any other the
// patch comes to its end right away, or has something in it.
func isSpent(line []byte) bool {
	return bytes.Contains(line[:min(len(line), typeWithin+len(spentBegins))], spentBegins)
}

var spentBegins = []byte(`","data":{"patch":{},"`)

// AgentSet says what makes the session's turns, in the place of what Created says, where nothing
// has been said there: "" is the daemon's own loop.
type AgentSet struct {
	Agent string `json:"agent"`
}

// AgentSession says by which id the hosted agent knows the session from here on.
type AgentSession struct {
	ID string `json:"id"`
}

// AgentChose says which value of an option of the hosted agent's somebody has chosen.
type AgentChose struct {
	Choice model.AgentChoice `json:"choice"`
}

// AgentTook says that the hosted agent has the first of the session's user messages, so many.
type AgentTook struct {
	Texts int `json:"texts"`
}

// AgentPrompted says that the hosted agent was sent a text of the daemon's own, which is
// no message of the conversation: how a turn goes on that was cut.
type AgentPrompted struct {
	RunID string `json:"run_id"`
	Text  string `json:"text"`
}

// AssetAdded registers a tool's file.
type AssetAdded struct {
	Asset model.Asset `json:"asset"`
}

// JobStarted says that a command goes on in the background, and once more, with how, that
// it has ended. What a later daemon finds without that was stopped with its own.
type JobStarted struct {
	Job model.Job `json:"job"`
}

// Compacted appends a compaction entry, which stands for everything on its
// path before FirstKeptEntryID, and moves the leaf to it. FixedTokens are those
// that the context has beside the conversation.
type Compacted struct {
	ID               string           `json:"id"`
	ParentID         string           `json:"parent_id"`
	Summary          string           `json:"summary"`
	FirstKeptEntryID string           `json:"first_kept_entry_id"`
	TokensBefore     int64            `json:"tokens_before"`
	Trigger          protocol.Trigger `json:"trigger"`
	RunID            string           `json:"run_id,omitzero"` // the run that it happened in
	FixedTokens      int64            `json:"fixed_tokens,omitzero"`
	TokensAfter      int64            `json:"tokens_after,omitzero"` // 0 in older journals

	Usage *model.Usage `json:"usage,omitzero"` // of the call that made the summary
}

func (Created) kind() string          { return "created" }
func (TitleSet) kind() string         { return "title_set" }
func (MarkedRead) kind() string       { return "marked_read" }
func (Input) kind() string            { return "input" }
func (Withdrawn) kind() string        { return "input_withdrawn" }
func (RunStarted) kind() string       { return "run_started" }
func (TurnStarted) kind() string      { return "turn_started" }
func (MessageStarted) kind() string   { return "message_started" }
func (MessageAdded) kind() string     { return "message" }
func (ToolStarted) kind() string      { return "tool_started" }
func (TurnEnded) kind() string        { return "turn_ended" }
func (AbortRequested) kind() string   { return "abort_requested" }
func (RunEnded) kind() string         { return "run_ended" }
func (RunParked) kind() string        { return "run_parked" }
func (RunResumed) kind() string       { return "run_resumed" }
func (ModeSet) kind() string          { return "mode_set" }
func (ToolsSet) kind() string         { return "tools_set" }
func (ModelSet) kind() string         { return "model_set" }
func (RequestRepaired) kind() string  { return "request_repaired" }
func (EnvironmentTaken) kind() string { return "environment" }
func (ToolsDeferred) kind() string    { return "tools_deferred" }
func (LeafSet) kind() string          { return "leaf_set" }
func (Patched) kind() string          { return "patched" }
func (AgentSet) kind() string         { return "agent_set" }
func (AgentSession) kind() string     { return "agent_session" }
func (AgentChose) kind() string       { return "agent_chose" }
func (AgentTook) kind() string        { return "agent_took" }
func (AgentPrompted) kind() string    { return "agent_prompted" }
func (AssetAdded) kind() string       { return "asset_added" }
func (JobStarted) kind() string       { return "job_started" }
func (Compacted) kind() string        { return "compacted" }

func (Created) durable() bool          { return true }
func (TitleSet) durable() bool         { return true }
func (MarkedRead) durable() bool       { return true }
func (Input) durable() bool            { return true }
func (Withdrawn) durable() bool        { return true }
func (RunStarted) durable() bool       { return true }
func (TurnStarted) durable() bool      { return false }
func (MessageStarted) durable() bool   { return false }
func (MessageAdded) durable() bool     { return false }
func (ToolStarted) durable() bool      { return true }
func (TurnEnded) durable() bool        { return false }
func (AbortRequested) durable() bool   { return true }
func (RunEnded) durable() bool         { return true }
func (RunParked) durable() bool        { return true }
func (RunResumed) durable() bool       { return true }
func (ModeSet) durable() bool          { return true }
func (ToolsSet) durable() bool         { return true }
func (ModelSet) durable() bool         { return true }
func (RequestRepaired) durable() bool  { return false }
func (EnvironmentTaken) durable() bool { return false }
func (ToolsDeferred) durable() bool    { return false }
func (LeafSet) durable() bool          { return true }
func (Patched) durable() bool          { return false }
func (AgentSet) durable() bool         { return true }
func (AgentSession) durable() bool     { return true }
func (AgentChose) durable() bool       { return true }
func (AgentTook) durable() bool        { return false }
func (AgentPrompted) durable() bool    { return false }
func (AssetAdded) durable() bool       { return false }
func (JobStarted) durable() bool       { return false }
func (Compacted) durable() bool        { return true }

type recordLine struct {
	V    int            `json:"v"`
	At   time.Time      `json:"at"`
	Type string         `json:"type"`
	Data jsontext.Value `json:"data"`
}

// appendRecord appends the LF-ended line of r. Text that is not valid UTF-8 is
// mended with U+FFFD.
func appendRecord(out []byte, r Record) ([]byte, error) {
	before := len(out)
	out = append(out, `{"v":1,"at":"`...)
	out = r.At.UTC().AppendFormat(out, time.RFC3339Nano)
	out = append(out, `","type":"`...)
	out = append(out, r.Fact.kind()...)
	out = append(out, `","data":`...)
	out, err := appendFact(out, r.Fact)
	if err != nil {
		return out[:before], fmt.Errorf("encode %s: %w", r.Fact.kind(), err)
	}
	return append(out, "}\n"...), nil
}

// longText is the size, in bytes, of a text that is worth no further copy.
const longText = 16 << 10

func appendFact(out []byte, f Fact) ([]byte, error) {
	text := ""
	switch f := f.(type) {
	case Input:
		text = f.Text
	case MessageAdded:
		text = f.Message.Text
	}
	if len(text) > longText {
		buf := bytes.NewBuffer(slices.Grow(out, protocol.QuotedSize(text)+longText)) // enough not to be copied
		err := json.MarshalWrite(buf, f, jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
		return buf.Bytes(), err
	}
	data, err := json.Marshal(f, jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	return append(out, data...), err
}

// decodeRecord reads one line without its LF.
func decodeRecord(line []byte) (Record, error) {
	if rec, ok := decodeOwn(line); ok {
		return rec, nil
	}
	var l recordLine
	if err := json.Unmarshal(line, &l); err != nil {
		return Record{}, err
	}
	if l.V > recordVersion {
		return Record{}, fmt.Errorf("%w: its records have version %d", errNewer, l.V)
	}
	if err := timeFits(l.At); err != nil {
		return Record{}, err
	}
	decode := decoders[l.V][l.Type]
	switch {
	case decode != nil:
	case l.V == recordVersion && isType(l.Type):
		return Record{}, fmt.Errorf("record type %.40q: %w", l.Type, ErrReadOnly)
	default:
		return Record{}, fmt.Errorf("record type %.40q of version %d is not known", l.Type, l.V)
	}
	fact, err := decode(l.Data)
	return Record{l.At, fact}, err
}

// decodeOwn reads a line as appendRecord writes it, without a copy of its data. False:
// it is another one, or has something wrong.
func decodeOwn(line []byte) (Record, bool) {
	at, kind, ok := headOf(line)
	if !ok || timeFits(at) != nil {
		return Record{}, false
	}
	_, data, ok := bytes.Cut(line[:min(len(line)-1, typeWithin+len(dataKey))], dataKey)
	if !ok {
		return Record{}, false
	}
	start := min(len(line)-1, typeWithin+len(dataKey)) - len(data)
	fact, err := decoders[recordVersion][kind](line[start : len(line)-1])
	return Record{at, fact}, err == nil
}

// dataKey follows the type.
var dataKey = []byte(`","data":`)

// isType reports that a record's type is a word, as those are that later versions may
// add: of what else stands there a byte has been changed.
func isType(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }) < 0
}

// decoders are those of every version there has been, by record type. A new
// version gets a table of its own, in which what has changed is decoded into the
// facts of today; the tables of old versions stay, and so do the journals in
// testdata that they are tested with.
var decoders = map[int]map[string]func(jsontext.Value) (Fact, error){1: {
	"created":          decodeFact[Created],
	"title_set":        decodeFact[TitleSet],
	"marked_read":      decodeFact[MarkedRead],
	"input":            decodeFact[Input],
	"input_withdrawn":  decodeFact[Withdrawn],
	"run_started":      decodeFact[RunStarted],
	"turn_started":     decodeFact[TurnStarted],
	"message_started":  decodeFact[MessageStarted],
	"message":          decodeMessage,
	"tool_started":     decodeFact[ToolStarted],
	"turn_ended":       decodeFact[TurnEnded],
	"abort_requested":  decodeFact[AbortRequested],
	"run_ended":        decodeFact[RunEnded],
	"run_parked":       decodeFact[RunParked],
	"run_resumed":      decodeFact[RunResumed],
	"mode_set":         decodeFact[ModeSet],
	"tools_set":        decodeFact[ToolsSet],
	"model_set":        decodeFact[ModelSet],
	"request_repaired": decodeFact[RequestRepaired],
	"environment":      decodeFact[EnvironmentTaken],
	"tools_deferred":   decodeFact[ToolsDeferred],
	"leaf_set":         decodeFact[LeafSet],
	"patched":          decodeFact[Patched],
	"agent_set":        decodeFact[AgentSet],
	"agent_session":    decodeFact[AgentSession],
	"agent_chose":      decodeFact[AgentChose],
	"agent_took":       decodeFact[AgentTook],
	"agent_prompted":   decodeFact[AgentPrompted],
	"asset_added":      decodeFact[AssetAdded],
	"job_started":      decodeFact[JobStarted],
	"compacted":        decodeFact[Compacted],

	"approval_asked":    decodeFact[ApprovalAsked],
	"approval_decided":  decodeFact[ApprovalDecided],
	"approval_mode_set": decodeFact[ApprovalModeSet],
	"rule_kept":         decodeFact[RuleKept],

	"turn_changed": decodeFact[TurnChanged],
	"rewind_begun": decodeFact[RewindBegun],
	"rewind_ended": decodeFact[RewindEnded],

	"child_started": decodeFact[ChildStarted],
	"child_ended":   decodeFact[ChildEnded],
}}

func decodeFact[F Fact](data jsontext.Value) (Fact, error) {
	var f F
	err := json.Unmarshal(data, &f)
	return f, err
}

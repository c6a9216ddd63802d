package session

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
)

// keyLifetime is how long an idempotency key answers (wire-v1 §3).
const keyLifetime = 24 * time.Hour

// Entry is one node of a session's tree: a message, or with Compaction set a
// compaction. Never changed once made.
type Entry struct {
	MessageAdded
	CreatedAt  time.Time
	Compaction *Compacted

	encoded atomic.Pointer[[]byte]
}

// Encoded returns what encode makes of the entry. It is asked once, as the entry
// never changes; whoever encodes entries has to do it in one way only.
func (e *Entry) Encoded(encode func(*Entry) ([]byte, error)) ([]byte, error) {
	if text := e.encoded.Load(); text != nil {
		return *text, nil
	}
	text, err := encode(e)
	if err == nil {
		e.encoded.Store(&text)
	}
	return text, err
}

// Run is a run that has not ended.
type Run struct {
	ID       string
	Began    time.Time
	Turn     int           // of the latest turn, from 1
	Kind     protocol.Kind // of the latest turn
	TurnOpen bool
	Ended    TurnEnded      // the latest turn's end, once it has ended
	Inputs   []string       // ids that the latest turn is to deliver
	Fresh    bool           // the open turn has no message yet
	Steps    int            // assistant messages in the open turn
	Open     MessageStarted // the assistant message that was begun and has no end yet, if any
	Aborting bool
	Usage    model.Usage
	// Calls are those of the latest assistant message that have no result yet;
	// Started is the one of them whose start was recorded, if any.
	Calls     []model.ToolCall
	Started   string
	StartedAt time.Time
	// Crashes counts resumptions without a parking before them; Parked says that
	// the next one is none. Faults counts those after a disk fault since the run
	// has got on.
	Crashes int
	Faults  int
	Parked  bool
	// Output is the text of the latest assistant message, Stop why that ended.
	Output string
	Stop   model.StopReason

	Approvals protocol.ApprovalMode // of this run; "": the session's mode alone
	Question  *Question             // that was asked, until what it is about has begun or will not
	Granted   Used                  // when somebody last let it go on past a limit
}

// Ended is a run that has ended: what its agent_end said of it.
type Ended struct {
	RunEnded
	Turns int
	Usage model.Usage
	Took  time.Duration // from its start on, the time without a daemon included
}

// Accepted is what an idempotency key answers. Ended is set once the run of a
// prompt has.
type Accepted struct {
	Input
	At    time.Time
	Ended *RunEnded
}

// State is a session, folded from its facts. Read it as you like; change it
// through Apply.
type State struct {
	ID, Title, ParentID  string
	Workdir              string         // "": that of the daemon
	Servers              []model.Server // for this session alone
	CreatedAt, UpdatedAt time.Time
	Unread               bool   // a run has ended since somebody looked
	Said                 string // the last line of the latest answer, shortened

	Leaf         string
	SteeringMode protocol.Mode
	FollowUpMode protocol.Mode
	Tools        []string // active tools; meaningful when ToolsChosen
	ToolsChosen  bool
	Model        model.Choice // zero: the daemon's own
	Pending      []Input      // accepted and not yet delivered, in order
	Run          *Run         // nil while idle
	LastRun      RunEnded     // the run that ended last, if any
	Assets       []model.Asset
	Jobs         []model.Job // that were started, the newest of them
	Usage        model.Usage
	Messages     int
	Repairs      map[string]model.Repair // by the model's Key
	Environment  EnvironmentTaken        // zero where none was taken since the session began, or was compacted
	Deferred     ToolsDeferred           // zero where models are told of all tools

	entries map[string]*Entry
	order   []*Entry
	ended   map[string]Ended // by run
	keys    map[string]Accepted
	path    path // of Leaf

	ApprovalMode protocol.ApprovalMode
	Answers      []jsontext.Value  // rules that questions were answered with for this session
	Asked        int               // questions
	Unkept       []ApprovalDecided // whose Keep may not have been done

	patched    document
	assetsSize int
	decided    []ApprovalDecided // the newest
}

// NewState returns the empty session that the first fact is applied to.
func NewState() *State {
	return &State{
		SteeringMode: protocol.ModeOneAtATime, FollowUpMode: protocol.ModeOneAtATime, ApprovalMode: protocol.ApprovalsAsk,
		entries: map[string]*Entry{}, ended: map[string]Ended{}, keys: map[string]Accepted{},
	}
}

// Apply folds one fact in. An error means that the fact does not fit what came
// before it, and that nothing changed.
func (s *State) Apply(r Record) error {
	switch f := r.Fact.(type) {
	case Created:
		s.ID, s.Title, s.ParentID, s.Workdir, s.CreatedAt = f.SessionID, f.Title, f.ParentID, f.Workdir, r.At
		s.Servers = f.Servers
	case TitleSet:
		s.Title = f.Title
	case MarkedRead:
		s.Unread = false
		return nil // the session is as it was
	case Input:
		s.applyInput(f, r.At)
	case MessageAdded:
		f.Message.Opens = s.Run != nil && s.Run.Fresh
		if err := s.add(&Entry{MessageAdded: f, CreatedAt: r.At}); err != nil {
			return err
		}
		s.applyMessage(f)
	case Compacted:
		if s.entries[f.FirstKeptEntryID] == nil {
			return fmt.Errorf("compaction keeps unknown entry %q", f.FirstKeptEntryID)
		}
		e := &Entry{MessageAdded: MessageAdded{ID: f.ID, ParentID: f.ParentID}, CreatedAt: r.At, Compaction: &f}
		if err := s.add(e); err != nil {
			return err
		}
		s.spend(f.RunID, f.Usage)
		s.Environment = EnvironmentTaken{}
	case EnvironmentTaken:
		s.Environment = f
	case ToolsDeferred:
		s.Deferred = f
	case LeafSet:
		if s.entries[f.LeafID] == nil {
			return fmt.Errorf("leaf moved to unknown entry %q", f.LeafID)
		}
		s.Leaf, s.path = f.LeafID, s.pathTo(f.LeafID)
	case ModeSet:
		if f.Kind == protocol.KindSteer {
			s.SteeringMode = f.Mode
		} else {
			s.FollowUpMode = f.Mode
		}
	case ToolsSet:
		s.Tools, s.ToolsChosen = f.Tools, true
	case ModelSet:
		s.Model = f.Model
	case RequestRepaired:
		if s.Repairs == nil {
			s.Repairs = map[string]model.Repair{}
		}
		s.Repairs[f.Model] = f.Repair
	case Patched:
		if err := s.patched.merge(f.Patch); err != nil {
			return err
		}
	case JobStarted:
		s.addJob(f.Job)
	case AssetAdded:
		s.Assets, s.assetsSize = append(s.Assets, f.Asset), s.assetsSize+AssetSize(f.Asset)
	case RunStarted:
		s.Run = &Run{ID: f.RunID, Began: r.At, Approvals: f.Approvals}
	case ApprovalModeSet:
		s.ApprovalMode = f.Mode
	case RuleKept:
		s.kept(f.ApprovalID)
	default:
		if err := s.applyRun(r.Fact, r.At); err != nil {
			return err
		}
	}
	if r.At.After(s.UpdatedAt) { // a branch's entries are older than itself
		s.UpdatedAt = r.At
	}
	return nil
}

func (s *State) applyInput(f Input, at time.Time) {
	s.Pending = append(s.Pending, f)
	if s.Title == "" {
		s.Title = titleOf(f.Text)
	}
	if f.Key == "" {
		return
	}
	for k, old := range s.keys {
		if at.Sub(old.At) > keyLifetime {
			delete(s.keys, k)
		}
	}
	s.keys[f.Key] = Accepted{Input: f, At: at}
}

func (s *State) applyMessage(f MessageAdded) {
	s.Messages++
	if f.InputID != "" {
		s.settle(f.InputID)
	}
	if f.Message.Role == model.Assistant && f.Message.Text != "" {
		s.Said = LastLine(f.Message.Text)
	}
	s.spend(f.RunID, f.Usage)
	run := s.Run
	if run == nil || run.ID != f.RunID {
		return
	}
	run.Fresh = false
	if f.StopReason != model.StopError { // else it may be the disk that does not let it end
		run.Faults = 0
	}
	switch f.Message.Role {
	case model.Assistant:
		run.Open = MessageStarted{}
		run.Steps++
		run.Calls, run.Output, run.Stop = f.Message.ToolCalls, f.Message.Text, f.StopReason
	case model.Tool:
		run.Started = ""
		run.past(f.Message.ToolCallID)
		run.Calls = slices.DeleteFunc(slices.Clone(run.Calls), func(c model.ToolCall) bool { return c.ID == f.Message.ToolCallID })
	}
}

// settle ends the waiting of an input.
func (s *State) settle(inputID string) {
	s.Pending = slices.DeleteFunc(slices.Clone(s.Pending), func(in Input) bool { return in.InputID == inputID })
}

// spend adds to what the session and its run have used.
func (s *State) spend(runID string, used *model.Usage) {
	if used == nil {
		return
	}
	s.Usage = s.Usage.Add(*used)
	if s.Run != nil && s.Run.ID == runID {
		s.Run.Usage = s.Run.Usage.Add(*used)
	}
}

// applyRun folds the facts that only make sense while a run is active.
func (s *State) applyRun(fact Fact, at time.Time) error {
	run := s.Run
	if run == nil {
		return fmt.Errorf("%s without an active run", fact.kind())
	}
	switch f := fact.(type) {
	case TurnStarted:
		run.Turn, run.Kind, run.TurnOpen, run.Inputs, run.Steps = f.Turn, f.Kind, true, f.InputIDs, 0
		run.Calls, run.Started, run.Fresh, run.Question = nil, "", true, nil
	case MessageStarted:
		run.Open = f
	case ToolStarted:
		run.Started, run.StartedAt = f.CallID, at
		run.past(f.CallID)
	case ApprovalAsked:
		return s.ask(f, at)
	case ApprovalDecided:
		return s.decide(f)
	case TurnEnded:
		run.TurnOpen, run.Ended, run.Question = false, f, nil
	case Withdrawn:
		s.settle(f.InputID)
	case AbortRequested:
		run.Aborting, s.Pending = true, nil
	case RunParked:
		run.Parked = true
	case RunResumed:
		switch {
		case f.Fault:
			run.Faults++
		case !run.Parked && (run.Question == nil || run.Question.Form()): // a run that waits has done nothing that could crash a daemon
			run.Crashes++
		}
		run.Parked = false
	case RunEnded:
		s.ended[f.RunID] = Ended{RunEnded: f, Turns: run.Turn, Usage: run.Usage, Took: at.Sub(run.Began)}
		s.Run, s.Pending, s.LastRun, s.Unread = nil, nil, f, f.Unread
		for k, a := range s.keys {
			if a.RunID == f.RunID {
				a.Ended = &f
				s.keys[k] = a
			}
		}
	}
	return nil
}

// adopt hangs a message or a compaction whose parent is missing, because the
// parent's line cannot be read, below the leaf, so that one bad line does not
// cost all that follows. False: that is not what is wrong.
func (s *State) adopt(r Record) (Record, bool) {
	switch f := r.Fact.(type) {
	case MessageAdded:
		if f.ParentID != "" && s.entries[f.ParentID] == nil {
			f.ParentID = s.Leaf
			return Record{r.At, f}, true
		}
	case Compacted:
		if f.ParentID != "" && s.entries[f.ParentID] == nil {
			f.ParentID = s.Leaf
			return Record{r.At, f}, true
		}
	}
	return r, false
}

// Entry returns the entry with that id, or nil.
func (s *State) Entry(id string) *Entry { return s.entries[id] }

// Ended returns how a run of this session ended; false where it has not, or was
// one of the session that this one was branched from.
func (s *State) Ended(runID string) (Ended, bool) {
	e, ok := s.ended[runID]
	return e, ok
}

// Entries returns every entry in the order they were made.
func (s *State) Entries() []*Entry { return s.order[:len(s.order):len(s.order)] }

// Key returns what a client's idempotency key was answered with, if it still
// counts at that time.
func (s *State) Key(key string, now time.Time) (Accepted, bool) {
	a, ok := s.keys[key]
	return a, ok && now.Sub(a.At) <= keyLifetime
}

// RunOutput is the last assistant text on the tree of a run, for a client that
// asks for an ended run by its idempotency key.
func (s *State) RunOutput(runID string) string {
	for _, e := range slices.Backward(s.order) {
		if e.RunID == runID && e.Message.Role == model.Assistant {
			return e.Message.Text
		}
	}
	return ""
}

// Tokens estimates the size of messages, at four bytes a token. Thinking counts
// where it goes back to its maker, with the blocks; what the maker attached to
// those, encrypted and encoded, at eight bytes.
func Tokens(messages []model.Message) int64 {
	var n int64
	for _, m := range messages {
		n += attachedTokens(&m) + messageTokens + int64(len(m.Text)+3)/4 + imageTokens*int64(len(m.Attachments))
		if len(m.Blocks) > 0 {
			n += int64(len(m.Thinking)+3) / 4
		}
		for _, c := range m.ToolCalls {
			n += int64(len(c.Name)+len(c.Arguments)+3) / 4
		}
	}
	return n
}

// Bytes is how much messages hold, images aside.
func Bytes(messages []model.Message) (n int) {
	for i := range messages {
		m := &messages[i]
		n += len(m.Text) + len(m.Thinking)
		for _, b := range m.Blocks {
			n += len(b.Data)
		}
		for _, c := range m.ToolCalls {
			n += len(c.Name) + len(c.Arguments)
		}
	}
	return n
}

// attachedTokens is for what a maker attached beyond what the message says
// anyway: some attach a whole item to its text.
func attachedTokens(m *model.Message) int64 {
	n := -len(m.Text) - len(m.Thinking)
	for _, b := range m.Blocks {
		n += len(b.Data)
	}
	for _, c := range m.ToolCalls {
		n -= len(c.Arguments)
	}
	return int64(max(0, n)) / 8
}

func (p *path) add(e *Entry) {
	p.entries = append(p.entries, e)
	if e.Compaction != nil {
		p.append(model.Message{Role: model.User, Text: e.Compaction.Summary, Summary: true})
		p.estimated += Tokens(p.messages)
		p.fixed = e.Compaction.FixedTokens
		return
	}
	if p.broken && e.Message.Role == model.Assistant { // the answer that is given in its place
		n := len(p.messages) - 1
		p.estimated -= Tokens(p.messages[n:])
		p.messages = slices.Clone(p.messages[:n]) // others may look at what was there
	}
	before := len(p.messages)
	p.append(e.Message)
	p.broken = e.StopReason == model.StopError && e.Message.Role == model.Assistant && len(p.messages) > before
	p.estimated += Tokens([]model.Message{e.Message})
	if e.Usage != nil && e.Usage.InputTokens > 0 {
		p.fixed = max(0, e.Usage.InputTokens+e.Usage.OutputTokens-p.estimated)
	}
}

// FirstLine is the first line of a text, in at most so many characters.
func FirstLine(text string, most int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(line); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return line
}

// lastLine bounds what a list shows of an answer, in characters, and how far back
// LastLine looks, in bytes.
const (
	lastLine     = 120
	lastLineLook = 4 << 10
)

// LastLine is the last line of a text that says something, in at most 120
// characters. It costs the same however long the text is.
func LastLine(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text[max(0, len(text)-lastLineLook):], ""))
	return FirstLine(text[strings.LastIndexByte(text, '\n')+1:], lastLine)
}

// maxJobs is how many of its jobs a session remembers.
const maxJobs = 16

// addJob remembers a job, in place of one that had its id before.
func (s *State) addJob(j model.Job) {
	s.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(old model.Job) bool { return old.ID == j.ID })
	s.Jobs = append(s.Jobs[max(0, len(s.Jobs)-maxJobs+1):], j)
}

package session

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
)

// keyLifetime is how long an idempotency key answers (wire-v1 §3).
const keyLifetime = 24 * time.Hour

// Run is a run that has not ended.
type Run struct {
	ID       string
	Began    time.Time
	Turn     int           // of the latest turn, from 1
	Kind     protocol.Kind // of the latest turn
	TurnOpen bool
	// Damaged says that a line cannot be read which was written since the calls below were
	// asked for: one of them may have been started, or not be allowed.
	Damaged  bool
	Ended    TurnEnded      // the latest turn's end, once it has ended
	Inputs   []string       // ids that the latest turn is to deliver
	Fresh    bool           // the open turn has no message yet
	Steps    int            // assistant messages in the open turn
	Open     MessageStarted // the assistant message that was begun and has no end yet, if any
	Said     Piece          // what a former daemon has announced of it
	Asked    bool           // a message was begun, and no entry made since
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
	SentBack  bool                  `json:",omitzero"` // a hook did not let it end

	Terms      Terms `json:",omitzero"`
	Answers    int   `json:",omitzero"` // assistant messages
	AskedAgain int   `json:",omitzero"` // times that an answer was asked for again that does not fit its schema
}

// Ended is a run that has ended: what its agent_end said of it.
type Ended struct {
	RunEnded
	Turns int
	Usage model.Usage
	Took  time.Duration // from its start on, the time without a daemon included

	after int // so many entries

	encoded encoding
}

// Encoded returns what encode makes of it, as Body.Encoded does.
func (e *Ended) Encoded(encode func(*Ended) ([]byte, error)) ([]byte, error) {
	return e.encoded.of(func() ([]byte, error) { return encode(e) })
}

// encoding is what something that never changes is in JSON, made once.
type encoding struct{ text atomic.Pointer[[]byte] }

func (e *encoding) of(encode func() ([]byte, error)) ([]byte, error) {
	if text := e.text.Load(); text != nil {
		return *text, nil
	}
	text, err := encode()
	if err == nil {
		e.text.Store(&text)
	}
	return text, err
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
	ReadOnly             error  // why nothing may be written to the journal; it is of ErrReadOnly
	Unread               bool   // a run has ended since somebody looked
	Said                 string // the last line of the latest answer, shortened

	Leaf         string
	SteeringMode protocol.Mode
	FollowUpMode protocol.Mode
	Tools        []string // active tools; meaningful when ToolsChosen
	ToolsChosen  bool
	Model        model.Choice // that was chosen; zero: none
	Answered     model.Choice // the daemon's own model at the time, which answered last
	Pending      []Input      // accepted and not yet delivered, in order
	Run          *Run         // nil while idle
	LastRun      RunEnded     // the run that ended last, if any
	Assets       []model.Asset
	Jobs         []model.Job // that were started, the newest of them
	Usage        model.Usage
	Messages     int
	Repairs      map[string]model.Repair // by the model's Key
	Environment  EnvironmentTaken        // zero where none was taken since the session began, or was compacted
	Deferred     ToolsDeferred           // zero where models learn of all tools

	order   []*Entry
	entries map[string]*Entry // the first of them, so many; Entry adds the others
	found   int
	ended   []*Ended
	endedAt map[string]int // the first of them, by run, so many; Ended adds the others

	foundEnded int

	keys  map[string]Accepted
	path  path                        // of Leaf
	named map[string]model.Attachment // that messages name, by file

	held      []*Entry // whose bodies are in memory, in their order
	heldBytes int
	shared    *atomic.Int64 // what all sessions hold; nil: this one is not counted

	ApprovalMode protocol.ApprovalMode
	Answers      []jsontext.Value  // rules that questions were answered with for this session
	Asked        int               // questions
	Unkept       []ApprovalDecided // whose Keep may not have been done

	patched    document
	assetsSize int
	decided    []ApprovalDecided // the newest

	applied int // facts
}

// NewState returns the empty session that the first fact is applied to.
func NewState() *State {
	return &State{
		SteeringMode: protocol.ModeOneAtATime, FollowUpMode: protocol.ModeOneAtATime, ApprovalMode: protocol.ApprovalsAsk,
		keys: map[string]Accepted{},
	}
}

// Apply folds one fact in. An error means that the fact does not fit what came
// before it, and that nothing changed.
func (s *State) Apply(r Record) error {
	err := s.apply(r)
	if err == nil {
		s.applied++
	}
	return err
}

func (s *State) apply(r Record) error {
	if c, ok := r.Fact.(copied); ok {
		b := c.entry.Body()
		if b == nil {
			return fmt.Errorf("entry %.128s is in the journal alone", c.entry.ID)
		}
		r = b.record()
	}
	if err := s.fits(r.Fact); err != nil {
		return err
	}
	switch f := r.Fact.(type) {
	case Created:
		s.ID, s.Title, s.ParentID, s.Workdir, s.CreatedAt = f.SessionID, f.Title, f.ParentID, f.Workdir, r.At
		s.Servers = f.Servers
	case MarkedRead:
		s.Unread = false
		return nil // the session is as it was
	case Input:
		s.applyInput(f, r.At)
	case MessageAdded:
		f.Message.Opens = s.Run != nil && s.Run.Fresh
		if err := s.add(&Body{MessageAdded: f, CreatedAt: r.At}); err != nil {
			return err
		}
		s.applyMessage(f)
	case Compacted:
		if s.Entry(f.FirstKeptEntryID) == nil {
			return fmt.Errorf("compaction keeps unknown entry %q", f.FirstKeptEntryID)
		}
		if err := s.add(bodyOf(r)); err != nil {
			return err
		}
		s.spend(f.RunID, f.Usage)
		s.Environment = EnvironmentTaken{}
	case EnvironmentTaken:
		s.Environment = f
	case LeafSet:
		if s.Entry(f.LeafID) == nil {
			return fmt.Errorf("leaf moved to unknown entry %q", f.LeafID)
		}
		s.Leaf, s.path = f.LeafID, s.pathTo(f.LeafID)
	case Patched:
		if err := s.patched.merge(f.Patch); err != nil {
			return err
		}
		s.spend(f.RunID, f.Usage)
	case JobStarted:
		s.addJob(f.Job)
	case AssetAdded:
		s.Assets, s.assetsSize = append(s.Assets, f.Asset), s.assetsSize+AssetSize(f.Asset)
	case RunStarted:
		s.Run = &Run{ID: f.RunID, Began: r.At, Approvals: f.Approvals, Terms: s.termsOf(f.RunID)}
		if f.Model != (model.Choice{}) {
			s.Answered = f.Model
		}
	case RuleKept:
		s.kept(f.ApprovalID)
	default:
		if s.applySetting(r.Fact) {
			break
		}
		if err := s.applyRun(r.Fact, r.At); err != nil {
			return err
		}
	}
	if r.At.After(s.UpdatedAt) { // a branch's entries are older than itself
		s.UpdatedAt = r.At
	}
	return nil
}

// applySetting reports whether a fact is one of what the session is set to.
func (s *State) applySetting(fact Fact) bool {
	switch f := fact.(type) {
	case TitleSet:
		s.Title = f.Title
	case ToolsDeferred:
		s.Deferred = f
	case ModeSet:
		if f.Kind == protocol.KindSteer {
			s.SteeringMode = f.Mode
		} else {
			s.FollowUpMode = f.Mode
		}
	case ToolsSet:
		s.Tools, s.ToolsChosen = f.Tools, true
	case ModelSet:
		s.Model, s.Answered = f.Model, f.Answered
	case RequestRepaired:
		if s.Repairs == nil {
			s.Repairs = map[string]model.Repair{}
		}
		s.Repairs[f.Model] = f.Repair
	case ApprovalModeSet:
		s.ApprovalMode = f.Mode
	default:
		return false
	}
	return true
}

// termsOf are those of the prompt that a run is for, which waits until it is delivered.
func (s *State) termsOf(runID string) Terms {
	for _, in := range s.Pending {
		if in.RunID == runID && in.Kind == protocol.KindPrompt {
			return in.Terms
		}
	}
	return Terms{}
}

func (s *State) applyInput(f Input, at time.Time) {
	s.Pending = append(s.Pending, f)
	switch of := s.Run != nil && f.RunID == s.Run.ID; {
	case of && f.Command == CommandOutputSchema:
		s.Run.AskedAgain++
	case of && f.Command == CommandOnStop:
		s.Run.SentBack = true
	}
	if s.Title == "" {
		s.Title = strings.Clone(titleOf(f.Text))
	}
	if f.Key == "" {
		return
	}
	for k, old := range s.keys {
		if at.Sub(old.At) > keyLifetime {
			delete(s.keys, k)
		}
	}
	f.Text, f.Attachments, f.Terms = "", nil, Terms{} // nobody asks for them
	s.keys[f.Key] = Accepted{Input: f, At: at}
}

func (s *State) applyMessage(f MessageAdded) {
	s.Messages++
	if f.InputID != "" {
		s.settle(f.InputID)
	}
	if f.Message.Role == model.Assistant && f.Message.Text != "" {
		s.Said = strings.Clone(LastLine(f.Message.Text)) // not all of the text
	}
	s.spend(f.RunID, f.Usage)
	run := s.Run
	if run == nil || run.ID != f.RunID {
		return
	}
	run.Fresh, run.Asked = false, false
	if f.ID == run.Open.ID {
		run.Open, run.Said = MessageStarted{}, Piece{}
	}
	if f.StopReason != model.StopError { // else it may be the disk that does not let it end
		run.Faults = 0
	}
	switch f.Message.Role {
	case model.Assistant:
		run.Open, run.Said = MessageStarted{}, Piece{}
		run.Steps++
		run.Answers++
		run.Damaged = false
		run.Calls, run.Output, run.Stop = f.Message.ToolCalls, f.Message.Text, f.StopReason
	case model.Tool:
		run.Started = ""
		run.past(f.Message.ToolCallID)
		run.Calls = slices.DeleteFunc(slices.Clone(run.Calls), func(c model.ToolCall) bool {
			return c.ID == f.Message.ToolCallID
		})
	}
}

// begun are calls without the arguments of the one that has begun: they may be long, and
// the caller has them.
func begun(calls []model.ToolCall, id string) []model.ToolCall {
	i := slices.IndexFunc(calls, func(c model.ToolCall) bool { return c.ID == id })
	if i >= 0 {
		calls = slices.Clone(calls) // the entry has them too
		calls[i].Arguments = nil
	}
	return calls
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
		run.Damaged = false
	case MessageStarted:
		run.Open, run.Asked, run.Parked = f, true, false
	case ToolStarted:
		run.Started, run.StartedAt = f.CallID, at
		run.past(f.CallID)
		run.Calls = begun(run.Calls, f.CallID)
	case ApprovalAsked:
		return s.openApproval(f, at)
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
		// a run that waits has done nothing that could crash a daemon
		case !run.Parked && (run.Question == nil || run.Question.Form()):
			run.Crashes++
		}
		run.Parked = false
		run.Open, run.Said = MessageStarted{}, Piece{} // what came of it stands before this
	case RunEnded:
		s.ended = append(s.ended, &Ended{
			RunEnded: f, Turns: run.Turn, Usage: run.Usage, Took: at.Sub(run.Began),
			after: len(s.order),
		})
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
		if f.ParentID != "" && s.Entry(f.ParentID) == nil {
			f.ParentID = s.Leaf
			return Record{r.At, f}, true
		}
	case Compacted:
		if f.ParentID != "" && s.Entry(f.ParentID) == nil {
			f.ParentID = s.Leaf
			return Record{r.At, f}, true
		}
	}
	return r, false
}

// Entry returns the entry with that id, or nil.
func (s *State) Entry(id string) *Entry {
	n := len(s.order)
	switch {
	case id == "":
		return nil
	case n > 0 && s.order[n-1].ID == id: // as nearly always
		return s.order[n-1]
	}
	if s.entries == nil {
		s.entries = make(map[string]*Entry, n)
	}
	for _, e := range s.order[s.found:] {
		s.entries[e.ID] = e
	}
	s.found = n
	return s.entries[id]
}

// Ended returns how a run of this session ended; false where it has not, or was
// one of the session that this one was branched from.
func (s *State) Ended(runID string) (*Ended, bool) {
	if s.endedAt == nil {
		s.endedAt = make(map[string]int, len(s.ended))
	}
	for n := s.foundEnded; n < len(s.ended); n++ {
		s.endedAt[s.ended[n].RunID] = n
	}
	s.foundEnded = len(s.ended)
	if n, ok := s.endedAt[runID]; ok {
		return s.ended[n], true
	}
	return nil, false
}

// Entries returns every entry in the order they were made.
func (s *State) Entries() []*Entry { return s.order[:len(s.order):len(s.order)] }

// Key returns what a client's idempotency key was answered with, if it still
// counts at that time.
func (s *State) Key(key string, now time.Time) (Accepted, bool) {
	a, ok := s.keys[key]
	return a, ok && now.Sub(a.At) <= keyLifetime
}

// RunOutput is the entry of the last assistant text on the tree of a run, for a client
// that asks for an ended run by its idempotency key; nil where there is none.
func (s *State) RunOutput(runID string) *Entry {
	for _, e := range slices.Backward(s.order) {
		if e.RunID == runID && e.Role == model.Assistant {
			return e
		}
	}
	return nil
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
	before := (*Entry)(nil)
	if n := len(p.entries); n > 0 {
		before = p.entries[n-1]
	}
	p.entries, p.lent = append(p.entries, e), nil
	if b := e.body.Load(); b == nil {
		p.forget()
	} else if !p.shed {
		p.history.add(before, e, b)
	}
	if e.IsCompaction() {
		p.estimated += e.tokens
		p.fixed = e.counted
		return
	}
	if e.replaces(before) {
		p.estimated -= before.tokens
	}
	p.estimated += e.tokens
	if e.counted > 0 {
		p.fixed = max(0, e.counted-p.estimated)
	}
}

// forget leaves the messages to the journal.
func (p *path) forget() { p.shed, p.history, p.lent = true, history{}, nil }

// has reports that an entry may be on the path: it is not older than all of it.
func (p *path) has(e *Entry) bool {
	for _, first := range p.entries[:min(2, len(p.entries))] { // a compaction is younger than what it keeps
		if e.n >= first.n {
			return true
		}
	}
	return false
}

// ends reports that a path which ends there is to have that answer anew.
func (e *Entry) ends() bool { return e != nil && e.broken && e.says }

// replaces reports that an answer stands in the place of the one before it, which broke
// off.
func (e *Entry) replaces(before *Entry) bool { return e.Role == model.Assistant && before.ends() }

// add adds an entry behind another.
func (h *history) add(before, e *Entry, b *Body) {
	switch {
	case e.IsCompaction():
		h.append(messageOf(b.Compaction))
		return
	case e.replaces(before):
		h.takeBack()
		h.messages = slices.Clone(h.messages) // others may look at what was there
	}
	h.append(b.Message)
}

// FirstLine is the first line of a text, in at most so many characters.
func FirstLine(text string, most int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return format.Fit(line, most)
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
	text = strings.TrimSpace(format.CutStart(text, lastLineLook))
	return FirstLine(text[strings.LastIndexByte(text, '\n')+1:], lastLine)
}

// maxJobs is how many of its jobs a session remembers.
const maxJobs = 16

// addJob remembers a job, in place of one that had its id before.
func (s *State) addJob(j model.Job) {
	s.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(old model.Job) bool { return old.ID == j.ID })
	s.Jobs = append(s.Jobs[max(0, len(s.Jobs)-maxJobs+1):], j)
}

package session

import (
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
	Changing bool `json:",omitzero"` // a call of the turn was started that may change files
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
	Skips     bool `json:",omitzero"` // a steer waited when a call of the latest turn ended: the others are skipped
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
	Granted   Used                  // when somebody was last asked who let it go on past a limit
	GrantedAt time.Time             `json:",omitzero"` // when that was
	SentBack  bool                  `json:",omitzero"` // a hook did not let it end
	Outside   bool                  `json:",omitzero"` // its first turn is a call of an agent outside the daemon
	Reported  bool                  `json:",omitzero"` // the end of a child in the background began it, of whose tree it is
	Root      string                `json:",omitzero"` // the run at the root of its tree, "" for itself
	Children  []Child               `json:",omitzero"` // in the order of their starts
	Unheard   []Input               `json:",omitzero"` // that an abort took out of the queues, and the end hands back

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
	Titled               bool           `json:",omitzero"` // by a person
	Agent                string         `json:",omitzero"` // that makes its turns, "" for the daemon's own loop
	AgentSession         string         `json:",omitzero"` // the id by which that knows it, "" for none yet
	Texts                int            `json:",omitzero"` // user messages of a hosted session
	Taken                int            `json:",omitzero"` // how many of the first of these the agent has
	CreatedAt, UpdatedAt time.Time
	ReadOnly             error  // why nothing may be written to the journal; it is of ErrReadOnly
	Unread               bool   // a run has ended since somebody looked
	Said                 string // the last line of the latest answer, shortened
	TitleInherited       bool   `json:",omitzero"` // Title is the parent's

	Choices []model.AgentChoice `json:",omitzero"` // of the hosted agent's options, the oldest first

	Parent     *Parent  `json:",omitzero"` // of a child session
	Children   []string `json:",omitzero"` // ids of the sessions that were made for calls of this one
	Background []Child  `json:",omitzero"` // whose results this session has not got yet
	Late       []Late   `json:",omitzero"` // of the trees that there is something of here

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

	Steps  []Step       `json:",omitzero"` // what was done to the session's folder
	Rewind *RewindBegun `json:",omitzero"` // that is under way

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

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"weak"

	"noused/internal/model"
	"noused/internal/regular"
)

const (
	// maxHeld is how much an open session has in memory of what its entries say, in
	// bytes as costOf counts them; the newest. The rest is read from the journal when
	// somebody wants it.
	maxHeld = 12 << 20
	// maxAllHeld is for all sessions of a store. Beyond it each has leastHeld.
	maxAllHeld = 24 << 20
	leastHeld  = 1 << 20
	bodyCost   = 1 << 10 // of an entry whose body is in memory, beside its texts
	entryCost  = 320     // of any entry, and of a run that has ended
	snippets   = 80      // characters of an entry's Snippet

	maxBodyReads = 8 // at a time
)

var errMoved = errors.New("the journal is not as it was when it was read")

// Entry is one node of a session's tree: a message or a compaction. It has what the
// tree is made of; the rest is its Body, in memory or in the journal (Store.Bodies).
// Never changed once made.
type Entry struct {
	ID, RunID string
	Role      model.Role
	Snippet   string // the beginning of its text, for people

	parent *Entry
	kept   *Entry // the first that a compaction keeps; nil for a message
	n      int    // its place in the order in which entries were made
	tokens int64  // see Tokens
	bytes  int    // see Bytes
	// counted are the tokens of the request and its answer as the provider counted
	// them, 0 where it did not; of a compaction its FixedTokens.
	counted int64
	images  bool
	blocks  bool
	calls   bool
	text    bool
	says    bool    // it has a text or calls
	broken  bool    // an answer that broke off
	opens   bool    // a turn
	missing bool    // it is no entry, but names one that is not in memory
	child   *string // the ChildKey of the child whose end it tells, nil for none

	at   int64 // of its line in the journal, in bytes; not before size is set
	size int   // of the line, with its LF; 0: it is not written yet
	body atomic.Pointer[Body]
}

// Body is all that an entry says: a message, or with Compaction set a compaction.
// Never changed once made.
type Body struct {
	MessageAdded
	CreatedAt  time.Time
	Compaction *Compacted

	encoded encoding
}

// Parent is the id of the entry before it, "" for the root.
func (e *Entry) Parent() string {
	if e.parent == nil {
		return ""
	}
	return e.parent.ID
}

// IsCompaction tells it from a message.
func (e *Entry) IsCompaction() bool { return e.kept != nil }

// Broken reports an answer that broke off.
func (e *Entry) Broken() bool { return e.broken }

// Body is what the entry says where that is in memory, else nil.
func (e *Entry) Body() *Body { return e.body.Load() }

// Encoded returns what encode makes of the body. While that is in memory it is asked
// once, as it never changes; anyone who encodes bodies has to do it in one way only.
func (b *Body) Encoded(encode func(*Body) ([]byte, error)) ([]byte, error) {
	return b.encoded.of(func() ([]byte, error) { return encode(b) })
}

// entryOf makes the entry of a body; where it belongs is for add to say.
func entryOf(b *Body) *Entry {
	m := b.Message
	e := &Entry{ID: b.ID, RunID: b.RunID, Role: m.Role, opens: m.Opens}
	snippet := m.Text
	if c := b.Compaction; c != nil {
		m, snippet = messageOf(c), c.Summary
		e.counted = c.FixedTokens
	} else if u := b.Usage; u != nil && u.InputTokens > 0 {
		e.counted = u.InputTokens + u.OutputTokens
	}
	one := []model.Message{m}
	e.tokens, e.bytes = Tokens(one), Bytes(one)
	e.images, e.blocks, e.calls = len(m.Attachments) > 0, len(m.Blocks) > 0, len(m.ToolCalls) > 0
	e.text = m.Text != ""
	e.says = e.text || e.calls
	e.broken = b.StopReason == model.StopError && m.Role == model.Assistant
	if e.Snippet = strings.Clone(FirstLine(snippet, snippets)); snippet == "" && e.calls {
		e.Snippet = "→ " + m.ToolCalls[0].Name
	}
	if b.Child != "" {
		e.child = new(strings.Clone(b.Child))
	}
	e.body.Store(b)
	return e
}

func messageOf(c *Compacted) model.Message {
	return model.Message{Role: model.User, Text: c.Summary, Summary: true}
}

// costOf is what the body of an entry takes in memory, encoded once as well.
func costOf(e *Entry) int { return bodyCost + 2*e.bytes }

// hold counts an entry that has its body in memory.
func (s *State) hold(e *Entry) {
	s.held = append(s.held, e)
	s.count(costOf(e))
}

func (s *State) count(n int) {
	s.heldBytes += n
	if s.shared != nil {
		s.shared.Add(int64(n))
	}
}

// share has what the session holds counted among what all sessions do, until
// unshare.
func (s *State) share(all *atomic.Int64) {
	s.shared = all
	all.Add(int64(s.heldBytes))
	s.trim()
}

func (s *State) unshare() {
	if s != nil && s.shared != nil {
		s.shared.Add(-int64(s.heldBytes))
		s.shared = nil
	}
}

// Open reports that the session was opened to be written, and what it has in memory is
// counted among what all sessions have.
func (s *State) Open() bool { return s.shared != nil }

// placed notes where the line of a record is that was applied, so that its entry need
// not stay in memory.
func (s *State) placed(f Fact, at int64, size int) {
	id := ""
	switch f := f.(type) {
	case MessageAdded:
		id = f.ID
	case Compacted:
		id = f.ID
	default:
		return
	}
	e := s.Entry(id)
	if e == nil || e.size > 0 {
		return
	}
	e.at, e.size = at, size
	s.trim()
}

// trim leaves to the journal what is too much, the oldest first.
func (s *State) trim() {
	most := maxHeld
	if s.shared != nil && s.shared.Load() > maxAllHeld {
		most = leastHeld
	}
	for s.heldBytes > most && len(s.held) > 0 && s.held[0].size > 0 {
		e := s.held[0]
		s.held = s.held[1:]
		s.count(-costOf(e))
		e.body.Store(nil)
		if s.path.has(e) {
			s.path.forget()
		}
	}
}

// Memory is about what the session has in memory, in bytes.
func (s *State) Memory() int64 {
	n := s.heldBytes + entryCost*(len(s.order)+len(s.ended)) + s.patched.size() + s.assetsSize
	for _, in := range s.Pending {
		n += len(in.Text)
	}
	if s.Run != nil {
		for _, c := range s.Run.Calls {
			n += len(c.Arguments)
		}
		n += len(s.Run.Output)
	}
	return int64(n)
}

// Bodies calls each with entries of a session and what they say, in their order. What
// is not in memory is read from the journal, one at a time, and is each's own. It fails
// with ErrNotFound where the session is gone, and where the journal is not as it was. It
// blocks for the disk, and while many others read.
func (s *Store) Bodies(ctx context.Context, id string, entries []*Entry, each func(*Entry, *Body) error) error {
	r := bodyReader{store: s, ctx: ctx, id: id}
	defer r.close()
	for _, e := range entries {
		b := e.body.Load()
		if b == nil {
			var err error
			if b, err = r.read(e); errors.Is(err, ErrNotFound) {
				return err
			} else if err != nil {
				return fmt.Errorf("read entry %.128s of session %s: %w", e.ID, id, err)
			}
		}
		if err := each(e, b); err != nil {
			return err
		}
	}
	return nil
}

// bodyReader reads one journal, which it opens when it has to.
type bodyReader struct {
	store *Store
	ctx   context.Context
	id    string
	f     *os.File
	buf   []byte
}

func (r *bodyReader) close() {
	if r.f != nil {
		_ = r.f.Close()
		<-r.store.bodies
	}
}

func (r *bodyReader) open() error {
	select {
	case r.store.bodies <- struct{}{}:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	f, err := regular.Open(r.store.path(r.id), os.O_RDONLY)
	if err != nil {
		<-r.store.bodies
		if errors.Is(err, os.ErrNotExist) {
			return ErrNotFound
		}
		return err
	}
	r.f = f
	return nil
}

func (r *bodyReader) read(e *Entry) (*Body, error) {
	if r.f == nil {
		if err := r.open(); err != nil {
			return nil, err
		}
	}
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	if cap(r.buf) > 1<<20 {
		r.buf = nil
	}
	line := slices.Grow(r.buf[:0], e.size)[:e.size]
	r.buf = line
	if n, err := r.f.ReadAt(line, e.at); n < e.size {
		return nil, fmt.Errorf("%w: %w", errMoved, err)
	}
	if line[e.size-1] != '\n' || e.at < 0 {
		return nil, errMoved
	}
	rec, err := decodeRecord(line[:e.size-1])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMoved, err)
	}
	b := bodyOf(rec)
	if b == nil || b.ID != e.ID || e.IsCompaction() != (b.Compaction != nil) {
		return nil, errMoved
	}
	b.ParentID, b.Message.Opens = e.Parent(), e.opens // the line may name one that is missing
	if e.child != nil {                               // an older line does not say it
		b.Child = *e.child
	}
	if b.Compaction != nil {
		b.Compaction.ParentID = b.ParentID
	}
	return b, nil
}

// bodyOf is what the entry says that a record adds, nil where it adds none.
func bodyOf(r Record) *Body {
	switch f := r.Fact.(type) {
	case MessageAdded:
		return &Body{MessageAdded: f, CreatedAt: r.At}
	case Compacted:
		return &Body{MessageAdded: MessageAdded{ID: f.ID, ParentID: f.ParentID, RunID: ""}, CreatedAt: r.At, Compaction: &f}
	}
	return nil
}

// Arguments are those of a call that an entry of a session makes. It blocks and fails as
// Bodies does.
func (s *Store) Arguments(ctx context.Context, id string, e *Entry, callID string) (arguments []byte, err error) {
	err = s.Bodies(ctx, id, []*Entry{e}, func(_ *Entry, b *Body) error {
		i := slices.IndexFunc(b.Message.ToolCalls, func(c model.ToolCall) bool { return c.ID == callID })
		if i < 0 {
			return fmt.Errorf("entry %s has no call %s", e.ID, callID)
		}
		arguments = b.Message.ToolCalls[i].Arguments
		return nil
	})
	return arguments, err
}

// Calling is the entry that makes the calls of the run, nil where there is none.
func (s *State) Calling() *Entry {
	for _, e := range slices.Backward(s.path.entries) {
		if e.Role == model.Assistant && e.calls {
			return e
		}
	}
	return nil
}

// Conversation is a path of the tree as a model is to read it. Its messages are in
// memory, or are read with Store.Messages.
type Conversation struct {
	entries  []*Entry
	messages []model.Message
	whole    bool // messages are all
	lent     weak.Pointer[lent]
}

// Held returns the messages where all of them are in memory: every tool call answered,
// in the order of the calls. They are valid for as long as their caller wants and must
// not be changed.
func (c Conversation) Held() (messages []model.Message, ok bool) { return c.messages, c.whole }

// Unread is the conversation without its messages: who waits to read it keeps none of
// them in memory.
func (c Conversation) Unread() Conversation { return Conversation{entries: c.entries, lent: c.lent} }

// Bytes is how much the messages hold, images aside.
func (c Conversation) Bytes() (n int) {
	if c.whole {
		return Bytes(c.messages)
	}
	for _, e := range c.entries {
		n += e.bytes
	}
	return n
}

// Kinds names the contents of a conversation: images, blocks that makers attached,
// calls, and a user who speaks right after a tool.
type Kinds struct{ Images, Blocks, Calls, Answered bool }

// Kinds looks at all of it.
func (c Conversation) Kinds() (has Kinds) {
	for i, e := range c.entries {
		has.Images = has.Images || e.images
		has.Blocks = has.Blocks || e.blocks
		has.Calls = has.Calls || e.calls
		has.Answered = has.Answered || i > 0 && e.Role == model.User &&
			(c.entries[i-1].Role == model.Tool || c.entries[i-1].calls)
	}
	return has
}

// Messages are those of a conversation of a session, as Held returns them. Where most is
// not 0 and they hold more bytes than that, they are for a summary: of each the texts'
// beginnings and ends stay. It blocks and fails as Bodies does.
func (s *Store) Messages(ctx context.Context, id string, c Conversation, most int) ([]model.Message, error) {
	if c.whole {
		return c.messages, nil
	}
	before, cut := (*Entry)(nil), 0
	if most > 0 && c.Bytes() > most {
		cut = max(leastText, most/len(c.entries))
	}
	if l := c.lent.Value(); l != nil && cut == 0 {
		return l.messages, nil
	}
	var h history
	err := s.Bodies(ctx, id, c.entries, func(e *Entry, b *Body) error {
		if cut > 0 && e.bytes > cut && !e.IsCompaction() {
			b = &Body{MessageAdded: b.MessageAdded, CreatedAt: b.CreatedAt}
			b.Message = cloned(shortened([]model.Message{b.Message}, cut)[0])
		}
		h.add(before, e, b)
		before = e
		return nil
	})
	return h.whole(), err
}

// leastText is what stays of a text at least, in bytes.
const leastText = 64

// cloned is a message that has no part of longer texts.
func cloned(m model.Message) model.Message {
	m.Text, m.Thinking = strings.Clone(m.Text), ""
	return m
}

// Copy is the record of another session's entry, for one that is branched from it. What
// it says is read when it is written (Store.Create).
func Copy(e *Entry) Record { return Record{Fact: copied{e}} }

// copied is what Copy makes; it is in no journal.
type copied struct{ entry *Entry }

func (copied) kind() string  { return "copied" }
func (copied) durable() bool { return true }

// record is the record that a body is written with.
func (b *Body) record() Record {
	if b.Compaction != nil {
		return Record{At: b.CreatedAt, Fact: *b.Compaction}
	}
	return Record{At: b.CreatedAt, Fact: b.MessageAdded}
}

package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/regular"
)

const (
	// maxSummaries bounds what is kept of sessions that are not open, in bytes: at
	// some 700 each, those of 9,000 sessions.
	maxSummaries = 6 << 20
	summaryBytes = 470 // of one beside its texts
	maxReaders   = 4   // journals that are read at a time, beside those being opened
)

// Summary is what a list of sessions shows of one that is not open.
type Summary struct {
	ID, Title, ParentID  string
	Workdir              string // "": that of the daemon
	Agent                string // "": the daemon's own loop
	CreatedAt, UpdatedAt time.Time
	Messages             int
	Usage                model.Usage
	Running              bool                // a text is owed, its run has not ended, or a child's result is to come
	Unread               bool                // a run has ended since somebody looked
	LastStop             protocol.StopReason // why the run ended that ended last
	Said                 string              // the last line of the latest answer, shortened
	Model                model.Choice        // that was chosen; zero: none
	Answered             model.Choice        // as in State
	Waiting              bool                // the run has asked something that nobody has answered
	ReadOnly             bool                // a newer version wrote the session: nothing goes on there
	Parent               *Parent             // of a child session
	Children             []string            // that it has had
}

// summaries are those of journals that have not changed since they were read.
type summaries struct {
	mu    sync.Mutex
	of    map[string]summarised
	bytes int
}

// summarised is a summary of the first size bytes of a file.
type summarised struct {
	Summary
	size int64
	at   time.Time
	bad  error // why there is no summary
}

func (s summarised) bytes() int {
	children := 0
	for _, id := range s.Children {
		children += 16 + len(id)
	}
	return summaryBytes + children + 2*len(s.ID) + len(s.Title) + len(s.ParentID) + len(s.Workdir) +
		len(s.Agent) + len(s.Said) +
		len(s.Model.Provider) + len(s.Model.Name) + len(s.Model.BaseURL) +
		len(s.Answered.Provider) + len(s.Answered.Name) + len(s.Answered.BaseURL) + s.Parent.bytes()
}

func (c *summaries) get(id string, info os.FileInfo) (summarised, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.of[id]
	if ok && s.size == info.Size() && s.at.Equal(info.ModTime()) {
		return s, true
	}
	c.drop(id)
	return summarised{}, false
}

func (c *summaries) put(s summarised) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(s.ID)
	if s.bytes() > maxSummaries {
		return
	}
	for id := range c.of { // any of them: each can be had again
		if c.bytes+s.bytes() <= maxSummaries {
			break
		}
		c.drop(id)
	}
	if c.of == nil {
		c.of = map[string]summarised{}
	}
	c.of[s.ID] = s
	c.bytes += s.bytes()
}

// drop forgets a summary. c is locked.
func (c *summaries) drop(id string) {
	if s, ok := c.of[id]; ok {
		delete(c.of, id)
		c.bytes -= s.bytes()
	}
}

// Known returns the summary of a session where it is at hand, as the journal has
// not changed since it was read. It opens no file.
func (s *Store) Known(id string) (Summary, bool) {
	known, ok := s.known(id)
	return known.Summary, ok && known.bad == nil
}

func (s *Store) known(id string) (summarised, bool) {
	if !ValidID(id) {
		return summarised{}, false
	}
	info, err := os.Lstat(s.path(id))
	if err != nil {
		return summarised{}, false
	}
	return s.summaries.get(id, info)
}

// Summary returns a session's summary, reading its journal as it is on the disk
// where it is not at hand. It fails as Peek does, but for a message that cannot be
// read: that counts. It blocks for the disk, and while many others are read.
func (s *Store) Summary(ctx context.Context, id string) (Summary, error) {
	if known, ok := s.known(id); ok {
		return known.Summary, known.bad
	}
	var sum summarised
	err := s.reading(ctx, id, func(f *os.File, in io.Reader) error {
		info, err := f.Stat()
		if err == nil {
			sum.size, sum.at = info.Size(), info.ModTime()
			ok := false
			if sum.Summary, ok = indexedSummary(f); !ok {
				sum.Summary, err = summarise(in)
			}
		}
		if err == nil {
			err = belongs(&State{ID: sum.ID}, f.Name())
		}
		return err
	})
	switch {
	case errors.Is(err, errEndless): // to look again would cost as much
		sum.Summary, sum.bad = Summary{ID: id}, err
	case err != nil:
		return Summary{}, err
	}
	s.summaries.put(sum)
	return sum.Summary, err
}

// reading calls do with a session's journal, of which in reads until ctx ends;
// few at a time, so that many clients cannot take all the memory.
func (s *Store) reading(ctx context.Context, id string, do func(f *os.File, in io.Reader) error) error {
	if !ValidID(id) {
		return ErrNotFound
	}
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f, err := regular.Open(s.path(id), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotFound
	}
	if err == nil {
		defer func() { _ = f.Close() }()
		err = do(f, untilDone{ctx, f})
	}
	if err != nil {
		return fmt.Errorf("read session %s: %w", id, err)
	}
	return nil
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// indexedSummary is the summary of a session whose index is of the whole journal, and in
// which nothing goes on.
func indexedSummary(journal *os.File) (Summary, bool) {
	x, exact, closing, err := openIndex(journal)
	defer closing()
	if err != nil || !exact || x.State.Run != nil || len(x.State.Pending) > 0 || len(x.State.Background) > 0 {
		return Summary{}, false
	}
	s := x.State
	return Summary{
		ID: s.ID, Title: s.Title, ParentID: s.ParentID, Workdir: s.Workdir, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		Messages: s.Messages, Usage: s.Usage, Unread: s.Unread, LastStop: s.LastRun.StopReason, Said: s.Said, Model: s.Model,
		Answered: s.Answered, Agent: s.Agent, Parent: s.Parent, Children: s.Children,
	}, true
}

// summarise makes a summary of a journal, of whose lines it decodes only those
// that it takes a text from.
func summarise(r io.Reader) (Summary, error) {
	var g gist
	for in := newLineReader(r); ; {
		line, _, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return g.summary(), nil
		case errors.Is(err, errLong), errors.Is(err, errNul):
		case err != nil:
			return Summary{}, err
		default:
			if err := g.addLine(line); err != nil {
				return Summary{}, err
			}
		}
	}
}

// gist is a summary that is being made.
type gist struct {
	Summary
	inherited bool   // Title is the parent's
	said      []byte // the record of the latest answer
}

// addLine takes a line in, decoding it only if it has to. The error is errNewer.
func (g *gist) addLine(line []byte) error {
	at, kind, ok := headOf(line)
	var fact Fact
	switch kind {
	case Created{}.kind(), AgentSet{}.kind(), TitleSet{}.kind(), ModelSet{}.kind(), RunEnded{}.kind():
		ok = false
	case Input{}.kind():
		ok = g.ID != "" && g.Title != "" && !g.inherited
	case RunStarted{}.kind():
		ok = !bytes.Contains(line, []byte(`"model"`))
	case ChildStarted{}.kind():
		ok = !bytes.Contains(line, []byte(`"new":true`))
	}
	if !ok {
		rec, err := decodeRecord(line)
		if errors.Is(err, errNewer) {
			return err
		}
		if err != nil {
			g.ReadOnly = g.ReadOnly || errors.Is(err, ErrReadOnly)
			return nil
		}
		at, kind, fact = rec.At, rec.Fact.kind(), rec.Fact
	}
	g.fact(kind, fact, at)
	switch kind {
	case MessageAdded{}.kind():
		g.Messages++
		g.Usage = g.Usage.Add(usageOf(line))
		if f, ok := fact.(MessageAdded); answers(line) || ok && f.Message.Role == model.Assistant && f.Message.Text != "" {
			g.said = append(g.said[:0], line...)
		}
	case Compacted{}.kind():
		g.Usage = g.Usage.Add(usageOf(line))
	case Patched{}.kind():
		if isSpent(line) {
			g.Usage = g.Usage.Add(usageOf(line))
		}
	}
	if at.After(g.UpdatedAt) && kind != (MarkedRead{}).kind() {
		g.UpdatedAt = at
	}
	return nil
}

// fact folds a fact in, as State.Apply does; nil is one that says no more than of
// what kind it is.
func (g *gist) fact(kind string, fact Fact, at time.Time) {
	switch f := fact.(type) {
	case Created:
		if g.ID != "" {
			return // it is skipped
		}
		g.ID, g.ParentID, g.Workdir, g.CreatedAt = f.SessionID, f.ParentID, f.Workdir, at
		g.Agent, g.Parent = f.Agent, f.Parent
	case AgentSet:
		g.Agent = f.Agent
	case ChildStarted:
		if f.New {
			g.Children = append(g.Children, f.ChildID)
		}
	case ModelSet:
		g.Model, g.Answered = f.Model, f.Answered
	case RunStarted:
		if f.Model != (model.Choice{}) {
			g.Answered = f.Model
		}
	case RunEnded:
		g.Running, g.Unread, g.LastStop = f.Waits, f.Unread, f.StopReason
	}
	g.Title, g.inherited = retitled(g.Title, g.inherited, fact)
	switch kind {
	case Input{}.kind(), RunStarted{}.kind(), RewindBegun{}.kind():
		g.Running = true
	case RewindEnded{}.kind():
		g.Running = false
	case ApprovalAsked{}.kind():
		g.Waiting = true
	case ApprovalDecided{}.kind(), RunEnded{}.kind():
		g.Waiting = false
	case MarkedRead{}.kind():
		g.Unread = false
	}
}

func (g *gist) summary() Summary {
	if rec, err := decodeRecord(g.said); err == nil {
		g.Said = LastLine(rec.Fact.(MessageAdded).Message.Text)
	}
	return g.Summary
}

var (
	answerBegins = []byte(`"message":{"role":"assistant","text":"`)
	answerWithin = 1 << 10 // bytes of a record that hold the ids before it
)

// answers reports that a record, as appendRecord writes it, is an answer that has a
// text.
func answers(line []byte) bool {
	_, text, ok := bytes.Cut(line[:min(len(line), answerWithin)], answerBegins)
	return ok && len(text) > 0 && text[0] != '"'
}

var usageBegins = []byte(`,"usage":{"input_tokens":`)

// usageOf reads what a model call used from the line of what it made, as
// appendRecord writes it: nothing behind it is JSON that a model wrote.
func usageOf(line []byte) model.Usage {
	u, _ := usageAt(line)
	return u
}

// usageAt is usageOf, with what follows on the line.
func usageAt(line []byte) (u model.Usage, rest []byte) {
	i := bytes.LastIndex(line, usageBegins)
	if i < 0 {
		return u, nil
	}
	_, text, _ := bytes.Cut(line[i:], []byte(":"))
	in := jsontext.NewDecoder(bytes.NewReader(text))
	v, err := in.ReadValue()
	if err != nil || json.Unmarshal(v, &u) != nil {
		return model.Usage{}, nil
	}
	return u, text[in.InputOffset():]
}

var (
	headBegins = []byte(`{"v":1,"at":"`)
	headGoesOn = []byte(`","type":"`)
)

// headOf reads when a record was made and of what type it is, from a line as
// appendRecord writes it. False: it is another line.
func headOf(line []byte) (at time.Time, kind string, ok bool) {
	rest, ok := bytes.CutPrefix(line[:min(len(line), typeWithin)], headBegins)
	if !ok || line[len(line)-1] != '}' {
		return at, "", false
	}
	stamp, rest, ok := bytes.Cut(rest, headGoesOn)
	if !ok {
		return at, "", false
	}
	name, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok || at.UnmarshalText(stamp) != nil || timeFits(at) != nil || decoders[recordVersion][string(name)] == nil {
		return at, "", false
	}
	return at, string(name), true
}

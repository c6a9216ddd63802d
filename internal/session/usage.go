package session

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Call is a model call that was made in a session, and what it used. Model is
// "" where the journal does not say it.
type Call struct {
	At    time.Time
	Model string
	Usage model.Usage
}

// Calls are the model calls of a session, with what tells it from others.
type Calls struct {
	Title, Workdir string // Workdir is "" for that of the daemon
	// Unread are the whole lines that no record could be made of.
	Unread int
}

// CallReader reads journals for their model calls. It belongs to one goroutine.
type CallReader struct{ in *lineReader }

// NewCallReader returns a reader that holds at most one line.
func NewCallReader() *CallReader { return &CallReader{newLineReader(nil)} }

// Calls calls each with every model call of a session, on whatever branch, as the
// journal on the disk has them. Those that a branch was made with are its parent's.
// It blocks and fails as Find does, and where a later version of the program wrote
// the journal.
func (s *Store) Calls(ctx context.Context, id string, r *CallReader, each func(Call)) (Calls, error) {
	var newer error
	c := callScan{each: each}
	err := s.scan(ctx, id, r.in, func(line []byte) bool {
		newer = c.addLine(line)
		return newer == nil
	})
	return c.Calls, errors.Join(err, newer)
}

// callScan is a journal that is being read for its calls.
type callScan struct {
	Calls
	each   func(Call)
	model  string // of the latest call
	copied bool   // messages that come now are from the parent

	inherited bool // Title is the parent's
}

// addLine takes a line in, decoding it only if it has to. The error is errNewer.
func (c *callScan) addLine(line []byte) error {
	at, kind, ok := headOf(line)
	switch {
	case !ok, kind == Created{}.kind(), kind == TitleSet{}.kind(),
		kind == Input{}.kind() && (c.Title == "" || c.inherited):
	case kind == MessageAdded{}.kind(), kind == Compacted{}.kind():
		if !c.copied {
			used, model := usedIn(line)
			c.called(at, model, used)
		}
		return nil
	default:
		if c.copied = false; kind == (Patched{}).kind() && isSpent(line) {
			c.called(at, "", usageOf(line))
		}
		return nil
	}
	rec, err := decodeRecord(line)
	switch {
	case errors.Is(err, errNewer):
		return err
	case err != nil:
		c.Unread++
	default:
		c.fact(rec)
	}
	return nil
}

func (c *callScan) fact(rec Record) {
	c.Title, c.inherited = retitled(c.Title, c.inherited, rec.Fact)
	switch f := rec.Fact.(type) {
	case Created:
		c.Workdir, c.copied = f.Workdir, f.ParentID != ""
		return
	case MessageAdded:
		if !c.copied && f.Usage != nil {
			c.called(rec.At, f.Model, *f.Usage)
		}
		return
	case Compacted:
		if !c.copied && f.Usage != nil {
			c.called(rec.At, "", *f.Usage)
		}
		return
	}
	c.copied = false
}

// called hands a call on, if it is one. The journal does not say which model has
// made a summary: the one that answered last.
func (c *callScan) called(at time.Time, name string, used model.Usage) {
	if used == (model.Usage{}) {
		return
	}
	if name != "" {
		c.model = name
	}
	c.each(Call{at, c.model, used})
}

var (
	roleBegins  = []byte(`"message":{"role":"`)
	byAssistant = []byte(`assistant"`)
	modelBegins = []byte(`,"model":`)
)

// usedIn reads from the line of a message or a summary what its model call used,
// and which model that was, as usageOf does. What is no model's has used nothing.
func usedIn(line []byte) (used model.Usage, name string) {
	if _, role, ok := bytes.Cut(line[:min(len(line), answerWithin)], roleBegins); ok && len(role) >= len(byAssistant) &&
		!bytes.HasPrefix(role, byAssistant) {
		return used, ""
	}
	used, rest := usageAt(line)
	if text, ok := bytes.CutPrefix(rest, modelBegins); ok {
		if v, err := jsontext.NewDecoder(bytes.NewReader(text)).ReadValue(); err == nil {
			_ = json.Unmarshal(v, &name) // what is no text names nothing
		}
	}
	return used, name
}

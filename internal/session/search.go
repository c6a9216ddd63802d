package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/regular"
)

// Hit is an entry whose text holds what was looked for, for the first time from
// byte Start on. Role is that of the message, or "compaction".
type Hit struct {
	EntryID string
	Role    string
	At      time.Time
	Text    string
	Start   int
}

// Search looks for one text in journals, as they are on the disk. It belongs to
// one goroutine.
type Search struct {
	folded []byte // the text
	raw    []byte // the same as a journal has it, in JSON
	in     *lineReader
	line   []byte // the latest line, folded
}

// NewSearch returns a search for a text, to which upper and lower case of a
// letter are the same. It fails where the text is not valid UTF-8.
func NewSearch(text string) (*Search, error) {
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return nil, err
	}
	return &Search{
		folded: appendFolded(nil, []byte(text)),
		raw:    appendFolded(nil, quoted[1:len(quoted)-1]),
		in:     newLineReader(nil),
	}, nil
}

// Find calls found with every message and compaction of a session that holds the
// text, on whatever branch, in the order in which they were made, until found
// returns false or ctx ends. Lines that cannot be read, or are longer than 64
// MiB, are passed over. ErrNotFound when there is no such session.
func (s *Store) Find(ctx context.Context, id string, search *Search, found func(Hit) bool) error {
	return s.scan(ctx, id, search.in, func(line []byte) bool {
		hit, ok := search.matchLine(line)
		return !ok || found(hit)
	})
}

// Title returns a session's title without folding it. It blocks and fails as Find
// does.
func (s *Store) Title(ctx context.Context, id string, search *Search) (string, error) {
	state := NewState()
	err := s.scan(ctx, id, search.in, func(line []byte) bool {
		if _, kind, ok := headOf(line); ok && !(kind == TitleSet{}.kind() || (state.Title == "" || state.TitleInherited) &&
			kind != MessageAdded{}.kind()) {
			return true
		}
		if rec, err := decodeRecord(line); err == nil {
			switch rec.Fact.(type) {
			case Created, Input, TitleSet:
				_ = state.Apply(rec) // what is refused gives no title
			}
		}
		return true
	})
	return state.Title, err
}

// scan calls each with the whole lines of a journal, without their LF, valid
// until it returns; with false it ends. A line that is longer than 64 MiB is nil.
func (s *Store) scan(ctx context.Context, id string, in *lineReader, each func(line []byte) bool) error {
	if !ValidID(id) {
		return ErrNotFound
	}
	f, err := regular.Open(s.path(id), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("read session %s: %w", id, err)
	}
	defer func() { _ = f.Close() }()
	in.reset(f)
	for ctx.Err() == nil {
		line, _, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) && !errors.Is(err, errNul) {
			return fmt.Errorf("read session %s: %w", id, err)
		}
		if !each(line) {
			return nil
		}
	}
	return context.Cause(ctx)
}

const typeWithin = 80 // bytes of a line that hold its version, time and type

var (
	typeKey  = []byte(`"type":"`)
	spokenOf = [][]byte{[]byte(MessageAdded{}.kind() + `"`), []byte(Compacted{}.kind() + `"`)}
)

// matchLine decodes only the lines that may hold the text.
func (s *Search) matchLine(line []byte) (Hit, bool) {
	if !spoken(line) {
		return Hit{}, false
	}
	if cap(s.line) > 1<<20 {
		s.line = nil
	}
	s.line = appendFolded(s.line[:0], line)
	if !bytes.Contains(s.line, s.raw) {
		return Hit{}, false
	}
	rec, err := decodeRecord(line)
	if err != nil {
		return Hit{}, false
	}
	hit := Hit{At: rec.At}
	switch f := rec.Fact.(type) {
	case MessageAdded:
		hit.EntryID, hit.Role, hit.Text = f.ID, string(f.Message.Role), f.Message.Text
	case Compacted:
		hit.EntryID, hit.Role, hit.Text = f.ID, "compaction", f.Summary
	}
	at := bytes.Index(appendFolded(nil, []byte(hit.Text)), s.folded)
	if at < 0 {
		return Hit{}, false
	}
	hit.Start = unfolded(hit.Text, at)
	return hit, true
}

// spoken reports that a line may be a message or a compaction.
func spoken(line []byte) bool {
	_, kind, ok := bytes.Cut(line[:min(len(line), typeWithin)], typeKey)
	if !ok {
		return true
	}
	for _, k := range spokenOf {
		if bytes.HasPrefix(kind, k) {
			return true
		}
	}
	return false
}

// lower is what ASCII letters fold to.
var lower = func() (t [utf8.RuneSelf]byte) {
	for c := range t {
		t[c] = byte(unicode.ToLower(rune(c)))
	}
	return t
}()

// appendFolded appends text with its letters in lower case. What is no UTF-8
// stays as it is.
func appendFolded(out, text []byte) []byte {
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			out = append(out, lower[c])
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			out = append(out, text[i])
		} else {
			out = utf8.AppendRune(out, lowered(r))
		}
		i += n
	}
	return out
}

// lowered leaves alone what would become ASCII, like the sign for Kelvin.
func lowered(r rune) rune {
	if l := unicode.ToLower(r); (l < utf8.RuneSelf) == (r < utf8.RuneSelf) {
		return l
	}
	return r
}

// unfolded is where the byte at of a folded text is in the text itself.
func unfolded(text string, at int) int {
	for i, r := range text {
		if at <= 0 {
			return i
		}
		at -= utf8.RuneLen(lowered(r))
	}
	return len(text)
}

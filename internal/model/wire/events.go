package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tmaxmax/go-sse"

	"noused/internal/model"
)

// What one answer may be at most, in bytes.
const (
	maxEvent  = 4 << 20   // one event
	maxStream = 256 << 20 // all that comes: some servers wrap each token in 300 bytes
)

// What a message may hold at most: bytes of text, as many of arguments, tool
// calls or other blocks, and blocks where text and thinking take turns. A decoder
// that collects keeps to it.
const (
	MaxContent = 16 << 20
	MaxCalls   = 256
	MaxBlocks  = 16 << 10
)

// Event is one server-sent event: the name of its type, where it has one, and
// its data.
type Event = sse.Event

// Decoder turns the events of one answer into deltas. The events end with the
// answer, or with an error. The deltas end with one that has Stop, or with an
// error; Truncated makes the one for an answer without a reason to stop.
type Decoder func(events iter.Seq2[Event, error]) iter.Seq2[model.Delta, error]

// Decode reads an event's data into v. Unknown members are ignored, bytes that
// are no UTF-8 replaced.
func Decode(e Event, v any) error {
	if err := json.Unmarshal([]byte(e.Data), v, lenient); err != nil {
		return &Error{Message: fmt.Sprintf("an event of the answer is not what it should be: %v", err)}
	}
	return nil
}

// Text is what a string holds, or the JSON of another value; "" for null or
// nothing.
func Text(v jsontext.Value) (text string) {
	switch v.Kind() {
	case jsontext.KindNull, jsontext.KindInvalid:
		return ""
	case jsontext.KindString:
		_ = json.Unmarshal(v, &text, lenient) // a string is one
		return text
	}
	return string(v)
}

// lenient is how JSON of others is read: what can be understood is.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// answer is the body of a response. It ends with an error when nothing comes
// for as long as the silence allows, or too much in all.
type answer struct {
	in      io.Reader
	silence *silence
	left    int64
	err     error // the first one
}

func (a *answer) Read(p []byte) (int, error) {
	if a.left <= 0 {
		a.err = &Error{Message: fmt.Sprintf("the answer is longer than %d MiB", maxStream>>20)}
		return 0, a.err
	}
	a.silence.begin()
	n, err := a.in.Read(p[:min(int64(len(p)), a.left)])
	a.silence.end()
	a.left -= int64(n)
	if err != nil && a.err == nil {
		a.err = err
	}
	return n, err
}

// events are those of the body, and the error that it ended with, if it did not
// simply end. ctx is the attempt's.
func (a *answer) events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		in := &lines{in: bufio.NewReaderSize(a, 64<<10)}
		for e, err := range sse.Read(in, &sse.ReadConfig{MaxEventSize: maxEvent}) {
			if err != nil {
				err = a.why(ctx, err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// why is the error that a person is to read. err is the parser's, which hides
// the reader's when a line was cut.
func (a *answer) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, bufio.ErrTooLong) {
		return &Error{Message: fmt.Sprintf("an event of the answer is longer than %d MiB", maxEvent>>20)}
	}
	var own *Error
	switch {
	case errors.As(a.err, &own):
		return own
	case a.err == nil, errors.Is(a.err, io.EOF), errors.Is(a.err, io.ErrUnexpectedEOF):
		return Truncated("")
	}
	return Truncated(a.err.Error())
}

// lines hands on what came up to the end of a line, or 64 KiB of a longer one,
// and what came with it: the parser looks at an unfinished event from its
// beginning each time, which would take hours where a server sends a large one
// byte by byte.
type lines struct {
	in   *bufio.Reader
	rest []byte // of the reader's buffer
	err  error
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 && l.err == nil {
		l.rest, l.err = l.in.ReadSlice('\n')
		if errors.Is(l.err, bufio.ErrBufferFull) {
			l.err = nil
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	switch {
	case len(l.rest) > 0:
		return n, nil
	case l.err != nil:
		return n, l.err
	case n < len(p) && l.in.Buffered() > 0:
		more, err := l.in.Read(p[n:])
		l.err = err
		return n + more, err
	}
	return n, nil
}

// silence calls an attempt off when nothing came for too long. It counts only
// between begin and end: a slow consumer is not the provider's fault.
type silence struct {
	limit time.Duration
	timer *time.Timer
}

func newSilence(limit time.Duration, cancel context.CancelCauseFunc) *silence {
	s := &silence{limit: limit, timer: time.AfterFunc(limit, func() {
		cancel(&Error{Message: fmt.Sprintf("nothing came for %s", limit)})
	})}
	s.timer.Stop()
	return s
}

func (s *silence) begin() { s.timer.Reset(s.limit) }
func (s *silence) end()   { s.timer.Stop() }

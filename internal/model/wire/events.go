package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/sse"
)

// What one answer may be at most, in bytes.
const (
	maxEvent  = 4 << 20   // one event
	maxStream = 256 << 20 // all that comes: some servers wrap each token in 300 bytes
)

// What a message may hold at most: bytes of text and thinking, as many of arguments,
// tool calls or other blocks, and blocks where text and thinking take turns. No model
// says as much: the longest answers have 128,000 tokens. A decoder that collects
// keeps to it.
const (
	MaxContent = model.MaxContent
	MaxCalls   = 256
	MaxBlocks  = 16 << 10
)

// Event is one server-sent event of an answer: the name of its type, where it has one, and
// its data.
type Event = sse.Event

// Answer is what a decoder reads. The events end with the answer, or with an error.
type Answer struct {
	Events iter.Seq2[Event, error]
	Hold   func(bytes int) error // is asked before something is kept (model.Room); may be nil
	EndIn  func(time.Duration)   // has the events end once they were waited for that long from now on
}

// Decoder turns the events of one answer into deltas. The deltas end with one that
// has Stop, or with an error; Truncated makes the one for an answer without a reason
// to stop. What an answer has cost that ends with an error comes before the error,
// as a delta that has nothing but Usage.
type Decoder func(Answer) iter.Seq2[model.Delta, error]

// Load counts what a decoder collects of an answer. Hold is the Answer's.
type Load struct {
	Hold func(bytes int) error
	size int
}

// Add counts n bytes before they are kept. An error ends the answer.
func (l *Load) Add(n int) error {
	if l.size += n; l.size > MaxContent {
		return TooMuch()
	}
	if l.Hold == nil || n == 0 {
		return nil
	}
	return l.Hold(n)
}

// Decode reads an event's data into v. Unknown members are ignored, bytes that
// are no UTF-8 replaced.
func Decode(e Event, v any) error {
	if err := json.Unmarshal(e.Data, v, lenient); err != nil {
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
	err     error          // the first one
	wait    *time.Duration // for all that is to come, nil: as long as something comes
}

func (a *answer) endIn(wait time.Duration) { a.wait = &wait }

func (a *answer) Read(p []byte) (int, error) {
	if a.left <= 0 {
		a.err = &Error{Message: fmt.Sprintf("the answer is longer than %d MiB", maxStream>>20)}
		return 0, a.err
	}
	limit := a.silence.limit
	if a.wait != nil {
		if limit = min(limit, *a.wait); limit <= 0 {
			a.err = &Error{Message: "the end of the answer did not come"}
			return 0, a.err
		}
		defer func(begun time.Time) { *a.wait -= time.Since(begun) }(time.Now())
	}
	a.silence.start(limit)
	n, err := a.in.Read(p[:min(int64(len(p)), a.left)])
	a.silence.end()
	a.left -= int64(n)
	if err != nil && a.err == nil {
		a.err = err
	}
	return n, err
}

// eventCost is how many copies there are of a long event for a moment: as it came, the
// event's, and what is decoded of it.
const eventCost = 3

// events are those of the body, and the error that it ended with, if it did not
// simply end. ctx is the attempt's. A body that is whole says itself where it ends.
//
// What a long event takes is held until it has been taken in.
func (a *answer) events(ctx context.Context, hold func(bytes int) error, whole bool) iter.Seq2[Event, error] {
	o := sse.Options{Most: maxEvent, Lenient: true, Whole: whole, Other: func(name, value []byte) error {
		if string(name) == "error" { // llama-server's own, and no event comes after it
			return Failure(jsontext.Value(value))
		}
		return nil
	}}
	if hold != nil {
		o.Hold = func(bytes int) error { return hold(eventCost * bytes) }
	}
	return func(yield func(Event, error) bool) {
		r := sse.NewReader(a, o)
		defer r.Drop()
		for {
			switch e, err := r.Next(); {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, sse.ErrLong):
				yield(e, &Error{Message: fmt.Sprintf("an event of the answer is longer than %d MiB", maxEvent>>20)})
				return
			case err != nil:
				yield(e, a.why(ctx, err))
				return
			case e.Data != nil && !yield(e, nil):
				return
			}
		}
	}
}

// why is the error that a person is to read of one of the events. The reader's own, and
// the end of ctx, say more.
func (a *answer) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var own *Error
	switch {
	case errors.As(a.err, &own):
		return own
	case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, a.err): // of the events, or who counts them
		return err
	case a.err == nil, errors.Is(a.err, io.EOF), errors.Is(a.err, io.ErrUnexpectedEOF):
		return Truncated("")
	}
	return Truncated(a.err.Error())
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

func (s *silence) start(limit time.Duration) { s.timer.Reset(limit) }
func (s *silence) end()                      { s.timer.Stop() }

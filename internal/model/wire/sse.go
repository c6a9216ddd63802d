package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// Event is one server-sent event: the name of its type, where it has one, and
// its data.
type Event struct{ Type, Data string }

const (
	lineSize = 64 << 10 // a line that is longer is held
	// lineCost is how many copies there are of a long line for a moment: as it came, the
	// event's, and what is decoded of it.
	lineCost = 3
)

// parser reads the events of a body.
type parser struct {
	in   *bufio.Reader
	hold func(bytes int) error // nil: nobody counts
	// whole: the body says where it ends, and so its last line may end with it.
	whole bool

	held   int // bytes of long lines since the last event
	begun  bool
	kind   string
	data   []byte
	filled bool // data has a line, which may be empty
	long   []byte
}

// events are those of the body, and the error that it ended with, if it did not
// simply end. ctx is the attempt's. A body that is whole says itself where it ends.
//
// What a line takes that is longer than the reader's buffer is held: until its event
// has been taken in.
func (a *answer) events(ctx context.Context, hold func(bytes int) error, whole bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		p := &parser{in: bufio.NewReaderSize(a, lineSize), hold: hold, whole: whole}
		defer p.drop()
		for {
			line, err := p.line()
			for err == nil && line != nil { // a CR ends a line, too
				var one []byte
				if at := bytes.IndexByte(line, '\r'); at < 0 {
					one, line = line, nil
				} else {
					one, line = line[:at], line[at+1:]
				}
				var e Event
				var ready bool
				if e, ready, err = p.parseLine(one); ready && !yield(e, nil) {
					return
				} else if ready {
					p.drop()
				}
			}
			if errors.Is(err, io.EOF) {
				if p.filled {
					yield(p.event(), nil)
				}
				return
			}
			if err != nil {
				yield(Event{}, a.why(ctx, err))
				return
			}
		}
	}
}

// line is the next line without its end; it is valid until the next call. io.EOF: there
// is none. The last line of a body that does not say where it ends may have been cut.
func (p *parser) line() ([]byte, error) {
	p.long = p.long[:0]
	for {
		part, err := p.in.ReadSlice('\n')
		if len(p.long)+len(part)+len(p.data) > maxEvent {
			return nil, &Error{Message: fmt.Sprintf("an event of the answer is longer than %d MiB", maxEvent>>20)}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if err := p.grow(len(part)); err != nil {
				return nil, err
			}
			p.long = append(p.long, part...)
			continue
		case err != nil && len(p.long)+len(part) > 0 && !(errors.Is(err, io.EOF) && p.whole):
			return nil, io.ErrUnexpectedEOF
		case err != nil && len(p.long)+len(part) == 0:
			return nil, err
		}
		if len(p.long) > 0 {
			p.long = append(p.long, part...)
			part = p.long
		}
		part = bytes.TrimSuffix(part, []byte("\n"))
		return bytes.TrimSuffix(part, []byte("\r")), nil
	}
}

// parseLine reads one line. An empty one ends the event. A line "error:" is llama-server's
// own, and no event comes after it.
func (p *parser) parseLine(line []byte) (e Event, ready bool, err error) {
	if !p.begun {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
		p.begun = true
	}
	if len(line) == 0 {
		ready = p.filled
		return p.event(), ready, nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if p.filled {
			p.data = append(p.data, '\n')
			err = p.grow(len(value))
		}
		p.data, p.filled = append(p.data, value...), true
	case "event":
		p.kind = string(value)
	case "error":
		return e, false, Failure(jsontext.Value(value))
	}
	return e, false, err
}

// event is what has come since the last one.
func (p *parser) event() Event {
	e := Event{p.kind, string(p.data)}
	p.kind, p.data, p.filled = "", p.data[:0], false
	return e
}

// grow holds what a line takes that goes on.
func (p *parser) grow(n int) error {
	if p.hold == nil {
		return nil
	}
	if err := p.hold(lineCost * n); err != nil {
		return err
	}
	p.held += lineCost * n
	return nil
}

// drop gives back what the lines of an event have taken.
func (p *parser) drop() {
	if p.held > 0 {
		_ = p.hold(-p.held) // giving back is no error
		p.held, p.long, p.data = 0, nil, nil
	}
}

// Package sse reads server-sent events (WHATWG HTML, 9.2.6): answers of models, and of MCP
// servers.
//
// Concurrency: a Reader belongs to one goroutine. Next blocks as its input does.
//
// It refuses an event that is longer than its Reader allows. It does not connect again; what
// a server asks for then is in ID and Retry.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

// Bounds of what an event asks for, besides its data.
const (
	MaxID    = 4 << 10 // bytes, also of a type
	MaxRetry = 5 * time.Minute
)

const free = 64 << 10 // bytes of an event that are not held

// ErrLong is the error of an event that is too long.
var ErrLong = errors.New("an event is too long")

// Event is one event. Nothing of it changes when the next one is read.
type Event struct {
	Type  string        // "": not said
	ID    string        // "": not said
	Retry time.Duration // the wait before a connection is made again; 0: not said
	Data  []byte        // nil: it has none
}

// Options are what readers differ in.
type Options struct {
	Most int // bytes of an event, its fields' names included
	// Hold is asked for room for an event that is longer than 64 KiB, before it is kept. The
	// room is given back, with a negative number, when the next one is read. nil: nobody counts.
	Hold func(bytes int) error
	// Other gets a field that is none of the standard's. Its error ends the events. nil: it is
	// passed over.
	Other func(name, value []byte) error
	// Lenient: the last event counts without an empty line behind it.
	Lenient bool
	// Whole: the input is not cut where it ends, so that its last line counts without its end.
	Whole bool
}

// Reader reads events. Lines end with LF, CRLF or CR.
type Reader struct {
	o     Options
	in    *bufio.Reader
	long  []byte // of a line that is not in the buffer as a whole
	size  int    // of the event so far
	held  int
	cr    bool // the line before ended with CR: an LF that follows is of its end
	begun bool
}

// NewReader returns a Reader of the events of in. Drop it at the end where it has Hold.
func NewReader(in io.Reader, o Options) *Reader {
	return &Reader{o: o, in: bufio.NewReader(in)}
}

// Next returns the next event in which something is said. The error is ErrLong, io.EOF,
// io.ErrUnexpectedEOF where the last line has no end, that of the input, of Hold or of Other.
func (r *Reader) Next() (ev Event, err error) {
	r.Drop()
	for said := false; ; {
		line, err := r.line()
		switch {
		case errors.Is(err, io.EOF) && said && r.o.Lenient:
			return ev, nil
		case err != nil:
			return Event{}, err
		case len(line) == 0 && said:
			return ev, nil
		case len(line) == 0:
			r.size = 0
			continue
		}
		known, err := r.add(&ev, line)
		if err != nil {
			return Event{}, err
		}
		said = said || known
	}
}

// Drop gives back what the last event has held.
func (r *Reader) Drop() {
	if r.held > 0 {
		_ = r.o.Hold(-r.held) // giving back is no error
		r.held, r.long = 0, nil
	}
	r.size = 0
}

// line is the next line without its end, valid until the next one is read.
func (r *Reader) line() ([]byte, error) {
	r.long = r.long[:0]
	for {
		part, err := r.part()
		switch {
		case errors.Is(err, io.EOF) && len(r.long) > 0 && r.o.Whole:
			return r.trimMark(r.long), nil
		case errors.Is(err, io.EOF) && len(r.long) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		n := bytes.IndexByte(part, '\n')
		if n < 0 {
			n = len(part)
		}
		if at := bytes.IndexByte(part[:n], '\r'); at >= 0 {
			n = at
		}
		read := min(n+1, len(part))
		if err := r.count(read); err != nil {
			return nil, err
		}
		r.cr = n < read && part[n] == '\r'
		_, _ = r.in.Discard(read) // it is there
		line := part[:n]
		if n == read || len(r.long) > 0 {
			r.long = append(r.long, line...)
			line = r.long
		}
		if n < read {
			return r.trimMark(line), nil
		}
	}
}

// trimMark takes the byte order mark off the first line.
func (r *Reader) trimMark(line []byte) []byte {
	if r.begun {
		return line
	}
	r.begun = true
	return bytes.TrimPrefix(line, []byte("\ufeff"))
}

// count counts n more bytes of the event, before they are kept.
func (r *Reader) count(n int) error {
	if r.size += n; r.size > r.o.Most {
		return fmt.Errorf("%w: more than %d bytes", ErrLong, r.o.Most)
	}
	if more := r.size - r.held; r.size > free && r.o.Hold != nil {
		if err := r.o.Hold(more); err != nil {
			return err
		}
		r.held += more
	}
	return nil
}

// part is what has come and is not read yet, at least a byte. The LF of a CRLF is
// passed over: with the CR the line had ended.
func (r *Reader) part() ([]byte, error) {
	first, err := r.in.Peek(1)
	if err == nil && r.cr && first[0] == '\n' {
		r.cr = false
		_, _ = r.in.Discard(1)
		_, err = r.in.Peek(1)
	}
	if err != nil {
		return nil, err
	}
	return r.in.Peek(r.in.Buffered())
}

// add adds a line to an event. false: it says nothing.
func (r *Reader) add(ev *Event, line []byte) (bool, error) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if ev.Data == nil {
			ev.Data = make([]byte, 0, len(value))
		} else {
			ev.Data = append(ev.Data, '\n')
		}
		ev.Data = append(ev.Data, value...)
	case "event":
		ev.Type = string(value[:min(len(value), MaxID)])
	case "id":
		if len(value) > MaxID || bytes.IndexByte(value, 0) >= 0 || !utf8.Valid(value) {
			return false, nil
		}
		ev.ID = string(value)
	case "retry":
		n, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil {
			return false, nil
		}
		ev.Retry = min(time.Duration(n)*time.Millisecond, MaxRetry)
	case "": // a comment
		return false, nil
	default:
		if r.o.Other != nil {
			return false, r.o.Other(name, value)
		}
		return false, nil
	}
	return true, nil
}

package mcp

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

// maxEventID and maxRetry bound what a server's event asks for.
const (
	maxEventID = 4 << 10 // bytes
	maxRetry   = 5 * time.Minute
)

// event is one of a stream of server-sent events, as far as the protocol uses it.
type event struct {
	name  string
	id    string
	retry time.Duration // 0: not said
	data  []byte
}

// events reads a stream of server-sent events (WHATWG HTML, 9.2.6). Lines end with
// LF, CRLF or CR. It belongs to one goroutine.
type events struct {
	in   *bufio.Reader
	most int  // bytes of an event
	left int  // of the one that is read
	cr   bool // the line before ended with CR: an LF that follows is of its end
}

func newEvents(in io.Reader, most int) *events {
	return &events{in: bufio.NewReader(in), most: most}
}

// next returns the next event. What the stream ends in the middle of is none.
func (e *events) next() (ev event, err error) {
	e.left = e.most
	for said := false; ; {
		line, err := e.line()
		switch {
		case err != nil:
			return event{}, err
		case len(line) > 0:
			said = ev.take(line) || said
		case said:
			return ev, nil
		default:
			e.left = e.most
		}
	}
}

var errLongEvent = errors.New("an event of the server is too long")

// line is the next line without its end, valid until the next one is read.
func (e *events) line() ([]byte, error) {
	var whole []byte
	for {
		part, err := e.part()
		if err != nil {
			return nil, err
		}
		n := bytes.IndexAny(part, "\r\n")
		read := n + 1
		if n < 0 {
			n, read = len(part), len(part)
		}
		if e.left -= read; e.left < 0 {
			return nil, fmt.Errorf("%w: more than %d bytes", errLongEvent, e.most)
		}
		e.cr = n < read && part[n] == '\r'
		_, _ = e.in.Discard(read) // it is there
		switch {
		case n < read && whole == nil:
			return part[:n], nil
		case n < read:
			return append(whole, part[:n]...), nil
		}
		whole = append(whole, part...)
	}
}

// part is what has come and is not read yet, at least a byte. The LF of a CRLF is
// passed over: with the CR the line had ended.
func (e *events) part() ([]byte, error) {
	first, err := e.in.Peek(1)
	if err == nil && e.cr && first[0] == '\n' {
		e.cr = false
		_, _ = e.in.Discard(1)
		_, err = e.in.Peek(1)
	}
	if err != nil {
		return nil, err
	}
	return e.in.Peek(e.in.Buffered())
}

// take takes a line in. false: it says nothing.
func (ev *event) take(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if ev.data != nil {
			ev.data = append(ev.data, '\n')
		}
		ev.data = append(ev.data, value...)
		if ev.data == nil {
			ev.data = []byte{}
		}
	case "event":
		ev.name = string(value[:min(len(value), maxEventID)])
	case "id":
		if len(value) > maxEventID || bytes.IndexByte(value, 0) >= 0 || !utf8.Valid(value) {
			return false
		}
		ev.id = string(value)
	case "retry":
		n, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil {
			return false
		}
		ev.retry = min(time.Duration(n)*time.Millisecond, maxRetry)
	default:
		return false
	}
	return true
}

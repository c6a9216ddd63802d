package ssh

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// conn is one connection of a client's. It reads whole lines of a bounded length, and what its
// owner does not read stays at the far end.
type conn struct {
	net.Conn // to who carries it
	t        *trunk
	kind     byte
	open     context.Context // until Close, or the Link's
	close    context.CancelFunc

	reading sync.Mutex
	lines   *protocol.LineReader
	rest    []byte // of the last line
}

func newConn(t *trunk, kind byte, near net.Conn) *conn {
	c := &conn{Conn: near, t: t, kind: kind}
	c.open, c.close = context.WithCancel(t.link)
	c.lines = protocol.NewLineReader(&endless{r: near}, maxLine).Within(t.room)
	return c
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for len(c.rest) == 0 && len(p) > 0 {
		var err error
		if c.rest, err = c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next is the next line that its owner is to read, or nothing.
func (c *conn) next() ([]byte, error) {
	line, err := c.lines.Next()
	var long *protocol.LineTooLongError
	switch {
	case errors.As(err, &long):
		return c.refuse(long)
	case errors.Is(err, errEndless):
		return nil, &Error{Host: c.t.o.Host, What: err.Error(), Lost: true}
	case err != nil:
		return nil, c.lost()
	case c.lines.Cut(), line[len(line)-1] == CutMark: // ssh, or the daemon, died in the middle
		return nil, nil
	}
	if c.t.session == nil {
		if f, ok := cutFailure(line); ok {
			return nil, f.of(c.t.o.Host, true)
		}
	}
	return append(line, '\n'), nil // where its own end was
}

// refuse refuses, in the place of the far end, what it answers with a line that has no room.
func (c *conn) refuse(e *protocol.LineTooLongError) ([]byte, error) {
	why := errLong
	if e.NoRoom {
		why = errFull
	}
	start, end, ok := idOf(e.Prefix)
	if !ok || c.kind != ToCommands {
		return nil, &Error{Host: c.t.o.Host, What: why.Error(), Lost: true}
	}
	id := strings.Trim(string(e.Prefix[start:end]), `"`)
	return protocol.AppendError(nil, id, protocol.Errorf(protocol.Code(protocol.LineTooLong), "%s: %v", c.t.o.Host, why)),
		nil
}

// lost says why nothing more can be read or written.
func (c *conn) lost() error {
	switch {
	case c.t.link.Err() != nil:
		return client.ErrClosed
	case c.open.Err() != nil:
		return net.ErrClosed
	case c.t.session == nil || c.t.session.IsClosed():
		return c.t.reason()
	}
	select {
	case <-c.t.gone:
		return c.t.reason()
	case <-c.open.Done():
	case <-time.After(lingering):
	}
	return &Error{Host: c.t.o.Host, What: "the daemon has closed the connection", Lost: true}
}

// Write implements net.Conn. It blocks while the far end takes nothing.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		err = c.lost()
	}
	return n, err
}

// Close implements net.Conn. The far end hangs up as well.
func (c *conn) Close() error {
	c.close()
	_ = c.Conn.Close()
	c.reading.Lock()
	defer c.reading.Unlock()
	c.lines.Close()
	c.rest = nil
	return nil
}

// endless ends with errEndless in a line that has no end.
type endless struct {
	r    io.Reader
	line int // bytes since one has ended
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if e.line += n; bytes.IndexByte(p[:n], '\n') >= 0 {
		e.line = 0
	} else if e.line > maxPassed {
		return n, errEndless
	}
	return n, err
}

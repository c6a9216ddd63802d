package ssh

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// held is what a connection holds for an owner that does not read, in bytes beside
	// one line of any length.
	held = 8 << 20
	// lineCost is what a line takes beside its bytes.
	lineCost = 64
)

// conn is one connection of a client's. What its owner writes goes to send in whole
// lines; what comes is held until it is read.
type conn struct {
	t      *trunk
	number uint64 // of a command connection, from 1; 0 is one for events
	send   func(*conn, []byte) error

	writing sync.Mutex
	begun   []byte // a line that the owner has begun

	over chan struct{} // closed by Close
	came chan struct{} // cap 1: something may be read

	mu     sync.Mutex
	lines  []heldLine
	size   int   // bytes of the trunk's room that the lines have
	long   int   // those of the longest line; less, if that was read
	read   int   // and those that were read last: their owner has them in hand
	err    error // what is read behind the lines
	closed bool
}

// heldLine is a line, or the rest of it that is not read yet.
type heldLine struct {
	rest []byte
	cost int
}

func newConn(t *trunk, number uint64, send func(*conn, []byte) error) *conn {
	return &conn{t: t, number: number, send: send, over: make(chan struct{}), came: make(chan struct{}, 1)}
}

// put has the owner read a line, which is kept. An owner that reads nothing loses the
// connection, and so does one for whose line there is no room.
func (c *conn) put(line []byte) {
	if err := c.keep(line); err != nil {
		c.end(&Error{Host: c.t.o.Host, What: err.Error(), Lost: true})
	}
	c.wake()
}

func (c *conn) keep(line []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cost := len(line) + lineCost
	switch {
	case c.err != nil || c.closed:
		return nil
	case c.size+cost-max(c.long, cost) > held:
		return errSlow
	case !c.t.room.Take(cost):
		return errFull
	}
	c.lines, c.size, c.long = append(c.lines, heldLine{line, cost}), c.size+cost, max(c.long, cost)
	return nil
}

// end has the owner read err behind what came before.
func (c *conn) end(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.wake()
}

func (c *conn) wake() {
	select {
	case c.came <- struct{}{}:
	default:
	}
}

func (c *conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.closed
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.take(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		select {
		case <-c.came:
		case <-c.over:
		}
	}
}

func (c *conn) take(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.t.room.Give(c.read)
	c.read = 0
	for len(c.lines) > 0 && n < len(p) {
		first := &c.lines[0]
		k := copy(p[n:], first.rest)
		n += k
		if first.rest = first.rest[k:]; len(first.rest) == 0 {
			c.size, c.read = c.size-first.cost, c.read+first.cost
			if first.cost == c.long {
				c.long = 0
			}
			*first = heldLine{}
			c.lines = c.lines[1:]
		}
	}
	if n == 0 {
		err = c.err
	}
	return n, err
}

// Write implements net.Conn. It blocks while ssh takes nothing.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for done := 0; done < len(p); {
		end := bytes.IndexByte(p[done:], '\n')
		if end < 0 {
			if len(c.begun)+len(p)-done > maxLine {
				return done, &Error{Host: c.t.o.Host, What: fmt.Sprintf("a command has at most %d MiB", maxLine>>20)}
			}
			c.begun = append(c.begun, p[done:]...)
			return len(p), nil
		}
		line := append(c.begun, p[done:done+end+1]...)
		c.begun = nil
		if err := c.send(c, line); err != nil {
			return done, err
		}
		done += end + 1
	}
	return len(p), nil
}

// Close implements net.Conn. The far end hangs up as well.
func (c *conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	if first {
		c.t.room.Give(c.size + c.read)
		c.closed, c.lines, c.size, c.read = true, nil, 0, 0
		close(c.over)
	}
	c.mu.Unlock()
	if !first {
		return net.ErrClosed
	}
	c.t.forget(c)
	return nil
}

type address string

func (address) Network() string  { return "ssh" }
func (a address) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address("") }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address(c.t.o.Host + ":" + c.t.hello.Socket) }

// SetDeadline implements net.Conn: there are no deadlines.
func (c *conn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn: there are no deadlines.
func (c *conn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn: there are no deadlines.
func (c *conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

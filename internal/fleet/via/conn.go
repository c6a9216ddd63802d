package via

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conn is what a net.Conn over NATS has in common: lines are put into it by goroutines
// of its own, and are held there by nobody but their reader.
type conn struct {
	host   *Host
	link   *link
	ctx    context.Context // ends with the connection, and says why
	end    context.CancelCauseFunc
	own    sync.WaitGroup
	lines  chan piece
	rest   []byte       // of what is being read
	inHand atomic.Int64 // what that has of the fleet's room
	unsent []byte       // what was written of a line that has not ended
}

// piece is a line with its LF, or a part of one. size is what it has of the fleet's room.
type piece struct {
	text []byte
	size int
}

const (
	// maxLine bounds a line, in bytes, that is written, and a reply's. The server's limit
	// is below it, unless somebody has raised that.
	maxLine = 64 << 20
	// maxHeld bounds all replies of a fleet that nobody has read, in bytes.
	maxHeld = 256 << 20
)

func (h *Host) open(l *link, about string) *conn {
	c := &conn{host: h, link: l, lines: make(chan piece)}
	c.ctx, c.end = l.withDenials(context.Background(), about)
	return c
}

// put waits for the reader. False: the connection has ended.
func (c *conn) put(ctx context.Context, line []byte) bool { return c.hand(ctx, piece{text: line}) }

func (c *conn) hand(ctx context.Context, p piece) bool {
	select {
	case c.lines <- p:
		return true
	case <-ctx.Done():
		return false
	}
}

// Read blocks until there is a line, or a part of one.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case next := <-c.lines:
			c.rest = next.text
			if c.inHand.Store(int64(next.size)); c.ctx.Err() != nil {
				c.handed() // close may not have seen it
			}
		case <-c.ctx.Done():
			return 0, c.why()
		}
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
		c.handed()
	}
	return n, nil
}

// handed gives back what the reader's piece has.
func (c *conn) handed() { c.host.fleet.held.Give(int(c.inHand.Swap(0))) }

// write gives the whole lines of what is written to take.
func (c *conn) write(p []byte, take func(line []byte) error) (int, error) {
	if c.ctx.Err() != nil {
		return 0, c.why()
	}
	if len(c.unsent)+len(p) > maxLine {
		return 0, fmt.Errorf("a line has more than %d bytes", maxLine)
	}
	begin := 0
	for i, b := range p {
		if b != '\n' {
			continue
		}
		line := append(c.unsent, p[begin:i]...)
		c.unsent, begin = nil, i+1
		if err := take(line); err != nil {
			return begin, err
		}
	}
	c.unsent = append(c.unsent, p[begin:]...)
	return len(p), nil
}

func (c *conn) why() error {
	if err := context.Cause(c.ctx); err != nil && err != context.Canceled {
		return err
	}
	return io.EOF
}

func (c *conn) close() error {
	c.host.left(c)
	c.end(net.ErrClosed)
	c.own.Wait()
	c.handed()
	return nil
}

type address struct{ name, server string }

func (address) Network() string  { return "nats" }
func (a address) String() string { return a.name + " at " + a.server }

// LocalAddr is the host's, as RemoteAddr.
func (c *conn) LocalAddr() net.Addr { return c.RemoteAddr() }

// RemoteAddr names the host and the server.
func (c *conn) RemoteAddr() net.Addr { return address{c.host.name, c.link.server} }

// SetDeadline and the like are refused: Close ends what blocks.
func (c *conn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline is refused.
func (c *conn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline is refused.
func (c *conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

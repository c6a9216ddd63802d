package gevals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/tool"
)

const (
	// maxNoise is how many unreadable lines a process may write.
	maxNoise = 3
	// sdkLine is the longest line that the common SDK reads.
	sdkLine = 65_535
	// exitGrace is how long a process has to end by itself: after shutdown, and
	// after it closed its output.
	exitGrace = 2 * time.Second
	// shownStderr is how much of stderr goes into a failure's text, in bytes.
	shownStderr = 4 << 10
	keptStderr  = 64 << 10
)

// conn is one living extension process, and JSON-RPC 2.0 spoken with it. One
// request at a time; the host sees to that.
//
// creachadair/jrpc2 was the plan and cannot meet the contract (v1.3.6): its
// client hands each incoming message to a goroutine of its own, so logs may
// overtake each other and the result, and a flood of them is buffered without
// bound; and it holds its lock while it writes, so that a child that does not
// read also stops the timeout of the call. With both worked around in the
// channel nothing was left for it to do but to count.
type conn struct {
	proc *tool.Process
	log  *zap.Logger
	idle *time.Timer // the host's

	// dead is closed when the process has ended and everything it said has been
	// handed on; exit and fault are valid then.
	dead  chan struct{}
	exit  tool.Exit
	fault *tool.Fault // why we ended it, if we did

	nextID int64 // the requester's

	mu      sync.Mutex
	pending *exchange
}

// exchange is a request that waits for its reply.
type exchange struct {
	id   int64
	said chan *message // unbuffered: a slow listener slows the process
	left chan struct{} // closed when nobody listens any more
}

// newConn reads the process until it ends. Its goroutine ends with the process.
func newConn(p *tool.Process, log *zap.Logger) *conn {
	c := &conn{proc: p, log: log, dead: make(chan struct{})}
	go c.read()
	return c
}

func (c *conn) alive() bool {
	select {
	case <-c.dead:
		return false
	case <-c.proc.Exited():
		return false
	default:
		return true
	}
}

func (c *conn) read() {
	defer close(c.dead)
	c.fault = c.readLines()
	if c.fault != nil {
		c.proc.Stop()
	}
	c.exit = c.proc.Finish(exitGrace)
	if stderr := c.proc.Stderr(keptStderr); stderr != "" {
		c.log.Debug("extension's stderr", zap.Stringer("exit", c.exit), zap.String("stderr", stderr))
	}
}

// readLines hands each message on until the output ends, nil, or cannot be
// trusted any more.
func (c *conn) readLines() *tool.Fault {
	noise := 0
	for {
		line, err := c.proc.Next()
		var long *protocol.LineTooLongError
		switch {
		case errors.As(err, &long):
			return tool.Faultf(tool.ProtocolError, "%v", err)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return tool.Faultf(tool.ProtocolError, "read the extension's output: %v", err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		m, err := decode(line)
		if err != nil {
			noise++
			c.log.Warn("extension wrote a line that is not JSON-RPC",
				zap.ByteString("line", line[:min(len(line), 200)]), zap.Error(err))
			if noise == maxNoise {
				return tool.Faultf(tool.ProtocolError, "the extension wrote %d lines that are not JSON-RPC", noise)
			}
			continue
		}
		c.hand(m)
	}
}

func (c *conn) hand(m *message) {
	c.mu.Lock()
	x := c.pending
	c.mu.Unlock()
	if x != nil {
		select {
		case x.said <- m:
			return
		case <-x.left:
		}
	}
	c.ignore(m)
}

func (c *conn) ignore(m *message) {
	c.log.Debug("extension said something nobody asked for",
		zap.String("method", m.method()), zap.String("id", tool.Shorten(m.ID)), zap.String("params", tool.Shorten(m.Params)))
}

// request sends one request and waits for its reply, for the process to end,
// or for ctx. Logs go to progress, in order. An error is a *[tool.Fault].
func (c *conn) request(ctx context.Context, method string, params any, progress func(model.ToolUpdate)) (jsontext.Value, error) {
	c.nextID++
	x := &exchange{id: c.nextID, said: make(chan *message), left: make(chan struct{})}
	c.mu.Lock()
	c.pending = x
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.pending = nil
		c.mu.Unlock()
		close(x.left)
	}()

	line, err := jsonx.Marshal(struct {
		Version string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", x.id, method, params}, jsontext.AllowInvalidUTF8(true), jsonx.Deterministic(true))
	if err != nil {
		return nil, tool.Faultf(tool.BadRequest, "%s: %v", method, err)
	}
	line = append(line, '\n')
	size := len(line)
	if err := c.proc.Send(line); err != nil {
		return nil, tool.Faultf(tool.Crashed, "%s: %v", method, err)
	}
	for {
		select {
		case m := <-x.said:
			switch {
			case m.answers(x.id):
				return m.outcome()
			case m.isLog() && progress != nil:
				if ctx.Err() == nil {
					progress(logUpdate(m.Params))
				}
			default:
				c.ignore(m)
			}
		case <-c.dead:
			return nil, c.epitaph(size)
		case <-ctx.Done():
			return nil, tool.Interrupted(ctx)
		}
	}
}

// epitaph says why the process is no more, to the request it left unanswered.
func (c *conn) epitaph(size int) *tool.Fault {
	f := c.fault
	if f == nil {
		f = tool.Faultf(tool.Crashed, "the extension ended before it answered: %v", c.exit)
		if size > sdkLine {
			f.Message += fmt.Sprintf("; the request was a line of %d bytes, and many extensions cannot read more than %d", size, sdkLine)
		}
	} else {
		f = &tool.Fault{Code: f.Code, Message: f.Message}
	}
	details := struct {
		Exit   string `json:"exit"`
		Stderr string `json:"stderr,omitzero"`
	}{c.exit.String(), c.proc.Stderr(keptStderr)}
	if text, err := jsonx.Marshal(details); err == nil {
		f.Details = text
	}
	return f
}

// kill ends the process without ceremony and does not wait for it.
func (c *conn) kill() { c.proc.Stop() }

// shutdown asks the process to end and waits until it has: so long for its
// answer, exitGrace for the exit, then by force; by force at once when ctx is
// done (gevals: Shutdown).
func (c *conn) shutdown(ctx context.Context, patience time.Duration) {
	defer context.AfterFunc(ctx, c.proc.Kill)()
	ack, cancel := context.WithTimeout(ctx, patience)
	_, err := c.request(ack, "shutdown", struct{}{}, nil)
	cancel()
	if err != nil && c.alive() {
		c.log.Debug("extension did not acknowledge its shutdown", zap.Error(err))
	}
	c.proc.CloseInput()
	grace := time.AfterFunc(exitGrace, c.proc.Stop)
	defer grace.Stop()
	<-c.dead
}

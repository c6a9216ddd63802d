package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/tool"
)

const (
	// ExitGrace is how long a process has to end by itself: after its input was
	// closed, and after it closed its output.
	ExitGrace = 2 * time.Second
	// maxNoise is how many unreadable lines a living process may write.
	maxNoise = 3
	// keptStderr is how much of stderr goes into a fault's details, in bytes.
	keptStderr = 64 << 10
)

// Dialogue is what one protocol makes of a living process's lines.
type Dialogue[M any] struct {
	// Who is the process in messages, "module" for one.
	Who string
	// Code is that of a fault for output that cannot be read.
	Code string
	// Decode reads one line, copying it. An error means that the line is noise.
	Decode func(line []byte) (M, error)
	// Noise and Noises complete what people learn of one such line, "wrote a
	// line that cannot be read", and of several; Quote adds the last of them.
	Noise, Noises string
	Quote         bool
	// Single says that every question has one line for its answer, and nothing in
	// it tells which: a line too many ends the process.
	Single bool
	// Unasked is told what nobody waits for, but for a Single dialogue.
	Unasked func(M)
}

// Conn is a living process that is asked one thing at a time. Ask belongs to
// one goroutine at a time; the rest may be called from any. It is most of a
// [Worker].
type Conn[M any] struct {
	proc     *proc.Process
	dialogue Dialogue[M]
	log      *zap.Logger

	// dead is closed when the process has ended and everything it said has been
	// handed on; exit and fault are valid then.
	dead  chan struct{}
	exit  proc.Exit
	fault *tool.Fault // why we ended it, if we did

	spoilt atomic.Bool // it has said more than it was asked

	mu      sync.Mutex
	pending *exchange[M]
}

// exchange is a question that waits for its answer.
type exchange[M any] struct {
	strict bool
	said   chan M        // unbuffered: a slow listener slows the process
	left   chan struct{} // closed when nobody listens any more
}

// NewConn reads the process until it ends. Its goroutine ends with the process.
func NewConn[M any](p *proc.Process, d Dialogue[M], log *zap.Logger) *Conn[M] {
	c := &Conn[M]{proc: p, dialogue: d, log: log, dead: make(chan struct{})}
	go c.read()
	return c
}

// Alive reports whether the process has not ended and can be asked more.
func (c *Conn[M]) Alive() bool {
	if c.spoilt.Load() {
		return false
	}
	select {
	case <-c.dead:
		return false
	case <-c.proc.Exited():
		return false
	default:
		return true
	}
}

// Ended is closed when the process has ended and all it said is handed on.
func (c *Conn[M]) Ended() <-chan struct{} { return c.dead }

// Exit tells how the process has ended, if it has.
func (c *Conn[M]) Exit() (exit proc.Exit, ended bool) {
	select {
	case <-c.dead:
		return c.exit, true
	default:
		return proc.Exit{}, false
	}
}

// Kill ends the process without ceremony and does not wait for it.
func (c *Conn[M]) Kill() { c.proc.Stop() }

// Shutdown closes the process's input and waits until it has ended: [ExitGrace]
// by itself, then by force; by force at once when ctx is done.
func (c *Conn[M]) Shutdown(ctx context.Context) {
	defer context.AfterFunc(ctx, c.proc.Kill)()
	c.proc.CloseInput()
	grace := time.AfterFunc(ExitGrace, c.proc.Stop)
	defer grace.Stop()
	<-c.dead
}

// Stderr returns the last of the process's stderr, at most limit bytes.
func (c *Conn[M]) Stderr(limit int) string { return c.proc.Stderr(limit) }

// Ask sends a line, which it owns from then on, and calls hear with each
// message until hear says that it was the last. It ends early with the process
// or with ctx. With strict set, a line that is noise ends the process. The
// error is a *[Fault]: crashed, with the exit status, the dialogue's code, or
// as [Interrupted] says.
func (c *Conn[M]) Ask(ctx context.Context, line []byte, strict bool, hear func(M) (last bool)) error {
	x := &exchange[M]{strict: strict, said: make(chan M), left: make(chan struct{})}
	c.await(x)
	defer func() {
		c.await(nil)
		close(x.left)
	}()
	err := c.proc.Send(line)
	ending := errors.Is(err, os.ErrClosed) // how it ends is known soon
	if err != nil && !ending {
		return tool.Faultf(tool.Crashed, "ask the %s: %v", c.dialogue.Who, err)
	}
	for {
		select {
		case m := <-x.said:
			if !ending && hear(m) {
				return nil
			}
		case <-c.dead:
			return c.epitaph()
		case <-ctx.Done():
			return tool.Interrupted(ctx)
		}
	}
}

func (c *Conn[M]) await(x *exchange[M]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = x
}

func (c *Conn[M]) awaited() *exchange[M] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

func (c *Conn[M]) read() {
	defer close(c.dead)
	c.fault = c.readLines()
	if c.fault != nil {
		c.proc.Stop()
	}
	c.exit = c.proc.Finish(ExitGrace)
	if stderr := c.proc.Stderr(keptStderr); stderr != "" {
		c.log.Debug(c.dialogue.Who+"'s stderr", zap.Stringer("exit", c.exit), zap.String("stderr", stderr))
	}
}

// readLines hands each message on until the output ends, nil, or cannot be
// trusted any more.
func (c *Conn[M]) readLines() *tool.Fault {
	d := c.dialogue
	noise := 0
	for {
		line, err := c.proc.Next()
		var long *protocol.LineTooLongError
		switch {
		case errors.As(err, &long):
			return tool.Faultf(d.Code, "%v", err)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return tool.Faultf(d.Code, "read the %s's output: %v", d.Who, err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		err = c.dispatch(line)
		var fault *tool.Fault
		if errors.As(err, &fault) {
			return fault
		}
		if err == nil {
			continue
		}
		noise++
		c.log.Warn(d.Who+" wrote a line that "+d.Noise,
			zap.ByteString("line", line[:min(len(line), 200)]), zap.Error(err))
		if x := c.awaited(); x != nil && x.strict {
			return tool.Faultf(d.Code, "the %s's answer cannot be read: %v: %s", d.Who, err, quote(line))
		}
		if noise == maxNoise {
			f := tool.Faultf(d.Code, "the %s wrote %d lines that %s", d.Who, noise, d.Noises)
			if d.Quote {
				f.Message += ", the last one " + quote(line)
			}
			return f
		}
	}
}

// dispatch hands on what a line says. An error that is no [Fault] means that the line
// is noise.
func (c *Conn[M]) dispatch(line []byte) error {
	defer c.proc.Turn(line)()
	m, err := c.dialogue.Decode(line)
	if err != nil {
		return err
	}
	if c.dialogue.Single && c.proc.More() {
		c.spoilt.Store(true) // before the asker can ask again
	}
	if !c.hand(m) || c.spoilt.Load() {
		return tool.Faultf(c.dialogue.Code, "the %s wrote more lines than it was asked for", c.dialogue.Who)
	}
	return nil
}

// hand passes a message to the goroutine that waits for it. False: nobody does, and what
// comes next cannot be told apart from it.
func (c *Conn[M]) hand(m M) bool {
	if x := c.awaited(); x != nil {
		select {
		case x.said <- m:
			return true
		case <-x.left:
		}
	}
	if c.dialogue.Single {
		return false
	}
	c.dialogue.Unasked(m)
	return true
}

// epitaph says why the process is no more, to the question it left unanswered.
func (c *Conn[M]) epitaph() *tool.Fault {
	f := &tool.Fault{Code: tool.Crashed, Message: fmt.Sprintf("the %s ended before it answered: %v", c.dialogue.Who,
		c.exit)}
	if c.fault != nil {
		*f = *c.fault
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

func quote(line []byte) string { return strings.ToValidUTF8(tool.Shorten(line), "\uFFFD") }

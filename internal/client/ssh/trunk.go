package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/budget"
	"noused/internal/client"
	"noused/internal/protocol"
)

const (
	maxLine    = 64 << 20  // bytes of a line, in either direction
	maxHeld    = 256 << 20 // bytes of lines from far ends, which all Links have together
	maxPassed  = 1 << 30   // bytes of a line that is passed over as it is too long
	maxNoise   = 64 << 10  // bytes before the hello
	maxAsked   = 1 << 10   // subscriptions that wait
	maxControl = 4 << 10   // lines of its own that ssh has not taken
	toldEnd    = time.Second * 5
)

// room is for the lines that all Links of this program hold.
var room = budget.New(maxHeld)

// trunk is what all connections share: ssh, with a proxy behind it.
type trunk struct {
	o     Options
	p     *process
	hello Hello
	room  *budget.Budget
	lines *protocol.LineReader

	out   chan []byte   // lines of owners, to the writer
	nudge chan struct{} // cap 1: control has lines
	gone  chan struct{} // closed once err is set
	over  chan struct{} // closed when ssh has ended and nobody works for it any more

	mu      sync.Mutex
	err     error
	last    uint64 // number given to a connection, or to a line
	conns   map[*conn]struct{}
	asked   map[string]asked // by id at the far end
	control [][]byte         // lines of the trunk's own, which go first
	feed    feed
}

// asked is a command that is not answered, and what to do with its answer.
type asked struct {
	number uint64
	from   *conn
	id     []byte            // as its owner wrote it; nil: it could not be read
	answer func(line []byte) // nil: it is from's
}

// meet waits for the hello of a proxy.
func meet(ctx context.Context, o Options, p *process) (*trunk, error) {
	noisy := &bounded{r: p.out, left: maxNoise}
	t := &trunk{
		o: o, p: p, room: room, lines: protocol.NewLineReader(noisy, maxLine).Within(room),
		out: make(chan []byte), nudge: make(chan struct{}, 1), gone: make(chan struct{}), over: make(chan struct{}),
		conns: map[*conn]struct{}{}, asked: map[string]asked{},
	}
	cut := context.AfterFunc(ctx, func() { _ = p.out.SetReadDeadline(time.Unix(1, 0)) })
	err := t.greet()
	if !cut() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		t.lines.Close()
	}
	if err != nil && ctx.Err() != nil {
		return nil, &Error{Host: o.Host, What: "there was no answer in time", Said: p.words.String(), Next: o.try()}
	}
	if err != nil {
		return nil, err
	}
	noisy.left = -1
	t.feed.quiet(t)
	return t, nil
}

// greet reads up to the hello. What shells say before it is passed over.
func (t *trunk) greet() error {
	noise := &words{}
	for {
		line, err := t.lines.Next()
		switch {
		case errors.Is(err, errNoise):
			return &Error{Host: t.o.Host, What: "more than 64 KiB were said there, and no hello by nous", Next: "have the far shell's startup files write nothing where standard input is no terminal"}
		case err != nil:
			if errors.Is(err, os.ErrDeadlineExceeded) && t.alive() {
				return err
			}
			select {
			case <-t.p.exited:
				return ended(t.o, t.p, noise.String())
			case <-time.After(toldEnd):
				return &Error{Host: t.o.Host, What: fmt.Sprintf("ssh has closed its output: %v", err)}
			}
		}
		if hello, ok := cutHello(line); ok {
			t.hello = hello
			if hello.Proxy != 1 {
				return &Error{Host: t.o.Host, What: fmt.Sprintf("nous there is another version (%s), whose proxy this one does not know", hello.Version), Next: "update the older one of the two"}
			}
			return nil
		}
		if f, ok := cutFailure(line); ok {
			return f.of(t.o.Host, false)
		}
		_, _ = noise.Write(append(bytes.Clone(line), '\n'))
	}
}

// cutHello finds a hello, which a banner without an end may stand before.
func cutHello(line []byte) (h Hello, ok bool) {
	i := bytes.Index(line, []byte(`{"proxy":`))
	return h, i >= 0 && json.Unmarshal(line[i:], &h) == nil && h.Proxy > 0
}

func cutFailure(line []byte) (f failure, ok bool) {
	i := bytes.Index(line, []byte(`{"ok":false`))
	return f, i >= 0 && json.Unmarshal(line[i:], &f) == nil && f.is()
}

// bounded ends with errNoise after so many bytes, less than 0 is none, and with errEndless
// in a line that has no end.
type bounded struct {
	r    io.Reader
	left int
	line int // bytes since one has ended
}

func (b *bounded) Read(p []byte) (int, error) {
	switch {
	case b.left == 0:
		return 0, errNoise
	case b.left > 0:
		p = p[:min(len(p), b.left)]
	}
	n, err := b.r.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	if b.line += n; bytes.IndexByte(p[:n], '\n') >= 0 {
		b.line = 0
	} else if b.line > maxPassed {
		return n, errEndless
	}
	return n, err
}

func (t *trunk) alive() bool {
	select {
	case <-t.gone:
		return false
	case <-t.p.exited:
		return false
	default:
		return true
	}
}

// serve blocks until the trunk has ended, and all of it.
func (t *trunk) serve() {
	defer close(t.over)
	var writing sync.WaitGroup
	writing.Go(t.write)
	t.end(t.read())
	t.lines.Close()
	<-t.p.exited
	writing.Wait()
}

// end ends every connection for the first reason it is given.
func (t *trunk) end(reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	t.err = reason
	close(t.gone)
	for c := range t.conns {
		c.end(reason)
	}
	t.p.end()
}

// read takes what the far end says, until it says no more.
func (t *trunk) read() error {
	for {
		line, err := t.lines.Next()
		var long *protocol.LineTooLongError
		switch {
		case errors.As(err, &long):
			err = t.tooLong(long)
		case errors.Is(err, errEndless):
			return &Error{Host: t.o.Host, What: err.Error(), Lost: true}
		case err != nil:
			select {
			case <-t.p.exited:
			case <-time.After(toldEnd):
			}
			return t.lost(err)
		case t.lines.Cut(), line[len(line)-1] == CutMark:
			continue // ssh, or the daemon, died in the middle
		default:
			err = t.handleLine(line)
		}
		if err != nil {
			return err
		}
	}
}

// write passes lines on to ssh. A failed write does not end the trunk: read finds out why.
func (t *trunk) write() {
	for {
		var lines [][]byte
		select {
		case <-t.nudge:
			t.mu.Lock()
			lines, t.control = t.control, nil
			t.mu.Unlock()
		default:
			select {
			case <-t.nudge:
				t.mu.Lock()
				lines, t.control = t.control, nil
				t.mu.Unlock()
			case line := <-t.out:
				lines = [][]byte{line}
			case <-t.gone:
				return
			}
		}
		for _, line := range lines {
			if _, err := t.p.in.Write(line); err != nil {
				return
			}
		}
	}
}

// say sends a line of the trunk's own. mu is held.
func (t *trunk) say(line []byte) {
	t.control = append(t.control, line)
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

func (t *trunk) commands() net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	return t.begin(newConn(t, t.last, (*conn).command))
}

func (t *trunk) events() net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin(newConn(t, 0, (*conn).subscribe))
}

// begin has a connection end with the trunk. mu is held.
func (t *trunk) begin(c *conn) net.Conn {
	if t.err != nil {
		c.end(t.err)
	}
	t.conns[c] = struct{}{}
	return c
}

// forget is the end of a connection: its owner's, or one that the far end made.
func (t *trunk) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.conns[c]; !ok {
		return
	}
	delete(t.conns, c)
	for id, a := range t.asked {
		if a.from == c && a.answer == nil {
			delete(t.asked, id)
		}
	}
	if c.number == 0 {
		t.feed.leave(t, c)
	} else if t.hello.Connections && t.err == nil {
		t.say([]byte(`{"connection":` + strconv.FormatUint(c.number, 10) + "}\n"))
	}
}

// ask gives a command an id that no other has. mu is not held.
func (t *trunk) ask(a asked) (id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.askLocked(a)
}

func (t *trunk) askLocked(a asked) string {
	t.last++
	a.number = t.last
	id := "n" + strconv.FormatUint(t.last, 10)
	t.asked[id] = a
	return id
}

// command sends an owner's line under an id of the trunk's.
func (c *conn) command(line []byte) error {
	t := c.t
	start, end, ok := idOf(line)
	a := asked{from: c}
	if ok {
		a.id = bytes.Clone(line[start:end])
	}
	id := t.ask(a)
	if ok {
		line = bytes.Join([][]byte{line[:start], []byte(id), line[end:]}, []byte{'"'})
		if t.hello.Connections {
			open := bytes.IndexByte(line, '{') + 1
			line = append([]byte(`{"connection":`+strconv.FormatUint(c.number, 10)+","), line[open:]...)
		}
	}
	if err := c.hand(line); err != nil {
		t.drop(id)
		return err
	}
	return nil
}

// hand gives a line to the writer.
func (c *conn) hand(line []byte) error {
	select {
	case c.t.out <- line:
		return nil
	case <-c.over:
		return net.ErrClosed
	case <-c.t.gone:
		c.t.mu.Lock()
		defer c.t.mu.Unlock()
		return c.t.err
	}
}

func (t *trunk) drop(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.asked, id)
}

// handleLine gives a line of the far end's to whom it is for.
func (t *trunk) handleLine(line []byte) error {
	if number, ok := hungUp(line); ok {
		t.hangUp(number)
		return nil
	}
	start, end, ok := idOf(line)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok {
		id := string(bytes.Trim(line[start:end], `"`))
		if a, ok := t.asked[id]; ok {
			delete(t.asked, id)
			t.answer(a, line, start, end)
			if len(t.control) > maxControl {
				return errDeaf
			}
			return nil
		}
	}
	return t.other(line)
}

// tooLong refuses, in the place of the far end, what it answers with a line that has no
// room for.
func (t *trunk) tooLong(e *protocol.LineTooLongError) error {
	why := errLong
	if e.NoRoom {
		why = errFull
	}
	start, end, _ := idOf(e.Prefix)
	t.mu.Lock()
	defer t.mu.Unlock()
	id := string(bytes.Trim(e.Prefix[start:end], `"`))
	a, ok := t.asked[id]
	if !ok || a.answer != nil {
		return &Error{Host: t.o.Host, What: why.Error(), Lost: true}
	}
	delete(t.asked, id)
	line := protocol.AppendError(nil, id, protocol.Errorf(protocol.Code(protocol.LineTooLong), "%s: %v", t.o.Host, why))
	line = bytes.TrimSuffix(line, []byte{'\n'})
	start, end, _ = idOf(line)
	t.answer(a, line, start, end)
	return nil
}

// answer gives a reply back under the id that its owner chose. mu is held.
func (t *trunk) answer(a asked, line []byte, start, end int) {
	id := a.id
	if id == nil {
		id = line[start:end]
	}
	own := make([]byte, 0, len(line)-(end-start)+len(id)+1)
	own = append(append(append(append(own, line[:start]...), id...), line[end:]...), '\n')
	if a.answer != nil {
		a.answer(own)
		return
	}
	a.from.put(own)
}

// other is a line that answers no command by its id. mu is held.
func (t *trunk) other(line []byte) error {
	var e envelope
	if err := json.Unmarshal(line, &e); err != nil {
		return &client.ForeignError{Err: fmt.Errorf("%s: %w", t.o.Host, err)}
	}
	switch {
	case e.OK == nil:
		t.feed.event(t, e, line)
	case *e.OK, e.Error == nil:
		// the answer to a connection that is closed
	case e.Type == "" && e.ID == "":
		return failure{OK: e.OK, Error: e.Error}.of(t.o.Host, true)
	case e.ID == "":
		t.unnamed(line)
	}
	return nil
}

// unnamed is an error without an id: it answers a line whose id could not be read, or an older
// core has left it out. It goes to the oldest of those, or of all. mu is held.
func (t *trunk) unnamed(line []byte) {
	var of string
	for id, a := range t.asked {
		best, found := t.asked[of]
		if !found || (a.id == nil) != (best.id == nil) && a.id == nil || (a.id == nil) == (best.id == nil) && a.number < best.number {
			of = id
		}
	}
	if a, ok := t.asked[of]; ok && a.from != nil {
		if a.id == nil {
			delete(t.asked, of)
		}
		a.from.put(append(bytes.Clone(line), '\n'))
	}
}

// hangUp is a command connection that the daemon has closed.
func (t *trunk) hangUp(number uint64) {
	t.mu.Lock()
	var gone *conn
	for c := range t.conns {
		if c.number == number {
			gone = c
		}
	}
	t.mu.Unlock()
	if gone != nil {
		gone.end(&Error{Host: t.o.Host, What: "the daemon has closed the connection", Lost: true})
	}
}

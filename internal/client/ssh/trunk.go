package ssh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/yamux"

	"noused/internal/budget"
	"noused/internal/client"
)

const (
	maxLine   = 64 << 20  // bytes of a line from a far end
	maxHeld   = 256 << 20 // bytes of lines from far ends, which all Links have together
	maxPassed = 1 << 30   // bytes of a line that is passed over as it is too long
	maxNoise  = 64 << 10  // bytes before the hello
	toldEnd   = time.Second * 5
	lingering = time.Second // for a daemon's end, which is a better reason than that of one connection
)

// room is for the lines that all Links of this program hold.
var room = budget.New(maxHeld)

// errTaken is what a trunk without a session says to a second connection.
var errTaken = errors.New("it has its connection")

// trunk is ssh, with a proxy behind it, and what goes over it: a session with streams for all
// connections or, where the proxy is older, the lines of one.
type trunk struct {
	o       Options
	p       *process
	in      *bufio.Reader // what the far end says
	hello   Hello
	room    *budget.Budget
	session *yamux.Session // nil: the proxy is older

	link context.Context // the Link's, until its Close
	gone chan struct{}   // closed once err is set
	over chan struct{}   // closed when ssh has ended
	wg   sync.WaitGroup  // who carries connections: what has come is read, though ssh has ended

	mu      sync.Mutex
	err     error
	streams int // of an older proxy: one, once its connection was made
}

// meet waits for the hello of a proxy, and begins a session.
func meet(ctx, link context.Context, o Options, p *process) (*trunk, error) {
	noisy := &io.LimitedReader{R: p.out, N: maxNoise}
	t := &trunk{
		o: o, p: p, in: bufio.NewReaderSize(noisy, maxNoise), room: room,
		link: link, gone: make(chan struct{}), over: make(chan struct{}),
	}
	cut := context.AfterFunc(ctx, func() { _ = p.out.SetReadDeadline(past) })
	err := t.greet(noisy)
	noisy.N = math.MaxInt64
	if err == nil && t.hello.Mux == 1 {
		err = t.openSession()
	}
	if !cut() && err == nil {
		err = ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		return nil, &Error{Host: o.Host, What: "there was no answer in time", Said: p.words.String(), Next: o.try()}
	}
	if err != nil {
		return nil, err
	}
	if t.hello.Mux == 1 {
		t.session, err = yamux.Client(&frames{in: t.in, out: p.in, stop: t.cut}, muxConfig())
	}
	return t, err
}

// greet reads up to the hello. What shells say before it is passed over.
func (t *trunk) greet(noisy *io.LimitedReader) error {
	noise := &words{}
	for {
		line, err := t.in.ReadSlice('\n')
		line = bytes.TrimRight(line, "\r\n")
		if hello, ok := cutHello(line); ok {
			t.hello = hello
			if hello.Proxy != 1 {
				return &Error{
					Host: t.o.Host, What: fmt.Sprintf(
						"nous there is another version (%s), whose proxy this one does not know", hello.Version),
					Next: "update the older one of the two",
				}
			}
			return nil
		}
		if f, ok := cutFailure(line); ok {
			return f.of(t.o.Host, false)
		}
		if len(line) > 0 {
			_, _ = noise.Write(append(bytes.Clone(line), '\n'))
		}
		if err != nil && noisy.N == 0 {
			return &Error{
				Host: t.o.Host, What: "more than 64 KiB were said there, and no hello by nous",
				Next: "have the far shell's startup files write nothing where standard input is no terminal",
			}
		}
		if err != nil {
			return t.unmet(err, noise.String())
		}
	}
}

// unmet says why there was no hello.
func (t *trunk) unmet(err error, noise string) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && t.alive() {
		return err // meet tells it
	}
	select {
	case <-t.p.exited:
		return ended(t.o, t.p, noise)
	case <-time.After(toldEnd):
		return &Error{Host: t.o.Host, What: fmt.Sprintf("ssh has closed its output: %v", err)}
	}
}

// openSession asks for a session. Until the answer the proxy passes lines on, and none was asked for.
func (t *trunk) openSession() error {
	_, _ = io.WriteString(t.p.in, MuxLine+"\n") // who reads finds out what is wrong
	for whole := true; ; {
		line, err := t.in.ReadSlice('\n')
		text := bytes.TrimRight(line, "\r\n")
		switch {
		case whole && err == nil && string(text) == MuxLine:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && t.alive():
			return err
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return t.lost(err)
		}
		if f, ok := cutFailure(text); ok && whole {
			return f.of(t.o.Host, false)
		}
		whole = err == nil
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

// alive tells whether there is a connection, or can be one.
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

// serve blocks until the trunk has ended, and then until all connections have.
func (t *trunk) serve() {
	stop := context.AfterFunc(t.link, func() { t.end(client.ErrClosed) })
	defer stop()
	if t.session != nil {
		_, err := t.session.AcceptStream() // there are none: frames refuses them
		t.end(t.why(err))
	}
	<-t.p.exited
	close(t.over)
	t.mu.Lock()
	if t.session == nil {
		t.streams = 1 // it makes no connection any more
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// why says why the session has ended.
func (t *trunk) why(err error) error {
	var line *lineError
	if errors.As(err, &line) {
		if f, ok := cutFailure(line.line); ok {
			return f.of(t.o.Host, true)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*fs.PathError)) {
		return t.lost(err)
	}
	return &client.ForeignError{Err: fmt.Errorf("%s: %w", t.o.Host, err)}
}

// reason is what the trunk was ended for.
func (t *trunk) reason() error {
	<-t.gone
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
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
	t.p.end()
	t.cut()
}

// cut ends what is read of ssh.
func (t *trunk) cut() { _ = t.p.out.SetReadDeadline(past) }

// open makes a connection, which ends with the trunk.
func (t *trunk) open(kind byte) (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.session == nil && t.streams > 0:
		return nil, errTaken
	case t.streams == maxStreams:
		return nil, &Error{Host: t.o.Host, What: errTooMany.Error()}
	}
	near, far := net.Pipe()
	c := newConn(t, kind, near)
	if t.err != nil {
		return c, far.Close()
	}
	t.streams++
	t.wg.Go(func() { // ends with the connection or the trunk
		defer far.Close()
		if t.session == nil {
			t.plain(c, far)
			return
		}
		t.carry(c, far)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.streams--
	})
	return c, nil
}

// carry has a stream of its own for a connection.
func (t *trunk) carry(c *conn, far net.Conn) {
	s, err := t.session.OpenStream()
	if err != nil {
		return
	}
	defer s.Close()
	// A stream that takes nothing would not find out.
	stop := context.AfterFunc(c.open, func() { _, _ = far.Close(), s.SetReadDeadline(past) })
	defer stop()
	if _, err := s.Write([]byte{c.kind}); err == nil {
		join(s, far)
	}
}

// plain is the one connection of a proxy that has only lines: it joins both sockets on them.
func (t *trunk) plain(c *conn, far net.Conn) {
	stop := context.AfterFunc(c.open, func() {
		_ = far.Close()
		t.end(client.ErrClosed)
	})
	defer stop()
	if c.kind == ToCommands && t.hello.Epoch != "" { // else all events would come, too
		_, _ = io.WriteString(t.p.in, `{"v":"1","id":"quiet","type":"subscribe","payload":{"session_id":"`+Nobody+`"}}`+"\n")
	}
	t.wg.Go(func() { _, _ = io.Copy(t.p.in, far) }) // ends with the connection
	_, err := io.Copy(far, t.in)
	t.end(t.lost(cmp.Or(err, io.EOF)))
}

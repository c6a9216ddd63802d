// Package ssh leads to a daemon on another machine: one ssh process runs nous proxy
// there, and a yamux session over it carries every connection that a client opens. FarEnd
// is the proxy's half of it.
//
// Concurrency: any goroutine may use a Link. Its connections are net.Conns of their
// own: none waits for another. What a connection's owner does not read stays at the far
// end, but for a window of 256 KiB. A Link owns its ssh process and its goroutines;
// they end, and are waited for, in Close.
//
// It refuses to connect again by itself (the next Commands or Events does), to send
// anything twice, and to keep keys, passwords or what hosts there are: ssh does.
package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"noused/internal/client"
)

// Options say which daemon a Link leads to, and how.
type Options struct {
	// Host is what the user calls it. Messages name it.
	Host string
	// SSH is the destination and options, as ssh takes them; empty, it is Host.
	SSH []string
	// Nous is the path of nous there; "" is nous, as the far shell finds it. A ~/ at
	// its beginning is the home there.
	Nous string
	// Socket is the daemon's command socket there; "" is its default.
	Socket string
	// Start has a daemon started there where none runs, unless the Link had one already.
	Start bool
	// Ask lets ssh ask on the terminal (for a password, say) until it was connected
	// once. After that, and without it, ssh asks nothing.
	Ask bool
	// Show is what ssh's standard error, and the far shell's, is written to while it may
	// ask: what a second factor wants, say. nil: it is kept for the Error only.
	Show io.Writer
	// Within is how long ssh and the far nous may take to answer; 0 is half a minute,
	// and three minutes while ssh may ask.
	Within time.Duration
}

// CutMark is what a proxy writes in the place of the rest of a line that the daemon, which
// was killed, has not finished. It is in no JSON.
const CutMark byte = 0

// Nobody is a session that does not exist: to subscribe to its events is to get none.
const Nobody = "-"

// Hello is the first line of a proxy, as JSON.
type Hello struct {
	Proxy   int    `json:"proxy"`
	Version string `json:"version"`      // of nous there
	Socket  string `json:"socket"`       // there
	Epoch   string `json:"epoch"`        // of the daemon; "" of an older core
	Mux     int    `json:"mux,omitzero"` // the version of the sessions that it has; 0: of none
}

// Link opens connections to one daemon over one ssh process.
type Link struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	met     bool     // it was connected once
	trunk   *trunk   // the last one; nil before the first
	dialing *dialing // nil while none is made
	closed  bool
}

// dialing is a trunk that is being made. t and err are set once done is closed.
type dialing struct {
	done chan struct{}
	t    *trunk
	err  error
}

// New makes a Link. It does not connect: the first Commands, Events or Hello does.
func New(o Options) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	return &Link{o: o, ctx: ctx, cancel: cancel}
}

// Commands opens a connection to the command socket. It blocks while ssh connects, for
// as long as ctx lets it; ssh goes on connecting for the next call. Errors are an
// *Error, a *client.NoDaemonError, client.ErrClosed and ctx's.
func (l *Link) Commands(ctx context.Context) (net.Conn, error) {
	return l.open(ctx, ToCommands)
}

// Events opens a connection to the event socket, as Commands does. A daemon that knows
// subscribe tells nothing there before it was subscribed.
func (l *Link) Events(ctx context.Context) (net.Conn, error) {
	return l.open(ctx, ToEvents)
}

// Hello is what the far proxy said first on the connection that stands, or is made.
func (l *Link) Hello(ctx context.Context) (Hello, error) {
	t, err := l.connected(ctx)
	if err != nil {
		return Hello{}, err
	}
	return t.hello, nil
}

// Close ends every connection and the ssh process, and waits for them. What the daemon
// has accepted goes on.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	return nil
}

func (l *Link) open(ctx context.Context, kind byte) (net.Conn, error) {
	for {
		t, err := l.connected(ctx)
		if err != nil {
			return nil, err
		}
		if c, err := t.open(kind); !errors.Is(err, errTaken) {
			return c, err
		}
		l.mu.Lock()
		if l.trunk == t {
			l.trunk = nil // the next connection has an ssh of its own
		}
		l.mu.Unlock()
	}
}

// connected returns the trunk that stands, or the one that is made then.
func (l *Link) connected(ctx context.Context) (*trunk, error) {
	d, err := l.dial()
	if err != nil {
		return nil, err
	}
	select {
	case <-d.done:
		return d.t, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to %s: %w", l.o.Host, context.Cause(ctx))
	}
}

// dial begins to make a trunk, unless there is one or one is being made.
func (l *Link) dial() (*dialing, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, client.ErrClosed
	case l.dialing != nil:
		return l.dialing, nil
	}
	d := &dialing{done: make(chan struct{})}
	if l.trunk != nil && l.trunk.alive() {
		d.t = l.trunk
		close(d.done)
		return d, nil
	}
	l.dialing = d
	last, again := l.trunk, l.met
	l.wg.Go(func() { l.make(d, last, again) })
	return d, nil
}

// make makes a trunk, once the one before is over.
func (l *Link) make(d *dialing, last *trunk, again bool) {
	if last != nil {
		<-last.over
	}
	d.t, d.err = l.startTrunk(again)
	l.mu.Lock()
	l.dialing = nil
	if d.err == nil {
		l.trunk, l.met = d.t, true
		l.wg.Go(d.t.serve)
	}
	l.mu.Unlock()
	close(d.done)
}

func (l *Link) startTrunk(again bool) (*trunk, error) {
	within := l.o.Within
	ask := l.o.Ask && !again
	switch {
	case within > 0:
	case ask:
		within = 3 * time.Minute
	default:
		within = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	argv, err := l.o.argv(ask, l.o.Start && !again)
	if err != nil {
		return nil, err
	}
	var show io.Writer
	if ask {
		show = l.o.Show
	}
	p, err := run(argv, ask, show)
	if err != nil {
		return nil, &Error{Host: l.o.Host, What: fmt.Sprintf("ssh could not be started: %v", err)}
	}
	t, err := meet(ctx, l.ctx, l.o, p)
	p.words.quiet()
	var e *Error
	if errors.As(err, &e) {
		e.Shown = show != nil
	}
	if err != nil {
		p.end()
		<-p.exited
		if l.ctx.Err() != nil {
			return nil, client.ErrClosed
		}
		return nil, err
	}
	return t, nil
}

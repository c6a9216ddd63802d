package follow_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/client"
	"noused/internal/client/clienttest"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// pipes is a daemon that is dialled without a socket.
type pipes struct {
	t                testing.TB
	commands, events chan net.Conn
	down             atomic.Bool
	on               chan struct{} // closed by the reader: the daemon goes on
}

func newPipes(t testing.TB) *pipes {
	return &pipes{t: t, commands: make(chan net.Conn), events: make(chan net.Conn), on: make(chan struct{})}
}

func (p *pipes) Commands(ctx context.Context) (net.Conn, error) { return p.dial(ctx, p.commands) }
func (p *pipes) Events(ctx context.Context) (net.Conn, error)   { return p.dial(ctx, p.events) }

func (p *pipes) dial(ctx context.Context, accepted chan<- net.Conn) (net.Conn, error) {
	if p.down.Load() {
		return nil, &client.NoDaemonError{Socket: "pipe"}
	}
	ours, theirs := net.Pipe()
	select {
	case accepted <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *pipes) accept(from <-chan net.Conn) *clienttest.Conn { return clienttest.NewConn(p.t, <-from) }

// isOlder answers who asks whether the core is an older one.
func (p *pipes) isOlder(yes bool) {
	c := p.accept(p.commands)
	defer c.Close()
	id, _ := c.Want("list_sessions")
	if yes {
		c.Fail(id, protocol.Errorf(protocol.InvalidCommand, "unknown_command: list_sessions"))
	} else {
		c.Reply(id, "sessions", `{"sessions":[]}`)
	}
}

// following plays today's daemon beside a reader of its stream, in a time of their own.
func following(t *testing.T, o follow.Options, daemon func(*pipes), reader func(*reading)) {
	t.Helper()
	followingAt(t, func(p *pipes) follow.Dialer { return client.Current(p) }, o, daemon, reader)
}

// followingAt is following through a dialer.
func followingAt(t *testing.T, to func(*pipes) follow.Dialer, o follow.Options, daemon func(*pipes),
	reader func(*reading),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		s := follow.NewStream(to(p), o)
		defer s.Close()
		played := make(chan struct{})
		go func() {
			defer close(played)
			daemon(p)
		}()
		reader(&reading{t, p, s})
		<-played
	})
}

type reading struct {
	t *testing.T
	p *pipes
	*follow.Stream
}

func next[H follow.Update](r *reading) H {
	r.t.Helper()
	h, err := r.Next(r.t.Context())
	wanted, ok := h.(H)
	if !ok || err != nil {
		r.t.Fatalf("got %#v, %v, want a %T", h, err, wanted)
	}
	return wanted
}

const status = `{"message":"m","code":"c"}`

func TestStreamGoesOnWhereTheConnectionEnded(t *testing.T) {
	following(t, follow.Options{Filter: protocol.SubscribeParams{Types: []string{"status"}}}, func(p *pipes) {
		c := p.accept(p.events)
		if got, want := string(c.Subscribed(`{"epoch":"e1","next_seq":7,"gap":false}`)), `{"types":["status"]}`; got != want {
			t.Errorf("got subscribe %s, want %s", got, want)
		}
		c.Event(7, "status", status)
		c.Close()
		c = p.accept(p.events)
		defer c.Close()
		if got, want := string(c.Subscribed(`{"epoch":"e1","next_seq":8,"gap":false}`)),
			`{"epoch":"e1","after":7,"types":["status"]}`; got != want {
			t.Errorf("got subscribe %s, want %s", got, want)
		}
		c.Event(8, "status", status)
	}, func(r *reading) {
		if c := next[follow.Connected](r); c.Epoch != "e1" || c.After != 6 || c.Gap || c.Restarted || c.Lacks != nil {
			t.Errorf("got %+v", c)
		}
		if l := next[follow.Line](r); l.Seq != 7 || l.Type != "status" || l.Err != nil || len(l.Raw) == 0 {
			t.Errorf("got %+v", l)
		}
		d := next[follow.Disconnected](r)
		if !errors.Is(d.Err, client.ErrLost) || d.NoDaemon || d.Next <= 0 {
			t.Errorf("got %+v", d)
		}
		began := time.Now()
		if c := next[follow.Connected](r); c.Gap || c.Restarted || time.Since(began) != d.Next {
			t.Errorf("got %+v after %s, want it after %s", c, time.Since(began), d.Next)
		}
		if l := next[follow.Line](r); l.Seq != 8 || r.Last() != 8 || r.Epoch() != "e1" {
			t.Errorf("got %+v, last %d", l, r.Last())
		}
	})
}

func TestStreamTellsOfARestartAndOfDroppedEvents(t *testing.T) {
	following(t, follow.Options{}, func(p *pipes) {
		c := p.accept(p.events)
		c.Subscribed(`{"epoch":"e1","next_seq":1,"gap":false}`)
		c.Close()
		c = p.accept(p.events)
		defer c.Close()
		c.Subscribed(`{"epoch":"e2","next_seq":1,"gap":true}`)
		c.Event(9, "warning", `{"message":"events 1 to 9 were dropped","code":"events_dropped"}`)
		c.Event(10, "news_of_tomorrow", `{"a":1}`)
	}, func(r *reading) {
		next[follow.Connected](r)
		next[follow.Disconnected](r)
		if c := next[follow.Connected](r); !c.Restarted || !c.Gap || c.Epoch != "e2" {
			t.Errorf("got %+v, want word of the restart", c)
		}
		if g := next[follow.Gap](r); g.Message != "events 1 to 9 were dropped" || g.Seq != 9 {
			t.Errorf("got %+v", g)
		}
		if l := next[follow.Line](r); l.Err == nil || string(l.Payload) != `{"a":1}` || l.Seq != 10 {
			t.Errorf("got %+v, want the line and why it is not an event", l)
		}
	})
}

func TestTriesAreFurtherAndFurtherApart(t *testing.T) {
	following(t, follow.Options{}, func(p *pipes) {
		p.down.Store(true)
		<-p.on
		c := p.accept(p.events)
		defer c.Close()
		c.Subscribed(`{"epoch":"e1","next_seq":1,"gap":false}`)
		c.Event(1, "status", status)
	}, func(r *reading) {
		synctest.Wait()
		first := next[follow.Disconnected](r)
		began := time.Now()
		was := first
		for was.Next < 500*time.Millisecond {
			d := next[follow.Disconnected](r)
			if !d.NoDaemon || !d.Since.Equal(first.Since) || d.Next != min(2*was.Next, 500*time.Millisecond) {
				t.Fatalf("got %+v after %+v", d, was)
			}
			was = d
		}
		if time.Since(began) <= was.Next {
			t.Errorf("all tries took %s", time.Since(began))
		}
		r.p.down.Store(false)
		close(r.p.on)
		next[follow.Connected](r)
		next[follow.Line](r)
		if d := next[follow.Disconnected](r); d.Next != first.Next || d.Since.Equal(first.Since) {
			t.Errorf("got %+v, want an outage of its own", d)
		}
	})
}

// An older core is told by what it answers to a command that it does not know,
// and asked again when the connection was lost: it may have been replaced.
func TestStreamFindsOutWhatDaemonItIs(t *testing.T) {
	followingAt(t, func(p *pipes) follow.Dialer { return p }, follow.Options{}, func(p *pipes) {
		p.isOlder(true)
		c := p.accept(p.events)
		c.Line(`{"v":"1","id":"evt-1","type":"tool_execution_end","payload":{"run_id":"r"}}`)
		c.Close()
		p.isOlder(false)
		c = p.accept(p.events)
		c.Subscribed(`{"epoch":"e1","next_seq":1,"gap":false}`)
		c.Close()
		c = p.accept(p.events) // known by now
		defer c.Close()
		c.Subscribed(`{"epoch":"e1","next_seq":1,"gap":false}`)
	}, func(r *reading) {
		if c := next[follow.Connected](r); !errors.Is(c.Lacks, client.ErrUnsupported) || !c.Gap || c.Epoch != "" {
			t.Errorf("got %+v, want an older core", c)
		}
		l := next[follow.Line](r)
		if end, ok := l.Event.Event.(protocol.ToolEnd); !ok || !end.OK || l.Seq != 1 {
			t.Errorf("got %+v, want what the core leaves out filled in, and a number", l)
		}
		next[follow.Disconnected](r)
		if c := next[follow.Connected](r); c.Lacks != nil || c.Epoch != "e1" || !c.Restarted {
			t.Errorf("got %+v, want the new daemon", c)
		}
		next[follow.Disconnected](r)
		next[follow.Connected](r)
	})
}

func TestStreamDoesNotWaitForeverForASilentDaemon(t *testing.T) {
	following(t, follow.Options{}, func(p *pipes) {
		c := p.accept(p.events)
		defer c.Close()
		c.Want("subscribe")
		c.WantEOF()
	}, func(r *reading) {
		began := time.Now()
		d := next[follow.Disconnected](r)
		var silent *client.SilentError
		if !errors.As(d.Err, &silent) || time.Since(began) != 30*time.Second {
			t.Errorf("got %+v after %s, want a SilentError after half a minute", d, time.Since(began))
		}
	})
}

func TestNextThatIsGivenUpGoesOn(t *testing.T) {
	following(t, follow.Options{}, func(p *pipes) {
		c := p.accept(p.events)
		defer c.Close()
		c.Subscribed(`{"epoch":"e1","next_seq":1,"gap":false}`)
		<-p.on
		c.Event(1, "status", status)
	}, func(r *reading) {
		next[follow.Connected](r)
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(r.t.Context(), time.Second, why)
		defer cancel()
		if h, err := r.Next(ctx); h != nil || !errors.Is(err, why) {
			t.Errorf("got %v, %v, want the context's own reason", h, err)
		}
		close(r.p.on)
		next[follow.Line](r)
	})
}

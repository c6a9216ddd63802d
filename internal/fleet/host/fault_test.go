package host

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet/fleettest"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// jobs fail as often as they are told to, and then wait until they may go on.
type jobs struct {
	faults atomic.Int32
	goOn   chan struct{}
}

func (j *jobs) Serve(ctx context.Context, _ jetstream.JetStream, well func()) error {
	if j.faults.Add(-1) >= 0 {
		panic("a fault")
	}
	select {
	case <-j.goOn:
		well()
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

func (j *jobs) Close() {}

// A part that panics is reported and started again; the others go on.
func TestAPartThatPanicsIsStartedAgain(t *testing.T) {
	t.Parallel()
	server := fleettest.Start(t, "")
	j := &jobs{goOn: make(chan struct{})}
	j.faults.Store(1)
	d := startDaemon(t, server.URL(), func(o *Options) { o.Jobs = j })
	testenv.Until(t, "it is told", func() bool {
		return strings.Contains(strings.Join(d.State().Problems, "\n"), "jobs: a fault of the daemon's: panic: a fault")
	})
	d.hasPublished(d.say("ses-1", "hello"))
	close(j.goOn)
	testenv.Until(t, "it goes on", func() bool { return len(d.State().Problems) == 0 })
}

// A panic where the daemon says that it is there, or joins, costs the connection, which
// is made anew; meanwhile the state does not say that there is one.
func TestAPanicCostsTheConnection(t *testing.T) {
	server := fleettest.Start(t, "")
	var (
		mu   sync.Mutex
		wish string
	)
	set := func(to string) {
		mu.Lock()
		defer mu.Unlock()
		wish = to
	}
	set("panic")
	d := startDaemon(t, server.URL(), func(o *Options) {
		o.Load = func() (int, int, []string) {
			mu.Lock()
			defer mu.Unlock()
			if wish == "panic" {
				panic("a fault of Load")
			}
			return 0, 0, nil
		}
	})
	away := func() bool {
		s := d.State()
		return !s.Connected && strings.Contains(strings.Join(s.Problems, "\n"), "panic: a fault of Load")
	}
	testenv.Until(t, "it is told that it does not join", away)
	set("")
	d.isJoined()
	nc := dial(t, server.URL())
	sendCommand(t, nc, `{"id":"1","type":"ping"}`)
	set("panic")
	d.nudge()
	testenv.Until(t, "it is told that it has left", away)
	set("")
	d.isJoined()
	sendCommand(t, nc, `{"id":"1","type":"ping"}`)
}

// A fault after a command has run costs its reply alone, which says so.
func TestAPanicCostsOneReply(t *testing.T) {
	server := fleettest.Start(t, "")
	d := newDaemon(t, server.URL(), func(o *Options) {
		o.Audit = func(ev model.AuditEvent) { panic("a fault of Audit") }
	})
	protocol.HandleFunc(d.mux, protocol.SetTitle, func(context.Context, protocol.SetTitleParams) (protocol.TitleAccepted,
		error,
	) {
		return protocol.TitleAccepted{}, nil
	})
	d.Start()
	t.Cleanup(d.end)
	d.isJoined()
	nc := dial(t, server.URL())
	if r := sendCommand(t, nc, `{"id":"1","type":"set_title","payload":{"title":"x"}}`); r.ID != "1" || r.Error == nil ||
		r.Error.Code != protocol.InternalError {
		t.Errorf("got %+v, %v", r, r.Error)
	}
	if r := sendCommand(t, nc, `{"id":"2","type":"ping"}`); !r.OK {
		t.Errorf("the next one: %+v", r.Error)
	}
	testenv.Until(t, "nothing stays counted", func() bool { return d.o.Held.Used() == 0 })
}

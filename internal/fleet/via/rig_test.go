package via_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"noused/internal/budget"
	"noused/internal/client"
	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/host"
	"noused/internal/fleet/via"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(ending{testenv.M{M: m}})
}

// ending waits for goroutines of NATS's client and server, which nobody is told the end
// of: what goleak gives them by itself is less than a second.
type ending struct{ testenv.M }

func (m ending) Run() int {
	code := m.M.Run()
	for deadline := time.Now().Add(patience); code == 0 && goleak.Find() != nil && time.Now().Before(deadline); {
	}
	return code
}

const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(s *fleettest.Server) fleet.Connect { return fleet.Connect{URLs: []string{s.URL()}} }

// daemon is the real part of a daemon in a fleet, over an event log of its own.
type daemon struct {
	*host.Host
	end     func()
	log     *event.Log
	mux     *protocol.Mux
	slow    chan struct{} // a compaction waits for it
	audited chan model.AuditEvent
}

func startDaemon(t testing.TB, to fleet.Connect, name, epoch string) *daemon {
	t.Helper()
	d := &daemon{
		log: event.New(epoch, 16<<20, time.Now), mux: &protocol.Mux{}, slow: make(chan struct{}),
		audited: make(chan model.AuditEvent, 1000),
	}
	protocol.HandleFunc(d.mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
		return protocol.Pong{Message: "pong", Version: epoch}, nil
	})
	protocol.HandleFunc(d.mux, protocol.DeleteSession,
		func(_ context.Context, p protocol.DeleteSessionParams) (protocol.SessionDeleted, error) {
			return protocol.SessionDeleted{SessionID: p.SessionID}, nil
		})
	protocol.Handle(d.mux, protocol.CompactSession,
		func(context.Context, protocol.CompactSessionParams) (protocol.Answer[protocol.Compaction], error) {
			return protocol.Answer[protocol.Compaction]{Later: func(ctx context.Context) (protocol.Compaction, error) {
				select {
				case <-d.slow:
					return protocol.Compaction{}, nil
				case <-ctx.Done():
					return protocol.Compaction{}, ctx.Err()
				}
			}}, nil
		})
	d.Host = host.New(host.Options{
		Connect: to, Prefix: fleet.DefaultPrefix, Name: name, Version: "1.2.3", Epoch: epoch, Instance: "of " + name,
		Workdir: "/w",
		Load:    func() (int, int, []string) { return 1, 2, nil },
		Mux:     d.mux, MaxLine: 1 << 20, Held: budget.New(64 << 20), Events: d.log,
		Audit: func(ev model.AuditEvent) { d.audited <- ev }, Log: zap.NewNop(),
	})
	d.Start()
	d.end = sync.OnceFunc(func() {
		d.log.Close()
		d.Close()
	})
	t.Cleanup(d.end)
	return d
}

// open is a fleet whose hosts are all there.
func open(t testing.TB, to fleet.Connect, names ...string) *via.Fleet {
	t.Helper()
	f := via.Open(via.Options{Connect: to, Prefix: fleet.DefaultPrefix, Note: func(text string) { t.Log(text) }})
	t.Cleanup(f.Close)
	for _, name := range names {
		await(t, to, name)
	}
	return f
}

// bare is a connection that knows nothing of fleets.
func bare(t testing.TB, to fleet.Connect) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc := fleettest.Dial(t, strings.Join(to.URLs, ","))
	return nc, fleettest.JetStream(t, nc)
}

// await waits until a daemon has said that it is there, and that its commands are taken.
func await(t testing.TB, to fleet.Connect, name string) {
	t.Helper()
	nc, js := bare(t, to)
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kv, err := fleet.DefaultPrefix.OpenHosts(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.DefaultPrefix.OpenEvents(ctx, js); err != nil {
		t.Fatal(err)
	}
	w, err := kv.Watch(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.Updates() {
		if e != nil && e.Operation() == jetstream.KeyValuePut {
			break
		}
	}
	for range time.Tick(5 * time.Millisecond) {
		_, err := nc.RequestWithContext(ctx, fleet.DefaultPrefix.Command(name),
			[]byte(`{"v":"1","id":"1","type":"ping","payload":{}}`))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// isThere waits until a daemon's commands are taken, where only the fleet itself can say so.
func (d *daemon) isThere(t testing.TB, ctx context.Context, f *via.Fleet, name string) {
	t.Helper()
	for range time.Tick(5 * time.Millisecond) {
		conn, err := f.Host(name).Commands(ctx)
		if err == nil {
			_ = conn.Close()
			var w *via.Watch
			if w, err = f.Watch(ctx); err == nil { // there are a stream and a bucket
				w.Close()
			}
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

func commands(t testing.TB, ctx context.Context, h *via.Host) *client.Client {
	t.Helper()
	conn, err := h.Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(conn)
	t.Cleanup(func() { c.Close() })
	return c
}

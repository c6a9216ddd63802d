package host

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"noused/internal/budget"
	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ending{testenv.M{M: m}}) }

// ending waits for goroutines of NATS's client and server, which nobody is told the end
// of: what goleak gives them by itself is less than a second.
type ending struct{ testenv.M }

func (m ending) Run() int {
	code := m.M.Run()
	for deadline := time.Now().Add(patience); code == 0 && goleak.Find() != nil && time.Now().Before(deadline); {
	}
	return code
}

// patience is how long something may take that is certain to happen.
const patience = 2 * time.Minute

// daemon is the part of a daemon that a Host sees.
type daemon struct {
	*Host
	t      testing.TB
	events *event.Log
	mux    *protocol.Mux
	o      Options

	mu     sync.Mutex
	audits []model.AuditEvent
}

// newDaemon makes one that is not yet in the fleet of the server.
func newDaemon(t testing.TB, url string, change func(*Options)) *daemon {
	t.Helper()
	d := &daemon{t: t, mux: new(protocol.Mux)}
	d.o = Options{
		Connect: fleet.Connect{URLs: []string{url}}, Prefix: fleet.DefaultPrefix, Name: "box", Slots: 1,
		JobTimeout: time.Minute,
		Version:    "1.2.3", Epoch: "ep-" + strings.ReplaceAll(t.Name(), "/", "-"), Instance: "in-1", Workdir: "/work",
		Load: func() (int, int, []string) { return 0, 0, nil },
		Mux:  d.mux, MaxLine: protocol.DefaultMaxLine, Held: budget.New(64 << 20), Log: zap.NewNop(),
		Audit: func(ev model.AuditEvent) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.audits = append(d.audits, ev)
		},
	}
	if testing.Verbose() {
		d.o.Log = zaptest.NewLogger(t)
	}
	if change != nil {
		change(&d.o)
	}
	if d.o.Events == nil {
		d.o.Events = event.New(d.o.Epoch, 16<<20, time.Now)
	}
	d.events = d.o.Events
	protocol.HandleFunc(d.mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
		return protocol.Pong{Message: "pong"}, nil
	})
	d.Host = New(d.o)
	return d
}

// startDaemon makes one that is in the fleet until the test ends.
func startDaemon(t testing.TB, url string, change func(*Options)) *daemon {
	t.Helper()
	d := newDaemon(t, url, change)
	d.Start()
	t.Cleanup(d.end)
	return d
}

var ended sync.Map

func (d *daemon) end() {
	if _, again := ended.LoadOrStore(d, true); !again {
		d.events.Close()
		d.Close()
	}
}

// say publishes a delta, and returns its number.
func (d *daemon) say(session, text string) uint64 {
	d.events.Append(protocol.MessageUpdate{
		Ref: protocol.Ref{SessionID: session, RunID: "run-1"}, MessageID: "msg-1",
		Delta: text,
	})
	return d.events.LastSeq()
}

func (d *daemon) isJoined() {
	d.t.Helper()
	testenv.Until(d.t, "joined", func() bool { return d.State().Connected })
}

// listens waits until it takes commands, and hears of rivals, which is a moment after it
// has joined.
func (d *daemon) listens() {
	d.t.Helper()
	d.isJoined()
	nc := dial(d.t, d.o.URLs[0])
	defer nc.Close()
	sendCommand(d.t, nc, `{"id":"0","type":"ping"}`)
}

func (d *daemon) hasPublished(seq uint64) {
	d.t.Helper()
	testenv.Until(d.t, fmt.Sprintf("event %d is published", seq), func() bool { return d.State().PublishedSeq >= seq })
}

func dial(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	return fleettest.Dial(t, url, options...)
}

func jetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream { return fleettest.JetStream(t, nc) }

// stored are the envelopes of the events that the stream has, in its order.
func stored(t testing.TB, url string) (all []protocol.EventEnvelope) {
	t.Helper()
	ctx := t.Context()
	js := jetStream(t, dial(t, url))
	stream, err := js.Stream(ctx, fleet.DefaultPrefix.EventStream())
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, envelope(t, msg.Data))
	}
	return all
}

func envelope(t testing.TB, data []byte) (e protocol.EventEnvelope) {
	t.Helper()
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return e
}

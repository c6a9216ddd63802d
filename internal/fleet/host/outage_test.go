package host

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// dropped are the numbers that warnings in the stream report as missing.
func dropped(t *testing.T, all []protocol.EventEnvelope) (n uint64) {
	t.Helper()
	for _, e := range all {
		if e.Type != (protocol.Warning{}).Type() {
			continue
		}
		var w protocol.Warning
		if err := json.Unmarshal(e.Payload, &w); err != nil {
			t.Fatal(err)
		}
		if w.Code != protocol.WarningEventsDropped || w.ToSeq != e.Seq {
			t.Errorf("event %d: %+v", e.Seq, w)
		}
		n += w.ToSeq - w.FromSeq + 1
	}
	return n
}

// What fell off the log while the server was away is reported, and nothing else is
// missing.
func TestWhatIsNoLongerKeptIsToldOf(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), func(o *Options) { o.Events = event.New(o.Epoch, 64<<10, time.Now) })
	d.hasPublished(d.say("ses-1", "first"))
	server.Down()
	var last uint64
	for range 1000 {
		last = d.say("ses-1", strings.Repeat("x", 200))
	}
	server.Up()
	d.hasPublished(last)
	all := stored(t, server.URL())
	whole(t, all, last)
	if n := dropped(t, all); n == 0 || n > last-100 {
		t.Errorf("%d of %d events are reported as missing", n, last)
	}
}

// An event that the server does not carry is reported in its place.
func TestAnEventThatIsTooLargeIsToldOf(t *testing.T) {
	oneIsToldOf(t, fleettest.Start(t, ""), 2<<20)
}

// So is one that the server carries, and the stream does not take.
func TestAnEventThatTheStreamDoesNotTakeIsToldOf(t *testing.T) {
	server := fleettest.Start(t, "")
	fleettest.Limit(t, server.Direct(), 64<<10, fleet.DefaultPrefix.OpenEvents)
	oneIsToldOf(t, server, 100<<10, 60<<10)
}

// oneIsToldOf has a daemon publish events of these lengths, of which one is too long.
func oneIsToldOf(t *testing.T, server *fleettest.Server, lengths ...int) {
	t.Helper()
	d := startDaemon(t, server.URL(), nil)
	d.say("ses-1", "before")
	for _, n := range lengths {
		d.say("ses-1", strings.Repeat("x", n))
	}
	last := d.say("ses-1", "after")
	d.hasPublished(last)
	all := stored(t, server.URL())
	whole(t, all, last)
	if n := dropped(t, all); n != 1 {
		t.Errorf("%d events are reported as missing, want 1", n)
	}
}

// A server that takes nothing holds nobody up: events are published at once, and the
// daemon leaves when it is told to. When it takes them again, all are there, once.
func TestAStalledServerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	d.hasPublished(d.say("ses-1", "first"))
	server.Stall()
	var last uint64
	for range 2000 {
		last = d.say("ses-1", strings.Repeat("x", 1000))
	}
	if got := d.State().PublishedSeq; got >= last {
		t.Fatalf("event %d of %d is stored although the server stalls", got, last)
	}
	server.Go()
	d.hasPublished(last)
	whole(t, stored(t, server.URL()), last)
	server.Stall()
	d.say("ses-1", "never taken")
	begun := time.Now()
	d.end()
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("leaving a server that stalls took %s", took)
	}
	server.Go()
}

// The server forgets after a while which messages it has. So what is stored already is
// read from the stream before anything is sent again, no matter who else sends there.
func TestNothingIsSentAgainThatIsStored(t *testing.T) {
	server := fleettest.Start(t, "")
	js := jetStream(t, dial(t, server.Direct()))
	stream, err := fleet.DefaultPrefix.OpenEvents(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, server.URL(), nil)
	for _, text := range []string{"one", "two", "three"} {
		d.say("ses-"+text, text)
		d.out.sent = append(d.out.sent, span{from: d.events.LastSeq(), to: d.events.LastSeq()})
	}
	_, _ = d.events.Entries(&d.out.cursor, 10, nil)
	// The first and the third have arrived, and the connection was lost before the server
	// could say so.
	for _, m := range []struct {
		host, id string
		seq      uint64
	}{
		{"box", fleet.MessageID(d.o.Epoch, 1), 1},
		{"other", fleet.MessageID("ep-other", 2), 2},
		{"box", fleet.MessageID("ep-before", 2), 2},
		{"box", fleet.MessageID(d.o.Epoch, 3), 3},
	} {
		msg := d.read(span{from: m.seq, to: m.seq})
		if _, err := js.Publish(t.Context(), d.o.Prefix.Event(m.host, msg.session), msg.data,
			jetstream.WithMsgID(m.id)); err != nil {
			t.Fatal(err)
		}
	}
	w := &publisher{outbox: d.out, link: &link{host: d.Host, ctx: t.Context()}, stream: stream}
	if err := w.recall(); err != nil {
		t.Fatal(err)
	}
	if len(w.sent) != 2 || w.sent[0].stored || !w.sent[1].stored || d.State().PublishedSeq != 1 {
		t.Errorf("to be sent again: %+v, published %d", w.sent, d.State().PublishedSeq)
	}
	d.Start()
	t.Cleanup(d.end)
	d.hasPublished(3)
	var got []uint64
	for _, e := range stored(t, server.URL()) {
		got = append(got, e.Seq)
	}
	if want := []uint64{1, 2, 2, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("the stream has the events %v, want %v", got, want)
	}
}

// What the server denies, or has not, is told, and the rest works.
func TestWhatIsDeniedIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start  func(t *testing.T) *fleettest.Server
		joined bool
		want   string
	}{
		"no JetStream": {func(t *testing.T) *fleettest.Server {
			return fleettest.StartWithout(t, "")
		}, false, "the server has no JetStream"},
		"no commands": {func(t *testing.T) *fleettest.Server {
			return fleettest.Start(t,
				`authorization { users = [{user: a, password: a, permissions: {publish: ">", subscribe: {deny: "noused.box.cmd"}}}, {user: b, password: b}] }
no_auth_user: a`)
		}, true, `Permissions Violation for Subscription to "noused.box.cmd"`},
		"no events": {func(t *testing.T) *fleettest.Server {
			return fleettest.Start(t,
				`authorization { users = [{user: a, password: a, permissions: {publish: {deny: "noused.*.evt.*"}, subscribe: ">"}}] }
no_auth_user: a`)
		}, true, `Permissions Violation for Publish to "noused.box.evt.ses-1"`},
		"no room": {func(t *testing.T) *fleettest.Server {
			return fleettest.Start(t,
				`accounts { A { jetstream: {max_mem: 64M, max_file: 1M}, users: [{user: a, password: a}] } }
no_auth_user: a`)
		}, true, "the stream noused_EVENTS is missing and cannot be made"},
		"another stream": {func(t *testing.T) *fleettest.Server {
			s := fleettest.Start(t, "")
			_, err := jetStream(t, dial(t, s.Direct())).CreateStream(t.Context(), jetstream.StreamConfig{
				Name:     "noused_EVENTS",
				Subjects: []string{"other"},
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}, true, "the stream noused_EVENTS does not fit: it does not take noused.*.evt.*"},
		"a stream of short messages": {func(t *testing.T) *fleettest.Server {
			s := fleettest.Start(t, "")
			fleettest.Limit(t, s.Direct(), 1<<10, fleet.DefaultPrefix.OpenEvents)
			return s
		}, true, "the stream noused_EVENTS does not fit: it takes messages of at most 1024 bytes, want 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := c.start(t)
			d := startDaemon(t, server.URL(), nil)
			d.say("ses-1", "hello")
			testenv.Until(t, "it is told: "+c.want, func() bool {
				return strings.Contains(strings.Join(d.State().Problems, "\n"), c.want)
			})
			if c.joined {
				d.isJoined()
			} else if d.State().Connected {
				t.Error("it says that it is in the fleet")
			}
		})
	}
}

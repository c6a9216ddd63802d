package via_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/via"
	"noused/internal/protocol"
	"noused/internal/regular"
)

func TestCommandsOverNATS(t *testing.T) {
	s := fleettest.Start(t, "")
	d := startDaemon(t, connect(s), "box", "ep-1")
	f := open(t, connect(s), "box")
	ctx := within(t)
	c := commands(t, ctx, f.Host("box"))
	long := make(chan error, 1)
	go func() {
		_, err := client.Call(ctx, c, protocol.CompactSession, protocol.CompactSessionParams{})
		long <- err
	}()
	for range 10 { // a long one holds nobody up
		if pong, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil || pong.Version != "ep-1" {
			t.Fatalf("got %v, %v", pong, err)
		}
	}
	close(d.slow)
	if err := <-long; err != nil {
		t.Fatal(err)
	}
	var wire *protocol.Error
	if _, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{}); !errors.As(err, &wire) {
		t.Errorf("a command without a handler: got %v", err)
	}
	_, err := client.Call(ctx, c, protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: strings.Repeat("x", 2<<20)})
	if err == nil || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("a command that the server does not carry: got %v", err)
	}
	if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Errorf("the command after it: %v", err)
	}
}

func TestHostThatIsNotThere(t *testing.T) {
	s := fleettest.Start(t, "")
	startDaemon(t, connect(s), "box", "ep-1")
	startDaemon(t, connect(s), "tower", "ep-2")
	f := open(t, connect(s), "box", "tower")
	_, err := f.Host("bx").Commands(within(t))
	var none *via.NoHostError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "no daemon called bx") ||
		none.Next() != "there are: box, tower" {
		t.Fatalf("got %v", err)
	}
}

// What was sent and not answered is not sent again, and its caller is told.
func TestCommandWhoseAnswerIsLost(t *testing.T) {
	s := fleettest.Start(t, "")
	startDaemon(t, connect(s), "box", "ep-1")
	f := open(t, connect(s), "box")
	ctx := within(t)
	c := commands(t, ctx, f.Host("box"))
	lost := make(chan error, 1)
	go func() {
		_, err := client.Call(ctx, c, protocol.CompactSession, protocol.CompactSessionParams{})
		lost <- err
	}()
	if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Fatal(err)
	}
	s.Down()
	if err := <-lost; !errors.Is(err, client.ErrLost) {
		t.Fatalf("got %v, want that the connection is lost", err)
	}
	var away *via.AwayError
	if _, err := f.Host("box").Commands(ctx); !errors.As(err, &away) ||
		!strings.Contains(err.Error(), "NATS server at nats://") {
		t.Fatalf("got %v, want that the server is away", err)
	}
}

func delta(session string, n int) protocol.Event {
	return protocol.MessageUpdate{
		Ref: protocol.Ref{SessionID: session, RunID: "run"}, MessageID: "m",
		Delta: fmt.Sprint(n, ";"),
	}
}

func status(session string, n int) protocol.Event {
	return protocol.Status{Ref: protocol.Ref{SessionID: session}, Message: fmt.Sprint(n)}
}

// stream reads events until the one with number upTo, and checks that none comes twice
// and none is missing.
func readTo(t *testing.T, ctx context.Context, s *follow.Stream, after, upTo uint64) {
	t.Helper()
	for after < upTo {
		h, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("after %d: %v", after, err)
		}
		switch h := h.(type) {
		case follow.Line:
			if h.Seq != after+1 {
				t.Fatalf("got event %d behind %d: %s", h.Seq, after, h.Raw)
			}
			after = h.Seq
		case follow.Gap:
			t.Fatalf("got a gap: %s", h.Raw)
		case follow.Connected:
			if h.Gap || h.After != after {
				t.Fatalf("behind %d: connected with %+v", after, h)
			}
		}
	}
}

// next is what happens next, but that the server has not answered in time: then it is
// asked again.
func next(t *testing.T, ctx context.Context, s *follow.Stream) follow.Update {
	t.Helper()
	for {
		h, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		off, away := h.(follow.Disconnected)
		if !away {
			return h
		}
		t.Log(off.Err)
	}
}

func TestEventsOverNATS(t *testing.T) {
	s := fleettest.Start(t, "")
	d := startDaemon(t, connect(s), "box", "ep-1")
	other := startDaemon(t, connect(s), "other", "ep-2")
	f := open(t, connect(s), "box", "other")
	ctx := within(t)
	for i := range 50 {
		d.log.Append(status("ses-a", i))
		other.log.Append(status("ses-b", i))
	}
	stream := func(p protocol.SubscribeParams) *follow.Stream {
		st := follow.NewStream(client.Current(f.Host("box")), follow.Options{Filter: p})
		t.Cleanup(st.Close)
		return st
	}
	after := uint64(20)
	old := stream(protocol.SubscribeParams{Epoch: "ep-1", After: &after})
	readTo(t, ctx, old, 20, 50)
	now := stream(protocol.SubscribeParams{})
	h := next(t, ctx, now)
	if c, ok := h.(follow.Connected); !ok || c.After != 50 || c.Epoch != "ep-1" || c.Gap {
		t.Fatalf("got %+v", h)
	}
	d.log.Append(status("ses-a", 51), status("ses-c", 52), delta("ses-a", 53), delta("ses-a", 54))
	readTo(t, ctx, now, 50, 54)
	readTo(t, ctx, old, 50, 54)
	one := stream(protocol.SubscribeParams{Epoch: "ep-1", After: &after, SessionID: "ses-c"})
	next(t, ctx, one)
	if h := next(t, ctx, one); h.(follow.Line).Seq != 52 {
		t.Fatalf("got %+v", h)
	}
	for _, p := range []protocol.SubscribeParams{{Epoch: "ep-0", After: &after}, {Epoch: "ep-0"}} {
		st := stream(p)
		if h := next(t, ctx, st); !h.(follow.Connected).Gap {
			t.Fatalf("%+v: got %+v", p, h)
		}
		if h := next(t, ctx, st); h.(follow.Line).Seq != 1 {
			t.Fatalf("%+v: got %+v, want the oldest event", p, h)
		}
	}
}

// events publishes numbered events until it has as many as it should.
func (d *daemon) publish(from, to int) {
	for i := from; i <= to; i++ {
		if i%3 == 0 {
			d.log.Append(status("ses-a", i))
		} else {
			d.log.Append(delta("ses-a", i))
		}
	}
}

// Connections that are cut, and a server that is restarted, cost no event, and none
// comes twice.
func TestEventsAreResumed(t *testing.T) {
	s := fleettest.Start(t, "")
	d := startDaemon(t, connect(s), "box", "ep-1")
	f := open(t, connect(s), "box")
	ctx := within(t)
	st := follow.NewStream(client.Current(f.Host("box")), follow.Options{})
	t.Cleanup(st.Close)
	readTo(t, ctx, st, 0, 0)
	if h := next(t, ctx, st); h.(follow.Connected).After != 0 {
		t.Fatalf("got %+v", h)
	}
	at := 0
	for range 5 {
		d.publish(at+1, at+100)
		readTo(t, ctx, st, uint64(at), uint64(at+50))
		s.Cut()
		d.publish(at+101, at+200)
		readTo(t, ctx, st, uint64(at+50), uint64(at+200))
		at += 200
	}
	d.publish(at+1, at+100)
	readTo(t, ctx, st, uint64(at), uint64(at+10))
	s.Down()
	d.publish(at+101, at+200)
	s.Up()
	readTo(t, ctx, st, uint64(at+10), uint64(at+200))
}

// A daemon that was started anew has other events: a reader is told.
func TestDaemonThatIsStartedAnew(t *testing.T) {
	s := fleettest.Start(t, "")
	d := startDaemon(t, connect(s), "box", "ep-1")
	f := open(t, connect(s), "box")
	ctx := within(t)
	st := follow.NewStream(client.Current(f.Host("box")), follow.Options{})
	t.Cleanup(st.Close)
	next(t, ctx, st)
	d.publish(1, 10)
	readTo(t, ctx, st, 0, 10)
	d.end()
	next := startDaemon(t, connect(s), "box", "ep-2")
	await(t, connect(s), "box")
	next.publish(1, 5)
	for {
		h, err := st.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := h.(follow.Connected); ok {
			if !c.Restarted || !c.Gap || c.Epoch != "ep-2" || c.After != 0 {
				t.Fatalf("got %+v, want another daemon from its first event on", c)
			}
			break
		}
	}
	readTo(t, ctx, st, 0, 5)
}

// What is no event in the stream, and no presence in the bucket, is passed over; what
// is missing then is told.
func TestGarbage(t *testing.T) {
	s := fleettest.Start(t, "")
	d := startDaemon(t, connect(s), "box", "ep-1")
	var (
		mu    sync.Mutex
		notes []string
	)
	f := via.Open(via.Options{Connect: connect(s), Prefix: fleet.DefaultPrefix, Note: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, text)
	}})
	t.Cleanup(f.Close)
	await(t, connect(s), "box")
	ctx := within(t)
	st := follow.NewStream(client.Current(f.Host("box")), follow.Options{})
	t.Cleanup(st.Close)
	next(t, ctx, st)
	d.publish(1, 3)
	readTo(t, ctx, st, 0, 3)
	nc, js := bare(t, connect(s))
	for i, text := range []string{
		"", "x", `{"v":"1"}`, `{"v":"1","id":"evt-9","type":"status","payload":{},"seq":9}`,
		"{\"v\":\"1\",\n\"seq\":4}", `{"v":"1","id":"evt-4","type":"status","payload":{},"from_seq":7,"seq":4}`,
	} {
		for _, id := range []string{"", "ep-1:4", fmt.Sprint("ep-0:", i)} {
			msg := nats.NewMsg(fleet.DefaultPrefix.Event("box", "ses-a"))
			msg.Data = []byte(text)
			if id != "" {
				msg.Header.Set(jetstream.MsgIDHeader, id)
			}
			if _, err := js.PublishMsg(ctx, msg); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.log.Append(status("ses-a", 4), status("ses-a", 5), status("ses-a", 6)) // the server takes 4 for one that it has
	h, err := st.Next(ctx)
	if gap, ok := h.(follow.Gap); err != nil || !ok || gap.Seq != 4 {
		t.Fatalf("got %+v, %v, want that event 4 is missing", h, err)
	}
	readTo(t, ctx, st, 4, 6)
	kv, err := js.KeyValue(ctx, fleet.DefaultPrefix.HostBucket())
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range map[string]string{
		"empty": "", "text": "text", "other": `{"name":"box"}`,
		"a.b": `{"name":"a.b"}`, "labels": `{"name":"labels","labels":{"a b":""}}`,
	} {
		if _, err := kv.PutString(ctx, key, text); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := f.Hosts(ctx); err != nil || len(all) != 1 || all[0].Name != "box" || all[0].Waiting != 2 {
		t.Errorf("got %+v, %v", all, err)
	}
	nc.Close()
	mu.Lock()
	defer mu.Unlock()
	if len(notes) != 6 || !strings.Contains(notes[0], "is passed over") {
		t.Errorf("got %d notes: %q", len(notes), notes)
	}
}

func TestServersThatWillNot(t *testing.T) {
	seed := filepath.Join(t.TempDir(), "seed")
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := pair.Seed()
	if err := os.WriteFile(seed, text, 0o600); err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	for name, tc := range map[string]struct{ config, nkey, command, events string }{
		"no JetStream": {"none", "", "no daemon called box", "has no JetStream"},
		"no daemon":    {"", "", "no daemon called box", "no daemon has joined a fleet there"},
		"a key that it does not know": {
			`authorization { users: [ { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 } ] }`, seed,
			"does not let you in", "does not let you in",
		},
		"what is denied": {
			`authorization { users: [ { nkey: ` + public + `, permissions: { publish: "x", subscribe: "_INBOX.>" } } ] }`, seed,
			"denies it", "denies it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := fleettest.Start
			if tc.config == "none" {
				start, tc.config = fleettest.StartWithout, ""
			}
			s := start(t, tc.config)
			f := via.Open(via.Options{
				Connect: fleet.Connect{URLs: []string{s.URL()}, NKey: tc.nkey},
				Prefix:  fleet.DefaultPrefix,
			})
			t.Cleanup(f.Close)
			ctx := within(t)
			if _, err := f.Host("box").Commands(ctx); err == nil || !strings.Contains(err.Error(), tc.command) {
				t.Errorf("commands: got %v, want %q", err, tc.command)
			}
			st := follow.NewStream(client.Current(f.Host("box")), follow.Options{})
			t.Cleanup(st.Close)
			h, err := st.Next(ctx)
			if gone, ok := h.(follow.Disconnected); err != nil || !ok || !strings.Contains(gone.Err.Error(), tc.events) {
				t.Errorf("events: got %+v, %v, want %q", h, err, tc.events)
			}
			if _, err := f.Hosts(ctx); err == nil || !strings.Contains(err.Error(), tc.events) {
				t.Errorf("hosts: got %v, want %q", err, tc.events)
			}
		})
	}
}

func TestFileWithAKeyThatOthersCanRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "creds")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := via.Open(via.Options{
		Connect: fleet.Connect{URLs: []string{"nats://127.0.0.1:1"}, Creds: path},
		Prefix:  fleet.DefaultPrefix,
	})
	defer f.Close()
	_, err := f.Host("box").Commands(within(t))
	if !errors.Is(err, regular.ErrOpen) || errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// A stalled server holds nobody up for longer than they want, and what it is asked ends.
func TestServerThatStalls(t *testing.T) {
	s := fleettest.Start(t, "")
	startDaemon(t, connect(s), "box", "ep-1")
	f := open(t, connect(s), "box")
	commands(t, within(t), f.Host("box"))
	s.Stall()
	defer s.Go()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Host("box").Commands(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commands: got %v", err)
	}
	if _, err := f.Hosts(ctx); err == nil {
		t.Error("hosts: got no error")
	}
}

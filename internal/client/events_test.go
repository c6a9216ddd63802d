package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

// subscribe runs script as the daemon's end of one event connection, which the
// caller closes.
func subscribe(t *testing.T, p protocol.SubscribeParams, script func(*clienttest.Conn)) (*client.Events,
	*clienttest.Conn, error,
) {
	t.Helper()
	d := clienttest.Listen(t)
	conns := make(chan *clienttest.Conn, 1)
	go func() {
		conn := d.Events()
		script(conn)
		conns <- conn
	}()
	events, err := client.Subscribe(t.Context(), d.Socket, p)
	if err == nil {
		t.Cleanup(func() { events.Close() })
	}
	conn := <-conns
	t.Cleanup(conn.Close)
	return events, conn, err
}

func TestSubscribeThrowsAwayWhatCameBefore(t *testing.T) {
	after := uint64(17)
	events, conn, err := subscribe(t, protocol.SubscribeParams{Epoch: "e", After: &after, Types: []string{"status"}},
		func(conn *clienttest.Conn) {
			conn.Event(40, "status", `{"message":"too early","code":"x"}`)
			id, payload := conn.Want("subscribe")
			if got, want := string(payload), `{"epoch":"e","after":17,"types":["status"]}`; got != want {
				t.Errorf("got payload %s, want %s", got, want)
			}
			conn.Event(41, "error", `{"message":"an event, not a reply","code":"x"}`)
			conn.Reply(id, "subscribed", `{"epoch":"e","next_seq":18,"gap":false}`)
			conn.Event(18, "status", `{"message":"first","code":"x"}`)
		})
	if err != nil {
		t.Fatal(err)
	}
	if events.Epoch() != "e" || events.Last() != 17 || events.Gap() {
		t.Errorf("got epoch %s last %d gap %t, want e 17 false", events.Epoch(), events.Last(), events.Gap())
	}
	env, raw, err := events.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if env.Seq != 18 || events.Last() != 18 || !strings.HasPrefix(string(raw), "{") ||
		strings.HasSuffix(string(raw), "\n") {
		t.Errorf("got seq %d, last %d, line %s", env.Seq, events.Last(), raw)
	}
	ev, err := client.Decode(env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(protocol.Event(protocol.Status{Message: "first", Code: "x"}), ev); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	conn.Close()
	for range 2 {
		if _, _, err := events.Next(t.Context()); !errors.Is(err, client.ErrLost) {
			t.Errorf("after the end: got %v, want ErrLost", err)
		}
	}
}

func TestSubscribeRefused(t *testing.T) {
	_, _, err := subscribe(t, protocol.SubscribeParams{Types: []string{"nonsense"}}, func(conn *clienttest.Conn) {
		id, _ := conn.Want("subscribe")
		conn.Fail(id, protocol.Errorf(protocol.InvalidPayload, "types: no"))
	})
	var wire *protocol.Error
	if !errors.As(err, &wire) || wire.Code != protocol.InvalidPayload {
		t.Errorf("got %v, want the daemon's refusal", err)
	}
}

func TestSubscribeCut(t *testing.T) {
	_, _, err := subscribe(t, protocol.SubscribeParams{}, func(conn *clienttest.Conn) {
		conn.Want("subscribe")
		conn.Close()
	})
	if !errors.Is(err, client.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func TestSubscribeGivesUpWithItsContext(t *testing.T) {
	d := clienttest.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn := d.Events()
		conn.Want("subscribe")
		cancel()
		conn.WantEOF()
		conn.Close()
	}()
	if _, err := client.Subscribe(ctx, d.Socket, protocol.SubscribeParams{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestNextGoesOnAfterACancelledWait(t *testing.T) {
	events, conn, err := subscribe(t, protocol.SubscribeParams{}, func(conn *clienttest.Conn) {
		conn.Subscribed(`{"epoch":"e","next_seq":1,"gap":true}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !events.Gap() {
		t.Error("got no gap, want one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := events.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	conn.Event(1, "agent_start", `{"run_id":"r"}`)
	if env, _, err := events.Next(t.Context()); err != nil || env.Seq != 1 {
		t.Errorf("got seq %d, %v, want 1", env.Seq, err)
	}
}

func TestEventsCloseWithUnreadEvents(t *testing.T) {
	events, _, err := subscribe(t, protocol.SubscribeParams{}, func(conn *clienttest.Conn) {
		conn.Subscribed(`{"epoch":"e","next_seq":1}`)
		conn.Event(1, "agent_start", `{}`)
		conn.Event(2, "agent_start", `{}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	events.Close()
	events.Close()
	if _, _, err := events.Next(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestUnreadableEventEndsTheStream(t *testing.T) {
	events, _, err := subscribe(t, protocol.SubscribeParams{}, func(conn *clienttest.Conn) {
		conn.Subscribed(`{"epoch":"e","next_seq":1}`)
		conn.Line(`{"v":`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := events.Next(t.Context()); !errors.Is(err, client.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func TestEveryEventTypeDecodes(t *testing.T) {
	for _, want := range protocol.EventTypes() {
		payload, err := protocol.EncodePayload(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Decode(protocol.EventEnvelope{Type: want.Type(), Payload: payload})
		if err != nil || got.Type() != want.Type() {
			t.Errorf("%s: got %v, %v", want.Type(), got, err)
		}
	}
	if _, err := client.Decode(protocol.EventEnvelope{Type: "novelty", Payload: []byte(`{}`)}); err == nil {
		t.Error("unknown type: got no error")
	}
	if _, err := client.Decode(protocol.EventEnvelope{Type: "status", Payload: []byte(`{"code":7}`)}); err == nil {
		t.Error("wrong payload: got no error")
	}
}

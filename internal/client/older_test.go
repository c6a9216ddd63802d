package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

// way leads to a scripted daemon.
type way struct{ d *clienttest.Daemon }

func (w way) Commands(ctx context.Context) (net.Conn, error) { return client.Connect(ctx, w.d.Socket) }

func (w way) Events(ctx context.Context) (net.Conn, error) {
	return client.Connect(ctx, protocol.EventSocket(w.d.Socket))
}

// adapted connects through a dialer to a scripted daemon, which plays meanwhile.
func adapted(t *testing.T, d client.Dialer, play func()) *client.Client {
	t.Helper()
	conn, err := d.Commands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(conn)
	played := make(chan struct{})
	t.Cleanup(func() { <-played; c.Close() })
	go func() { defer close(played); play() }()
	return c
}

const oldState = `{"session_id":"ses-1","run_state":"idle"}`

// What is learned on one connection holds for all of a dialer. An older core is told no key,
// and queues a text for a run that it has by its own commands.
func TestAnOlderCoreQueuesByItsOwnCommands(t *testing.T) {
	d := clienttest.Listen(t)
	dialer := client.Adapt(way{d})
	p := protocol.PromptParams{
		Scope: protocol.Scope{SessionID: "ses-1"}, Text: "hi",
		StreamingBehavior: protocol.KindSteer, IdempotencyKey: "k",
	}
	for _, learned := range []bool{false, true} {
		c := adapted(t, dialer, func() {
			conn := d.Commands()
			defer conn.Close()
			asks := 2 // what daemon it is, and which session is the active one
			if learned {
				asks = 1
			}
			for range asks {
				id, _ := conn.Want("get_state")
				conn.Reply(id, "state", oldState)
			}
			id, payload := conn.Want("prompt")
			if strings.Contains(string(payload), "key") {
				t.Errorf("sent %s", payload)
			}
			conn.Fail(id, &protocol.Error{Code: protocol.CommandRejected, Message: "run in progress"})
			id, _ = conn.Want("steer")
			conn.Reply(id, "accepted", `{"command":"steer","run_id":"run-1"}`)
		})
		r, err := client.Call(t.Context(), c, protocol.Prompt, p)
		if err != nil || r.Accepted == nil || r.Accepted.RunID != "run-1" || r.Accepted.SessionID != "ses-1" {
			t.Errorf("got %+v, %v; want that it is queued", r, err)
		}
	}
}

// What an older core would leave undone without a word is not sent, and the error says why.
func TestWhatAnOlderCoreCannotDo(t *testing.T) {
	d := clienttest.Listen(t)
	c := adapted(t, client.Adapt(way{d}), func() {
		conn := d.Commands()
		for range 2 {
			id, _ := conn.Want("get_state")
			conn.Reply(id, "state", oldState)
		}
		conn.WantEOF()
		conn.Close()
	})
	defer c.Close()
	of := protocol.Scope{SessionID: "ses-2"}
	for _, one := range []struct {
		want string
		do   func() error
	}{
		{"takes no images", func() error {
			_, err := client.Call(t.Context(), c, protocol.Steer,
				protocol.SteerParams{Text: "x", Attachments: []protocol.AttachmentParams{{Path: "/x"}}})
			return err
		}},
		{"works in its active session only, which is ses-1; switch to ses-2 first", func() error {
			_, err := client.Call(t.Context(), c, protocol.Abort, protocol.AbortParams{Scope: of})
			return err
		}},
		{"branches at the end only", func() error {
			if err := c.KeepsKeys(t.Context()); !errors.Is(err, client.ErrUnsupported) {
				t.Errorf("of keys: got %v", err)
			}
			_, err := client.Call(t.Context(), c, protocol.BranchSession, protocol.BranchSessionParams{LeafID: "msg-1"})
			return err
		}},
	} {
		var lacks *client.OlderError
		if err := one.do(); !errors.As(err, &lacks) || !strings.Contains(err.Error(), "this core is an older one and "+
			one.want) {
			t.Errorf("got %v, want that it %s", err, one.want)
		}
	}
}

// An older core may have commands beside the frozen ones: what only some of them have is
// asked for, and not what was added since.
func TestAnOlderCoreMayHaveATree(t *testing.T) {
	d := clienttest.Listen(t)
	c := adapted(t, client.Adapt(way{d}), func() {
		conn := d.Commands()
		defer conn.Close()
		id, _ := conn.Want("get_state")
		conn.Reply(id, "state", oldState)
		id, _ = conn.Want("get_tree")
		conn.Reply(id, "tree", `{"session_id":"s","entries":[]}`)
		id, _ = conn.Want("ping") // and no list_tools before
		conn.Reply(id, "pong", `{"message":"pong"}`)
	})
	if _, err := client.Call(t.Context(), c, protocol.GetState, protocol.GetStateParams{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Call(t.Context(), c, protocol.GetTree, protocol.GetTreeParams{}); err != nil {
		t.Error(err)
	}
	var lacks *client.OlderError
	if _, err := client.Call(t.Context(), c, protocol.ListTools, protocol.ListToolsParams{}); !errors.As(err, &lacks) ||
		lacks.Command != "list_tools" {
		t.Errorf("got %v, want that it has no list_tools", err)
	}
	if _, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// A daemon of another version that does not know one command is no older core.
func TestADaemonMayLackOneCommand(t *testing.T) {
	d := clienttest.Listen(t)
	c := adapted(t, client.Adapt(way{d}), func() {
		conn := d.Commands()
		defer conn.Close()
		id, _ := conn.Want("shutdown")
		conn.Fail(id, &protocol.Error{Code: protocol.InvalidCommand, Message: "shutdown"})
		id, _ = conn.Want("list_sessions")
		conn.Reply(id, "sessions", `{"sessions":[]}`)
		id, _ = conn.Want("get_tree")
		conn.Reply(id, "tree", `{"session_id":"s","entries":[]}`)
	})
	var lacks *client.OlderError
	if _, err := client.Call(t.Context(), c, protocol.Shutdown, protocol.ShutdownParams{}); !errors.As(err, &lacks) ||
		lacks.Command != "shutdown" {
		t.Errorf("got %v, want that it has no shutdown", err)
	}
	if _, err := client.Call(t.Context(), c, protocol.ListSessions, protocol.ListSessionsParams{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Call(t.Context(), c, protocol.GetTree, protocol.GetTreeParams{}); err != nil {
		t.Error(err)
	}
}

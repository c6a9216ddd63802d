package client_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"noused/internal/client"
	"noused/internal/client/clienttest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// dial connects a client to a scripted daemon.
func dial(t *testing.T) (*client.Client, *clienttest.Daemon, *clienttest.Conn) {
	t.Helper()
	d := clienttest.Listen(t)
	c, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	conn := d.Commands()
	t.Cleanup(conn.Close)
	return c, d, conn
}

func TestCallReturnsTheTypedReply(t *testing.T) {
	c, _, conn := dial(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		id, payload := conn.Want("prompt")
		if got, want := string(payload), `{"session_id":"s","text":"hi","wait":false}`; got != want {
			t.Errorf("got payload %s, want %s", got, want)
		}
		conn.Reply(id, "accepted", `{"command":"prompt","run_id":"r1","session_id":"s","input_id":"i1","future":1}`)
	}()
	wait := false
	got, err := client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: "s"}, Text: "hi", Wait: &wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.PromptReply{Accepted: &protocol.PromptAccepted{
		Command: "prompt", RunID: "r1", SessionID: "s",
		InputID: "i1",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
	<-done
}

func TestRepliesFindTheirCallsInAnyOrder(t *testing.T) {
	const calls = 32
	c, _, conn := dial(t)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			leaf := "leaf-" + strconv.Itoa(i)
			got, err := client.Call(t.Context(), c, protocol.SetLeaf, protocol.SetLeafParams{LeafID: leaf})
			if err != nil || got.LeafID != leaf {
				t.Errorf("got %+v, %v, want leaf %s", got, err, leaf)
			}
		})
	}
	type asked struct{ id, payload string }
	var all []asked
	for range calls {
		id, payload := conn.Want("set_leaf")
		all = append(all, asked{id, string(payload)})
	}
	for i := len(all) - 1; i >= 0; i-- {
		conn.Reply(all[i].id, "leaf", all[i].payload)
	}
	wg.Wait()
}

func TestErrorEnvelopeIsAProtocolError(t *testing.T) {
	c, _, conn := dial(t)
	want := &protocol.Error{Code: protocol.CommandRejected, Message: "no_active_run: idle", Cause: "why"}
	go func() {
		id, _ := conn.Want("abort")
		conn.Fail(id, want)
	}()
	_, err := client.Call(t.Context(), c, protocol.Abort, protocol.AbortParams{})
	var got *protocol.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want a *protocol.Error", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestReplyLongerThanAnyCommand(t *testing.T) {
	c, _, conn := dial(t)
	text := strings.Repeat("0123456789abcdef", (protocol.DefaultMaxLine/16)*2)
	go func() {
		id, _ := conn.Want("get_messages")
		conn.Reply(id, "messages", `{"session_id":"s","messages":[{"type":"message","text":"`+text+`"}]}`)
	}()
	got, err := client.Call(t.Context(), c, protocol.GetMessages, protocol.GetMessagesParams{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 1 || len(got.Messages[0]) < len(text) {
		t.Errorf("got %d messages, want the one of %d bytes", len(got.Messages), len(text))
	}
}

func TestLostConnectionFailsEveryCall(t *testing.T) {
	c, _, conn := dial(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); !errors.Is(err, client.ErrLost) {
				t.Errorf("pending call: got %v, want ErrLost", err)
			}
		})
	}
	for range 3 {
		conn.Want("ping")
	}
	conn.Close()
	wg.Wait()
	if _, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); !errors.Is(err, client.ErrLost) {
		t.Errorf("later call: got %v, want ErrLost", err)
	}
}

func TestReplyRightBeforeTheEndCounts(t *testing.T) {
	c, _, conn := dial(t)
	go func() {
		id, _ := conn.Want("ping")
		conn.Reply(id, "pong", `{"message":"pong"}`)
		conn.Close()
	}()
	if got, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); err != nil || got.Message != "pong" {
		t.Errorf("got %+v, %v, want pong", got, err)
	}
}

func TestLossNamesWhatTheDaemonSaidLast(t *testing.T) {
	c, _, conn := dial(t)
	go func() {
		conn.Want("ping")
		conn.Fail("", protocol.Errorf(protocol.CommandRejected, "too_many_pending: 9"))
		conn.Close()
	}()
	_, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{})
	var wire *protocol.Error
	if !errors.Is(err, client.ErrLost) || !errors.As(err, &wire) || wire.Code != protocol.CommandRejected {
		t.Errorf("got %v, want ErrLost with the daemon's reason", err)
	}
}

// A daemon says in one of several ways that it does not know a command. That one has no
// right form is another error.
func TestACommandThatTheDaemonDoesNotKnow(t *testing.T) {
	for said, want := range map[string]bool{
		`unknown_command: "get_tree"`: true, "unknown command": true, "get_tree": true, "invalid_command: get_tree": true,
		`"get_tree"`: true,
		"missing_id": false, "invalid_json: get_tree": false, "invalid_command: ": false,
	} {
		c, _, conn := dial(t)
		go func() {
			id, _ := conn.Want("get_tree")
			conn.Fail(id, &protocol.Error{Code: protocol.InvalidCommand, Message: said})
		}()
		if _, err := client.Call(t.Context(), c, protocol.GetTree, protocol.GetTreeParams{}); errors.Is(err,
			client.ErrUnsupported) != want {
			t.Errorf("%s: got %v, want ErrUnsupported: %t", said, err, want)
		}
	}
}

// A v1 core may leave the id out of its errors: the command that it refuses is
// told all the same, and the connection goes on.
func TestErrorWithoutAnIDFindsItsCommand(t *testing.T) {
	c, _, conn := dial(t)
	go func() {
		conn.Want("get_tree")
		conn.Line(
			`{"v":"1","id":"","type":"error","payload":{},"ok":false,"error":{"code":"invalid_command","message":"unknown_command: get_tree"}}`)
		for range 2 {
			id, _ := conn.Want("ping")
			conn.Reply(id, "pong", `{"message":"pong"}`)
		}
	}()
	_, err := client.Call(t.Context(), c, protocol.GetTree, protocol.GetTreeParams{})
	var wire *protocol.Error
	if !errors.Is(err, client.ErrUnsupported) || !errors.As(err, &wire) || wire.Code != protocol.InvalidCommand {
		t.Errorf("got %v, want ErrUnsupported with the daemon's words", err)
	}
	if got, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); err != nil || got.Message != "pong" {
		t.Errorf("got %+v, %v, want pong", got, err)
	}
}

func TestSilentDaemonIsNotWaitedForForever(t *testing.T) {
	c, _, _ := dial(t)
	p := protocol.GetTreeParams{}
	ctx, cancel := client.Bounded(t.Context(), p, time.Nanosecond)
	defer cancel()
	_, err := client.Call(ctx, c, protocol.GetTree, p)
	var silent *client.SilentError
	if !errors.As(err, &silent) || !strings.Contains(err.Error(), "get_tree: the daemon has not answered for") {
		t.Errorf("got %v, want a SilentError that names the command", err)
	}
}

func TestUnreadableReplyEndsTheConnection(t *testing.T) {
	c, _, conn := dial(t)
	go func() {
		conn.Want("ping")
		conn.Line(`not json`)
	}()
	if _, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); !errors.Is(err, client.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func TestReplyOfTheWrongShapeIsAnError(t *testing.T) {
	c, _, conn := dial(t)
	go func() {
		id, _ := conn.Want("ping")
		conn.Reply(id, "pong", `{"message":7}`)
	}()
	if _, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); err == nil ||
		!strings.Contains(err.Error(), "ping: decode reply") {
		t.Errorf("got %v, want a decode error naming the command", err)
	}
}

func TestCancelAbandonsOneWaitOnly(t *testing.T) {
	c, _, conn := dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	abandoned := make(chan error, 1)
	go func() {
		_, err := client.Call(ctx, c, protocol.CompactSession, protocol.CompactSessionParams{})
		abandoned <- err
	}()
	late, _ := conn.Want("compact_session")
	cancel()
	if err := <-abandoned; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	go func() {
		id, _ := conn.Want("ping")
		conn.Reply(late, "compaction", `{}`)
		conn.Reply(id, "pong", `{"message":"pong"}`)
	}()
	if _, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Errorf("next call: %v", err)
	}
}

func TestCloseEndsPendingCalls(t *testing.T) {
	c, _, conn := dial(t)
	pending := make(chan error, 1)
	go func() {
		_, err := client.Call(t.Context(), c, protocol.Ping, protocol.PingParams{})
		pending <- err
	}()
	conn.Want("ping")
	c.Close()
	if err := <-pending; !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	c.Close()
}

func TestNoDaemon(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	_, err := client.Dial(t.Context(), missing)
	var no *client.NoDaemonError
	if !errors.As(err, &no) || no.Socket != missing || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v, want a NoDaemonError for %s", err, missing)
	}

	d := clienttest.Listen(t)
	stale := d.Socket + "2"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := client.Dial(t.Context(), stale); !errors.As(err, &no) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("stale socket: got %v, want a NoDaemonError", err)
	}

	if _, err := client.Dial(t.Context(), "/"+strings.Repeat("x", 107)); err == nil ||
		!strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("long path: got %v, want its length named", err)
	}
}

func TestDefaultSocket(t *testing.T) {
	for _, tc := range []struct{ name, own, runtime, want string }{
		{"own variable wins", "/a/b.sock", "/run/user/7", "/a/b.sock"},
		{"runtime directory", "", "/run/user/7", "/run/user/7/noused/noused.sock"},
		{"neither", "", "", "/tmp/noused-" + strconv.Itoa(syscall.Getuid()) + "/noused.sock"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("NOUSED_SOCKET", tc.own)
			t.Setenv("XDG_RUNTIME_DIR", tc.runtime)
			if got := client.DefaultSocket(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

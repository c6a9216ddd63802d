package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"noused/internal/protocol"
)

// fake answers a few commands. A prompt with wait lasts until its text is sent
// on finish, or its context ends, which is told on left.
type fake struct {
	*protocol.Mux
	finish chan string
	left   chan error
}

func testMux(testing.TB) fake {
	f := fake{new(protocol.Mux), make(chan string), make(chan error, maxLong)}
	protocol.HandleFunc(f.Mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
		return protocol.Pong{Message: "pong"}, nil
	})
	protocol.Handle(f.Mux, protocol.Prompt,
		func(_ context.Context, p protocol.PromptParams) (protocol.Answer[protocol.PromptReply], error) {
			return protocol.Answer[protocol.PromptReply]{Later: func(ctx context.Context) (protocol.PromptReply, error) {
				select {
				case output := <-f.finish:
					return protocol.PromptReply{Result: &protocol.PromptResult{Output: output}}, nil
				case <-ctx.Done():
					f.left <- context.Cause(ctx)
					return protocol.PromptReply{}, ctx.Err()
				}
			}}, nil
		})
	protocol.HandleFunc(f.Mux, protocol.Abort, func(context.Context, protocol.AbortParams) (protocol.AbortAccepted,
		error,
	) {
		return protocol.AbortAccepted{}, protocol.Rejectf(protocol.NoActiveRun, "none")
	})
	protocol.HandleFunc(f.Mux, protocol.GetTree, func(context.Context, protocol.GetTreeParams) (protocol.Tree, error) {
		panic("a broken handler")
	})
	protocol.HandleFunc(f.Mux, protocol.GetState, func(context.Context, protocol.GetStateParams) (protocol.State, error) {
		return protocol.State{}, errors.New("a secret of the disk")
	})
	protocol.HandleFunc(f.Mux, protocol.NewSession, func(_ context.Context, p protocol.NewSessionParams) (protocol.Session,
		error,
	) {
		n, err := strconv.Atoi(p.Title)
		return protocol.Session{SessionID: strings.Repeat("x", n)}, err
	})
	return f
}

func TestRepliesComeInOrder(t *testing.T) {
	w := dial(t, serve(t, testMux(t).Mux, 0).path)
	var lines strings.Builder
	for i := range 2000 {
		lines.WriteString(cmd(fmt.Sprint("c", i), "ping", "{}"))
	}
	w.send("\n\r\n" + lines.String())
	for i := range 2000 {
		w.want(fmt.Sprint("c", i), "pong")
	}
}

func TestEveryLineIsAnswered(t *testing.T) {
	b := serve(t, testMux(t).Mux, 0)
	w := dial(t, b.path)
	for _, c := range []struct{ line, id, code, message string }{
		{"{broken\n", "", "invalid_command", "invalid_json"},
		{`{"id":"c1","type":"ping","v":"2"}` + "\n", "c1", "invalid_command", "invalid_version"},
		{`{"type":"ping"}` + "\n", "", "invalid_command", "missing_id"},
		{cmd("c2", "dance", "{}"), "c2", "invalid_command", "unknown_command"},
		{cmd("c3", "prompt", "{}"), "c3", "invalid_payload", "text"},
		{cmd("c4", "abort", "{}"), "c4", "command_rejected", "no_active_run"},
		{cmd("c5", "get_tree", "{}"), "c5", "internal_error", "internal error"},
		{cmd("c6", "get_state", "{}"), "c6", "internal_error", "internal error"},
		{
			`{"v":"1","id":"c7","type":"ping","x":"` + strings.Repeat("x", maxLine+1<<20) + "\"}\n", "c7", "invalid_command",
			"line_too_long",
		},
		{strings.Repeat("x", maxLine+1) + "\n", "", "invalid_command", "line_too_long"},
	} {
		w.send(c.line)
		l := w.want(c.id, "error")
		if l.OK || l.Error == nil || string(l.Error.Code) != c.code || !strings.HasPrefix(l.Error.Message, c.message) ||
			strings.Contains(l.Error.Message, "secret") {
			t.Errorf("%.60s: got %v, want %s %s", c.line, l.Error, c.code, c.message)
		}
	}
	w.send(cmd("last", "ping", "{}"))
	w.want("last", "pong")
	entries := b.seen.FilterMessage("command failed").All()
	if len(entries) != 2 || !strings.Contains(fmt.Sprint(entries[0].ContextMap()["error"]),
		"panic in get_tree: a broken handler\ngoroutine") ||
		entries[1].ContextMap()["error"] != "a secret of the disk" || entries[1].ContextMap()["id"] != "c6" {
		t.Errorf("logged %v", entries)
	}
}

func TestALongCommandHoldsNothingUp(t *testing.T) {
	f := testMux(t)
	w := dial(t, serve(t, f.Mux, 0).path)
	w.send(cmd("c1", "ping", "{}") + cmd("c2", "prompt", `{"text":"x"}`) + cmd("c3", "abort", "{}"))
	w.want("c1", "pong")
	w.want("c3", "error")
	f.finish <- "done"
	if l := w.want("c2", "result"); !strings.Contains(string(l.Payload), `"done"`) {
		t.Errorf("got %s", l.Payload)
	}
}

func TestTooManyLongCommandsAreRefusedBeforeTheyStart(t *testing.T) {
	f := testMux(t)
	w := dial(t, serve(t, f.Mux, 0).path)
	for i := range maxLong + 1 {
		w.send(cmd(fmt.Sprint("c", i), "prompt", `{"text":"x"}`))
	}
	if l := w.want(fmt.Sprint("c", maxLong), "error"); !strings.HasPrefix(l.Error.Message, "too_many_pending") {
		t.Errorf("got %v", l.Error)
	}
	w.send(cmd("p", "ping", "{}"))
	w.want("p", "pong")
	for range maxLong {
		f.finish <- "done"
		if l := w.recv(); l.Type != "result" {
			t.Fatalf("got %+v", l)
		}
	}
}

func TestHalfCloseIsAnsweredFirst(t *testing.T) {
	f := testMux(t)
	w := dial(t, serve(t, f.Mux, 0).path)
	w.send(cmd("c1", "prompt", `{"text":"x"}`) + cmd("c2", "ping", "{}") + strings.TrimSuffix(cmd("c3", "ping", "{}"),
		"\n"))
	_ = w.CloseWrite()
	w.want("c2", "pong")
	w.want("c3", "pong")
	f.finish <- "done"
	w.want("c1", "result")
	if _, err := w.next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestAClientThatIsGoneIsNotWaitedFor(t *testing.T) {
	for name, leave := range map[string]func(*wire){
		"at once":            func(w *wire) { _ = w.Close() },
		"with input waiting": func(w *wire) { w.send("{"); _ = w.Close() },
		"after a half-close": func(w *wire) {
			w.send(cmd("c2", "ping", "{}"))
			_ = w.CloseWrite()
			w.want("c2", "pong") // the end is read
			_ = w.Close()
		},
	} {
		f := testMux(t)
		w := dial(t, serve(t, f.Mux, 0).path)
		w.send(cmd("c1", "prompt", `{"text":"x"}`))
		leave(w)
		if err := <-f.left; err == nil {
			t.Errorf("%s: the prompt's context has not ended", name)
		}
	}
}

func TestAClientThatDoesNotReadCostsOnlyItself(t *testing.T) {
	was := writeTimeout
	writeTimeout = time.Millisecond
	defer func() { writeTimeout = was }()
	client, conn := pair(t)
	s := &commandConn{conn: conn, mux: testMux(t).Mux, maxLine: maxLine, encoding: new(sync.Mutex), log: zap.NewNop()}
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve()
	}()
	client.send(cmd("c1", "new_session", `{"title":"8000000"}`))
	<-done
	if !s.dead || s.ctx.Err() == nil {
		t.Error("a client that does not read is not given up")
	}
}

// Who reads a long reply very slowly has the room of others, and is not waited for long.
func TestAReplyIsReadAtALeastRate(t *testing.T) {
	s := &commandConn{ctx: t.Context(), began: time.Now().Add(-10 * time.Minute)}
	for wrote, want := range map[int]time.Duration{1 << 20: time.Millisecond, 30 << 20: writeTimeout} {
		if got := s.patience(wrote); got != want {
			t.Errorf("%d bytes in ten minutes: it is waited for %v, want %v", wrote, got, want)
		}
	}
}

func TestLargeReplies(t *testing.T) {
	w := dial(t, serve(t, testMux(t).Mux, 0).path)
	var lines strings.Builder
	sizes := []int{flushSize - 10, 3 * flushSize, 10, 20_000_000, 0, flushSize}
	for i, n := range sizes {
		lines.WriteString(cmd(fmt.Sprint("c", i), "new_session", fmt.Sprintf(`{"title":"%d"}`, n)))
	}
	w.send(lines.String())
	for i, n := range sizes {
		if l := w.want(fmt.Sprint("c", i), "session"); strings.Count(string(l.Payload), "x") != n {
			t.Errorf("c%d: got %d bytes, want %d", i, len(l.Payload), n)
		}
	}
}

// Clients that do not read hold no more than the budget has; who finds nothing
// left is told so, and all is given back when they have gone.
func TestRepliesThatAreNotReadAreCounted(t *testing.T) {
	b := serve(t, testMux(t).Mux, 0)
	var stalled []*wire
	for range 3 {
		w := dial(t, b.path)
		w.send(cmd("s", "new_session", fmt.Sprintf(`{"title":"%d"}`, room/3-1000)))
		if _, err := w.Read(make([]byte, 1)); err != nil { // it is being answered
			t.Fatal(err)
		}
		stalled = append(stalled, w)
	}
	w := dial(t, b.path)
	w.send(cmd("c", "new_session", `{"title":"100000"}`) + cmd("p", "ping", `{}`))
	if l := w.want("c", "error"); !strings.Contains(l.Error.Message, string(protocol.TooManyPending)) {
		t.Errorf("got %+v", l.Error)
	}
	w.want("p", "pong")
	for _, w := range stalled {
		_ = w.Close()
	}
	b.stop()
	if n := b.held.Used(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// unhurried gives the commands under way an hour when the daemon stops.
func unhurried(t *testing.T) {
	t.Helper()
	was := stopGrace
	stopGrace = time.Hour
	t.Cleanup(func() { stopGrace = was })
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	unhurried(t)
	f := testMux(t)
	b := serve(t, f.Mux, 0)
	idle, busy := dial(t, b.path), dial(t, b.path)
	for _, w := range []*wire{idle, busy} {
		w.send(cmd("c1", "ping", "{}"))
		w.want("c1", "pong")
	}
	busy.send(cmd("c2", "prompt", `{"text":"x"}`) + cmd("c3", "ping", "{}"))
	busy.want("c3", "pong")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.stop()
	}()
	idle.wantEnd()
	f.finish <- "done"
	busy.want("c2", "result")
	busy.wantEnd()
	<-stopped
}

func TestStopGivesUpWhatDoesNotFinish(t *testing.T) {
	f := testMux(t)
	b := serve(t, f.Mux, 0)
	w := dial(t, b.path)
	w.send(cmd("c1", "prompt", `{"text":"x"}`) + cmd("c2", "ping", "{}"))
	w.want("c2", "pong")
	b.stop()
	if err := <-f.left; !errors.Is(err, errStopping) {
		t.Errorf("the prompt ended because of %v", err)
	}
	if l := w.want("c1", "error"); !strings.HasPrefix(l.Error.Message, "shutting_down") {
		t.Errorf("got %v", l.Error)
	}
	w.wantEnd()
}

// What clients have sent is answered, though nobody has taken their connections
// yet; who has sent nothing holds nothing up.
func TestStopAnswersWhatWasSent(t *testing.T) {
	unhurried(t)
	path := filepath.Join(t.TempDir(), "s")
	sockets := listen(t, path)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	var clients []*wire
	for range 50 {
		w := dial(t, path)
		w.send(cmd("c1", "ping", "{}") + "{broken\n" + cmd("c2", "ping", "{}") + `{"v":"1","id":"c3",`)
		clients = append(clients, w)
		dial(t, path)
	}
	if err := ServeCommands(stopped, sockets.Commands, testMux(t).Mux, Lines{Max: maxLine}, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	for _, w := range clients {
		w.want("c1", "pong")
		w.want("", "error")
		w.want("c2", "pong")
		w.wantEnd()
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		t.Error("a daemon that has stopped is connected to")
	}
}

func TestStopDoesNotTakeHalfALineForACommand(t *testing.T) {
	b := serve(t, testMux(t).Mux, 0)
	w := dial(t, b.path)
	w.send(cmd("c1", "ping", "{}") + `{"v":"1","id":"c2",`)
	w.want("c1", "pong")
	b.stop()
	if l, err := w.next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %+v %v, want EOF", l, err)
	}
}

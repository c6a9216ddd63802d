package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		peer, own int
		want      bool
	}{{1000, 1000, true}, {0, 1000, true}, {1001, 1000, false}, {1000, 0, false}, {0, 0, true}, {-1, 1000, false}} {
		if got := allowed(c.peer, c.own); got != c.want {
			t.Errorf("peer %d of a daemon of %d: got %t, want %t", c.peer, c.own, got, c.want)
		}
	}
}

// A stranger who gets past the file's mode is cut off before anything is read.
func TestAStrangerIsRefusedAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	b := serve(t, testMux(t).Mux, 1<<20)
	for dir := filepath.Dir(b.path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{b.path, b.path + ".events"} {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		fds := make(chan int)
		go func() { // ends with its thread, which nobody else may use any more
			runtime.LockOSThread()
			keep := ^uintptr(0)
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); errno != 0 {
				t.Error(errno)
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
			if err != nil {
				t.Error(err)
			}
			fds <- fd
		}()
		file := os.NewFile(uintptr(<-fds), path)
		conn, err := net.FileConn(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(cmd("c1", "ping", "{}")))
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: got %d bytes, want to be cut off", path, n)
		}
		_ = conn.Close()
	}
	if n := b.seen.FilterMessage("connection refused: another user's").Len(); n != 2 {
		t.Errorf("got %d log entries, want 2", n)
	}
	dial(t, b.path).Close()
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	sockets := listen(t, path)
	c := &conns{log: zap.NewNop(), max: 2, grace: stopGrace, open: func(conn *net.UnixConn) session {
		s := &commandConn{conn: conn, mux: testMux(t).Mux, maxLine: maxLine, encoding: new(sync.Mutex), log: zap.NewNop()}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		return s
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.serve(ctx, sockets.Commands) }()
	var clients []*wire
	for range 2 {
		w := dial(t, path)
		w.send(cmd("c1", "ping", "{}"))
		w.want("c1", "pong")
		clients = append(clients, w)
	}
	dial(t, path).wantEnd()
	clients[0].send(cmd("c2", "ping", "{}"))
	clients[0].want("c2", "pong")
	_ = clients[0].CloseWrite()
	clients[0].wantEnd() // it is out of the count before it is closed
	w := dial(t, path)
	w.send(cmd("c3", "ping", "{}"))
	w.want("c3", "pong")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAcceptFailuresAreNotTheEnd(t *testing.T) {
	sockets := listen(t, filepath.Join(t.TempDir(), "s"))
	_ = sockets.Commands.SetDeadline(longAgo) // every accept fails at once
	b := testMux(t)
	ctx, cancel := context.WithCancel(t.Context())
	tries := make(chan struct{}, 100)
	core, _ := observer.New(zap.WarnLevel)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error {
		tries <- struct{}{}
		return nil
	}))
	done := make(chan error)
	go func() { done <- ServeCommands(ctx, sockets.Commands, b.Mux, Lines{Max: maxLine}, log) }()
	<-tries
	<-tries
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAListenerThatIsClosedIsAnError(t *testing.T) {
	sockets := listen(t, filepath.Join(t.TempDir(), "s"))
	_ = sockets.Commands.Close()
	err := ServeCommands(t.Context(), sockets.Commands, new(protocol.Mux), Lines{Max: maxLine}, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v", err)
	}
}

// stubborn is a session that ends when it is released, whatever it is told.
type stubborn struct {
	conn    *net.UnixConn
	release chan struct{}
	aborted chan struct{}
}

func (s *stubborn) serve() {
	_, _ = s.conn.Write([]byte("\n"))
	<-s.release
	panic("a broken session")
}
func (s *stubborn) meet(peer) {}
func (s *stubborn) stop()     {}
func (s *stubborn) abort()    { close(s.aborted) }

func TestASessionThatDoesNotEndIsLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	sockets := listen(t, path)
	s := &stubborn{release: make(chan struct{}), aborted: make(chan struct{})}
	core, seen := observer.New(zap.WarnLevel)
	c := &conns{log: zap.New(core), max: 1, grace: 1, open: func(conn *net.UnixConn) session {
		s.conn = conn
		return s
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.serve(ctx, sockets.Commands) }()
	w := dial(t, path)
	if _, err := w.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-s.aborted
	if seen.FilterMessage("connections do not end and are left behind").Len() != 1 {
		t.Errorf("logged %v", seen.All())
	}
	close(s.release)
	w.wantEnd() // its panic ended this connection alone
	c.all.Wait()
	entries := seen.FilterMessage("connection closed: panic").All()
	if len(entries) != 1 || !strings.Contains(string(entries[0].ContextMap()["stack"].(string)), "stubborn") {
		t.Errorf("logged %v", seen.All())
	}
}

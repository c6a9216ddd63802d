package client_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/client/clienttest"
	"noused/internal/protocol"
	"noused/internal/testenv"
	"noused/internal/trust"
)

// her is another user of the machine.
const her = 65534

// listenAs listens on a socket as another user, from a thread that becomes hers
// and ends: the kernel names who called listen. What she is sent first
// comes out of the channel, empty where the client hung up without a word.
func listenAs(t *testing.T, uid int, path string) <-chan []byte {
	t.Helper()
	made := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			t.Errorf("become user %d: %v", uid, e)
		}
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Error(err)
		}
		made <- ln
	}()
	ln := <-made
	if ln == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = ln.Close() })
	heard := make(chan []byte, 1)
	go func() {
		defer close(heard)
		if conn, err := ln.Accept(); err == nil {
			said := make([]byte, 1<<10)
			n, _ := conn.Read(said)
			_ = conn.Close()
			heard <- said[:n]
		}
	}()
	return heard
}

func dialBoth(t *testing.T, socket string) (commands, subscribe, live error) {
	c, commands := client.Dial(t.Context(), socket)
	if commands == nil {
		_, _ = client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{Text: "a secret"})
		_ = c.Close()
	}
	e, subscribe := client.Subscribe(t.Context(), socket, protocol.SubscribeParams{})
	if subscribe == nil {
		_ = e.Close()
	}
	conn, live := client.Connect(t.Context(), protocol.EventSocket(socket))
	if live == nil {
		_ = client.LiveOver(conn).Close()
	}
	return commands, subscribe, live
}

func TestNothingIsSaidToAnotherUserAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	dir, err := os.MkdirTemp("", "nous")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	heard := [2]<-chan []byte{listenAs(t, her, socket), listenAs(t, her, protocol.EventSocket(socket))}
	commands, subscribe, _ := dialBoth(t, socket)
	for i, err := range []error{commands, subscribe} {
		var peer *trust.PeerError
		if !errors.As(err, &peer) || peer.UID != her {
			t.Errorf("got %v, want that user %d listens there", err, her)
		}
		if said := <-heard[i]; len(said) > 0 {
			t.Errorf("she was sent %q", said)
		}
	}
}

func TestNobodyIsAskedInAFolderOfAnotherUserAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	d := clienttest.Listen(t)
	if err := os.Chown(filepath.Dir(d.Socket), her, her); err != nil {
		t.Fatal(err)
	}
	distrusted(t, d.Socket)
}

// A folder above the last one is as good a place to put another one in.
func TestNobodyIsAskedInAFolderThatOthersMayWrite(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "run")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(base, 0o777)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	for _, path := range []string{socket, protocol.EventSocket(socket)} {
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
	}
	distrusted(t, socket)
}

func distrusted(t *testing.T, socket string) {
	t.Helper()
	commands, subscribe, live := dialBoth(t, socket)
	for _, err := range []error{commands, subscribe, live} {
		var folder *trust.FolderError
		var no *client.DistrustError
		if !errors.As(err, &folder) || !errors.As(err, &no) || no.Socket == "" {
			t.Errorf("got %v, want that the folder is in others' hands", err)
		}
	}
}

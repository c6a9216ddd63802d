// Package server is the edge to the clients: the two Unix sockets, a goroutine
// for each command connection, one cursor for each event connection.
//
// Concurrency: every connection is served by goroutines of its own, which end
// with it and are waited for; what one client does or leaves undone, a panic of
// its commands included, costs no other client. What a stopping daemon waits for
// is bounded, and an idle client does not hold it up.
//
// It refuses to know what a command does: that is bound to the protocol.Mux
// that main hands in.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"noused/internal/lock"
	"noused/internal/protocol"
	"noused/internal/trust"
)

// The names (FileDescriptorName=) of the sockets that systemd may hand over.
const (
	commandsName = "commands"
	eventsName   = "events"
)

// Sockets are the two listeners.
type Sockets struct {
	Commands, Events *Listener

	lock *lock.Lock // nil when systemd holds the sockets
}

// Listener listens on one of the two sockets.
type Listener struct {
	*net.UnixListener

	shared bool // with systemd, which keeps it for the next daemon
	// tokens is set where hosted agents connect, which may be in a sandbox: whether a token is
	// that of a session.
	tokens Tokens
}

// Tokens reports whether a token is a hosted agent's for that session.
type Tokens func(sessionID, token string) bool

// drain refuses new connections from here on, and ends Accept. What waits already
// is had from waiting; at systemd's socket it is the next daemon's.
func (l *Listener) drain() {
	err := errors.ErrUnsupported
	if !l.shared {
		err = l.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
	}
	if err != nil {
		_ = l.Close()
	}
	_ = l.SetDeadline(longAgo)
}

// waiting accepts a connection that has waited since before drain. Accept cannot:
// to the kernel, a socket that is shut is one where nothing has come yet.
func (l *Listener) waiting() (*net.UnixConn, error) {
	fd := -1
	err := l.control(func(of int) (err error) {
		fd, _, err = unix.Accept4(of, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "connection")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func (l *Listener) control(do func(fd int) error) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		for err = unix.EINTR; err == unix.EINTR; {
			err = do(int(fd))
		}
	})
	return errors.Join(ctlErr, err)
}

// Listen takes both sockets: those that systemd hands over, else those at path
// and path.events, which are made with mode 0600 (wire-v1 §1, §8), together
// with path.lock. A folder that is missing is made with mode 0700. It does not
// wait. Errors say who holds a socket, or which rule its path breaks.
func Listen(path string) (*Sockets, error) {
	if pid, err := strconv.Atoi(os.Getenv("LISTEN_PID")); err == nil && pid == os.Getpid() {
		return activated()
	}
	if path == "" || path[0] == '@' {
		return nil, fmt.Errorf("socket path %q: want a file's path", path)
	}
	if err := fits(protocol.EventSocket(path)); err != nil {
		return nil, err
	}
	if err := secureDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket directory: %w; --socket and XDG_RUNTIME_DIR name another", err)
	}
	l, err := lock.Acquire(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	s := &Sockets{lock: l}
	if s.Commands, err = bind(path); err == nil {
		s.Events, err = bind(protocol.EventSocket(path))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, ln := range []*Listener{s.Commands, s.Events} {
		ln.SetUnlinkOnClose(false) // Close does it
	}
	return s, nil
}

// ListenAgents makes the two sockets at path and path.events where hosted agents connect,
// which may be in a sandbox: there every command, and each subscription, has to have the
// token of a session, which commands check themselves. It is for who has the sockets of
// Listen. kept are those that a program before this one has left, if any.
func ListenAgents(path string, kept Kept, tokens Tokens) (s *Sockets, err error) {
	if err := fits(protocol.EventSocket(path)); err != nil {
		return nil, err
	}
	if kept.Commands != nil && kept.Events != nil {
		if s, err = Inherit(path, Kept{Commands: kept.Commands, Events: kept.Events}); err != nil {
			return nil, err
		}
	} else {
		s = &Sockets{}
		if s.Commands, err = bind(path); err == nil {
			s.Events, err = bind(protocol.EventSocket(path))
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, ln := range []*Listener{s.Commands, s.Events} {
		ln.SetUnlinkOnClose(false) // Close does it
		ln.shared, ln.tokens = false, tokens
	}
	return s, nil
}

// Kept are the two sockets, and the lock where they are our own, for the program that
// takes this one's place in the same process.
type Kept struct {
	Commands, Events *os.File
	Lock             *os.File // nil where the sockets are systemd's
}

// Keep has the sockets outlive their Close: who connects then waits for the program
// that inherits them.
func (s *Sockets) Keep() (k Kept, err error) {
	if s.lock != nil {
		k.Lock, err = s.lock.Keep()
	}
	if err == nil {
		k.Commands, err = s.Commands.keep()
	}
	if err == nil {
		k.Events, err = s.Events.keep()
	}
	if err != nil {
		k.close()
		return Kept{}, err
	}
	s.Commands.shared, s.Events.shared = true, true // as with systemd
	return k, nil
}

func (k Kept) close() {
	for _, f := range []*os.File{k.Commands, k.Events, k.Lock} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// keep duplicates the descriptor.
func (l *Listener) keep() (f *os.File, err error) {
	err = l.control(func(fd int) error {
		kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			f = os.NewFile(uintptr(kept), l.Addr().String())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", l.Addr(), err)
	}
	return f, nil
}

// Inherit takes over what Keep has returned before this program was executed, for the
// sockets at path and path.events.
func Inherit(path string, k Kept) (*Sockets, error) {
	defer Kept{Commands: k.Commands, Events: k.Events}.close()
	s := &Sockets{}
	var err error
	if s.Commands, err = inherit(k.Commands, path, k.Lock == nil); err == nil {
		s.Events, err = inherit(k.Events, protocol.EventSocket(path), k.Lock == nil)
	}
	switch {
	case k.Lock == nil:
	case err != nil:
		_ = k.Lock.Close()
	default:
		s.lock, err = lock.Inherit(k.Lock, path+".lock")
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func inherit(f *os.File, path string, shared bool) (*Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	unixLn, ok := ln.(*net.UnixListener)
	if !ok || !shared && unixLn.Addr().String() != path {
		_ = ln.Close()
		return nil, fmt.Errorf("socket %s: what was inherited is another one", path)
	}
	return &Listener{UnixListener: unixLn, shared: shared}, nil
}

// fits refuses a path that is too long for a socket.
func fits(path string) error {
	if len(path) > protocol.MaxSocketPath {
		return fmt.Errorf("socket path %s is %d bytes long, at most %d can be bound", path, len(path), protocol.MaxSocketPath)
	}
	return nil
}

// Close closes what is open, removes socket files of our own, and gives the
// lock up. The files stay until then, as a lock without them is that of a daemon
// whose socket somebody has removed.
func (s *Sockets) Close() {
	for _, ln := range []*Listener{s.Events, s.Commands} {
		if ln == nil {
			continue
		}
		if !ln.shared {
			_ = os.Remove(ln.Addr().String())
		}
		_ = ln.Close()
	}
	if s.lock != nil {
		_ = s.lock.Release()
	}
}

// secureDir makes the directory, and the default one private. Any other may be
// as open as /tmp: others must only not be able to put something else in the
// socket's place, by it or by a folder above it.
func secureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := trust.Folder(dir); err != nil {
		return err
	}
	if dir != filepath.Dir(protocol.DefaultSocket(os.Getenv)) {
		return nil
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case info.Mode().Perm() != 0o700:
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// bind binds one socket. A file that is there already is removed only if it is
// a socket that nobody answers on.
func bind(path string) (*Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("socket: %w", err)
	case info.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("socket %s: there is a file that is no socket", path)
	default:
		if err := removeStale(path); err != nil {
			return nil, err
		}
	}
	ln, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Not every kernel takes the mode from the socket (gVisor does not); there
	// the peer's uid alone decides until now.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), ln.Close())
	}
	return &Listener{UnixListener: ln}, nil
}

// listenPrivate makes a socket whose file has mode 0600 from the first moment:
// Linux gives it the mode that the socket has when it is bound. A umask would
// do so too, and to whatever other goroutines create meanwhile.
func listenPrivate(path string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		ctlErr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(ctlErr, err)
	}}
	ln, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return ln.(*net.UnixListener), nil
}

func removeStale(path string) error {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("socket %s: another process listens on it", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("socket %s is there and cannot be tried: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("stale socket: %w", err)
	}
	return nil
}

// activated takes the sockets from systemd, by name. What is passed along but
// is no socket is left out of the listeners without a word, so all are counted.
func activated() (*Sockets, error) {
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	byName, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("socket activation: %w", err)
	}
	s := &Sockets{}
	if s.Commands, err = only(byName[commandsName]); err == nil {
		s.Events, err = only(byName[eventsName])
	}
	if err == nil && len(names) == 2 && len(byName) == 2 {
		return s, nil
	}
	for _, all := range byName {
		for _, ln := range all {
			_ = ln.Close()
		}
	}
	return nil, fmt.Errorf("socket activation: want two Unix stream sockets with FileDescriptorName= %s and %s, got %q",
		commandsName, eventsName, names)
}

func only(all []net.Listener) (*Listener, error) {
	if len(all) == 1 {
		if ln, ok := all[0].(*net.UnixListener); ok && ln.Addr().Network() == "unix" {
			return &Listener{UnixListener: ln, shared: true}, nil
		}
	}
	return nil, errors.ErrUnsupported
}

package start

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"noused/internal/detach"
	"noused/internal/lock"
)

// A daemon whose socket file somebody has removed runs on, and nobody reaches it. It
// is known by the locks that it holds.

// unreached is an *Error where a daemon holds the lock of the socket, or the state
// directory, and does not listen; else nil.
func (o Options) unreached() error {
	_, err := os.Lstat(o.Socket)
	there := err == nil
	pid := lock.Holder(o.Socket + ".lock")
	switch {
	case pid != 0 && there:
		return failf("try again in a moment", "a daemon runs as process %d and takes no more connections at %s: it stops, or starts", pid, o.Socket)
	case pid != 0:
		return failf("nous stop ends it, and its runs go on with the next one", "a daemon runs as process %d without its socket: %s has been removed", pid, o.Socket)
	}
	state := o.stateDir()
	if pid = lock.Holder(filepath.Join(state, "lock")); pid != 0 {
		return failf(fmt.Sprintf("name its socket with --socket, or end it with kill %d: its runs go on with the next one; a second daemon needs a --state-dir of its own", pid),
			"a daemon runs as process %d with the sessions in %s and does not listen at %s", pid, state, o.Socket)
	}
	return nil
}

// stateDir is where a daemon that is started here has its sessions, unless its
// configuration says otherwise.
func (o Options) stateDir() string {
	if dir := o.Getenv("NOUSED_STATE_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Dir(detach.LogDir(o.Getenv, o.home()))
}

// stopUnreached ends a daemon that holds the lock of the socket though nobody
// listens there.
func (o Options) stopUnreached(ctx context.Context) (Stopped, error) {
	path := o.Socket + ".lock"
	r := &running{pid: lock.Holder(path), fd: -1}
	if r.pid == 0 {
		if o.Socket == o.defaultSocket() {
			return Stopped{}, o.unreached()
		}
		return Stopped{}, nil
	}
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err != nil || lock.Holder(path) != r.pid { // it has ended meanwhile
		_ = unix.Close(fd)
		return Stopped{}, nil
	}
	defer unix.Close(fd)
	r.fd = fd
	s := Stopped{PID: r.pid}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return s, failf("", "noused (process %d) has no socket and cannot be told to stop: %v", r.pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*extra)
	defer cancel()
	return s, r.awaitProcess(ctx, 2*extra)
}

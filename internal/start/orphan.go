package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/detach"
	"noused/internal/lock"
)

// A daemon that ends takes no connections any more, and has its files until it has
// ended. One whose socket file somebody has removed runs on, and nobody reaches it.
// Both are known by the locks that they hold.

const (
	leavingLook = 100 * time.Millisecond // between looks at a daemon that is ending
	removedTime = time.Second / 2        // for one that ends to give up its lock behind its socket's file
	fewTries    = 4                      // starts, after which one that has only the state directory's lock is named
	maxTries    = 20                     // starts where nobody has either lock: one that ends gives up both, not at once
)

// outlast returns nil when a daemon may be started once more: the one that had its
// files has ended, or may have. Else the error says what that one does; it is why
// where nothing else is known. tries is how often one was started.
func (o Options) outlast(ctx context.Context, tries int, why error) error {
	pid := lock.Holder(o.Socket + ".lock")
	if pid == 0 && tries >= fewTries {
		if err := o.unreached(); err != nil || tries >= maxTries {
			return cmp.Or(err, why)
		}
	}
	for gone := time.Now().Add(removedTime); ; {
		select {
		case <-time.After(leavingLook):
		case <-ctx.Done():
			return cmp.Or(o.unreached(), why)
		}
		if pid == 0 || lock.Holder(o.Socket+".lock") != pid || o.answers(ctx) {
			return nil
		}
		if _, err := os.Lstat(o.Socket); err != nil && time.Now().After(gone) {
			return cmp.Or(o.unreached(), why)
		}
	}
}

// answers tells whether somebody listens: the daemon was not ending but starting.
func (o Options) answers(ctx context.Context) bool {
	conn, err := client.Connect(ctx, o.Socket)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// unreached is an *Error where a daemon holds the lock of the socket, or the state
// directory, and does not listen; else nil.
func (o Options) unreached() error {
	info, err := os.Lstat(o.Socket)
	there := err == nil
	pid := lock.Holder(o.Socket + ".lock")
	switch {
	case pid != 0 && there && info.Mode().Type() != fs.ModeSocket:
		return o.hidden(pid)
	case pid != 0 && there:
		return failf("try again in a moment",
			"a daemon runs as process %d and takes no more connections at %s: it stops, or starts", pid, o.Socket)
	case pid != 0:
		return failf("nous stop ends it, and its runs go on with the next one",
			"a daemon runs as process %d without its socket: %s has been removed", pid, o.Socket)
	}
	state := o.stateDir()
	if pid = lock.Holder(filepath.Join(state, "lock")); pid != 0 {
		return failf(fmt.Sprintf("name its socket with --socket, or end it with kill %d: its runs go on with the next one; "+
			"a second daemon needs a --state-dir of its own", pid),
			"a daemon runs as process %d with the sessions in %s and does not listen at %s", pid, state, o.Socket)
	}
	return nil
}

// hidden is the failure of who is in a sandbox, where something else is in the
// socket's place.
func (o Options) hidden(pid int) *Error {
	return failf("a sandbox hides it from what runs inside",
		"a daemon runs as process %d and cannot be reached from here: %s is no socket", pid, o.Socket)
}

// stateDir is where a daemon that is started here has its sessions, unless its
// configuration says otherwise.
func (o Options) stateDir() string {
	if dir := o.Getenv("NOUSED_STATE_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Dir(detach.LogDir(o.Getenv))
}

// stopUnreached ends a daemon that holds the lock of the socket though nobody
// listens there. One whose socket is still there stops already.
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
	ctx, cancel := context.WithTimeout(ctx, 2*extra)
	defer cancel()
	switch info, err := os.Lstat(o.Socket); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return s, o.hidden(r.pid)
	case err == nil: // another signal would cut its connections short
		return s, r.awaitProcess(ctx, 2*extra)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return s, failf("", "noused (process %d) has no socket and cannot be told to stop: %v", r.pid, err)
	}
	return s, r.awaitProcess(ctx, 2*extra)
}

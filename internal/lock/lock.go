// Package lock makes a path one process's own.
//
// Concurrency: a Lock may be released from any goroutine, once. The kernel
// drops it with the process, kill -9 included, so nothing has to be cleaned up
// by hand.
//
// It refuses to wait for a living process: a lock that is held is an error which
// says by whom.
package lock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// Lock is a held lock. Its file stays when it is released, so that nobody
// locks a file that another one is about to remove.
type Lock struct {
	f    *os.File
	path string
	is   unix.Stat_t
}

// LostError says that the file which was locked is at its path no longer: another
// process may have a lock on another file there.
type LostError struct{ Path string }

func (e *LostError) Error() string {
	return e.Path + " has been removed or replaced while process " + strconv.Itoa(os.Getpid()) +
		" held it: nothing is accepted any more; put it back, or stop the process and start it again"
}

// HeldError says who has the lock. PID is 0 where the holder has not said.
type HeldError struct {
	Path string
	PID  int
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return e.Path + " is held by another process"
	}
	return fmt.Sprintf("%s is held by process %d", e.Path, e.PID)
}

// A process that was killed while it started another leaves its lock to that one for
// the moment until it has become the other program.
var leftTime = 2 * time.Second

const lookTime = 10 * time.Millisecond

// Acquire takes the lock on path, making the file (mode 0600) if need be; a
// symbolic link is not followed. A lock held elsewhere, be it in this very process,
// is a *HeldError. It blocks for at most two seconds, and only where the process
// that said it has the lock is dead.
func Acquire(path string) (*Lock, error) {
	f, err := regular.Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	l := &Lock{f: f, path: path}
	if err := l.acquire(); err != nil {
		_ = l.Release()
		return nil, err
	}
	if err := errors.Join(l.sign(), unix.Fstat(int(f.Fd()), &l.is)); err != nil {
		_ = l.Release()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l, nil
}

func (l *Lock) acquire() error {
	for end := time.Now().Add(leftTime); ; time.Sleep(lookTime) {
		err := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", l.path, err)
		}
		if pid := l.holder(); pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) || time.Now().After(end) {
			return &HeldError{l.path, pid}
		}
	}
}

// holder is the process that has said it has the lock, 0 where none has.
func (l *Lock) holder() int {
	text, _ := io.ReadAll(io.NewSectionReader(l.f, 0, 32))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return max(0, pid)
}

// sign writes whose the lock is.
func (l *Lock) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

// Keep returns the lock's file once more, for the program that takes this one's place
// in the same process: the lock is held for as long as either is open.
func (l *Lock) Keep() (*os.File, error) {
	fd, err := unix.FcntlInt(l.f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.path, err)
	}
	return os.NewFile(uintptr(fd), l.path), nil
}

// Inherit takes over what Keep has returned before this program was executed. The
// lock owns the file then. An error says that it is another file, or not locked.
func Inherit(f *os.File, path string) (*Lock, error) {
	l := &Lock{f: f, path: path}
	err := unix.Fstat(int(f.Fd()), &l.is)
	if err == nil {
		err = l.Check()
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l, nil
}

// Check is a *LostError where the file that is locked is at its path no longer. It
// looks at the path once.
func (l *Lock) Check() error {
	var is unix.Stat_t
	if err := unix.Lstat(l.path, &is); err != nil || is.Dev != l.is.Dev || is.Ino != l.is.Ino {
		return &LostError{l.path}
	}
	return nil
}

// Release gives the lock up.
func (l *Lock) Release() error { return l.f.Close() }

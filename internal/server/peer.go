package server

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kin is what the process that connected is to the daemon.
type kin int

const (
	stranger   kin = iota // no process of ours
	descendant            // a tool in no sandbox, or what one has started
	confined              // a tool in a sandbox of ours, or what one has started
)

// peer is who connected: the process that called connect(2), whoever holds the
// descriptor now.
type peer struct {
	pid, uid int
	kin      kin // for peers of a user that is served
}

var (
	errGone   = errors.New("the process that connected has ended")
	errUnseen = errors.New("the process that connected is in a PID namespace that this daemon cannot see")
)

// maxLinks bounds the steps from a process up to the first one.
const maxLinks = 1024

// allowed says whose connections are served: our own user's, and root's
// (wire-v1 §1).
func allowed(peer, own int) bool { return peer == own || peer == 0 }

// identify finds out who connected. It decides once, for the life of the
// connection: a tool in a sandbox could have the daemon do what it must not do
// itself, and a descriptor can be handed on. An error means that it cannot be
// told, as the process has ended already, say; such a connection must not be
// served, since a tool may end on purpose what connected for it.
//
// It holds on to the process from before it looks until after, so that no
// number is taken for another's.
func identify(conn *net.UnixConn) (p peer, err error) {
	p, fd, err := pin(conn)
	if err != nil {
		return p, err
	}
	defer unix.Close(fd)
	if p.pid == os.Getpid() || !allowed(p.uid, os.Geteuid()) {
		return p, nil
	}
	if p.pid == 0 {
		return p, errUnseen
	}
	p.kin, err = kinOf(p.pid)
	if !alive(fd) {
		err = errGone
	}
	return p, err
}

// pin returns the process that connected and its pidfd. Kernels before 6.5 do
// not keep the process; there the number is all there is.
func pin(conn *net.UnixConn) (p peer, fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, -1, err
	}
	ctlErr := raw.Control(func(socket uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(socket), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		p = peer{pid: int(cred.Pid), uid: int(cred.Uid)}
		fd, err = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	switch {
	case ctlErr != nil:
		return p, -1, ctlErr
	case errors.Is(err, unix.ENOPROTOOPT):
		fd, err = pinNumber(p.pid)
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		err = errGone
	}
	return p, fd, err
}

// pinNumber is for kernels that do not keep the process.
func pinNumber(pid int) (fd int, err error) {
	if pid == 0 {
		return -1, errUnseen
	}
	fd, err = unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		err = errGone
	}
	return fd, err
}

// alive reports whether a process has not ended, not even to be waited for.
func alive(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n == 0 && err == nil
		}
	}
}

// kinOf tells what a living process is to this one. What nobody can tell is an
// error, unless the process itself shows that it is in no sandbox.
func kinOf(pid int) (kin, error) {
	own, err := signsOf(os.Getpid())
	if err != nil {
		return confined, err
	}
	theirs, err := signsOf(pid)
	if err != nil {
		return confined, err
	}
	ours, err := descends(pid, linkOf)
	switch {
	case err == nil && !ours:
		return stranger, nil
	case theirs.restrictedIn(own):
		return confined, err
	default:
		return descendant, nil
	}
}

// signs are what all descendants of a process inherit, and none can lose: how a
// sandbox of ours is told. It begins with the loss of new privileges; where the
// daemon has none to lose, with one more system call filter than the daemon's.
type signs struct {
	locked  bool // no new privileges (prctl PR_SET_NO_NEW_PRIVS)
	filters int  // of system calls (seccomp), -1 where the kernel does not tell
}

func (s signs) restrictedIn(own signs) bool {
	if own.locked && own.filters < 0 {
		return true // nothing can be told apart
	}
	return s.locked && !own.locked || s.filters > own.filters
}

func signsOf(pid int) (signs, error) {
	s := signs{filters: -1}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, err
	}
	told := false
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		switch {
		case err != nil:
		case key == "NoNewPrivs":
			s.locked, told = n == 1, true
		case key == "Seccomp_filters":
			s.filters = n
		}
	}
	if !told {
		return s, fmt.Errorf("/proc/%d/status does not tell of privileges", pid)
	}
	return s, nil
}

// descends reports whether a living process is a descendant of this one. As this
// one adopts the orphans among its descendants (tools.md §5), none leaves it.
//
// Processes may end meanwhile and their numbers be used anew. A parent is
// believed only if, after it was looked at, its child is still its child. One
// that is just ending may seem to have no parent: that there is none is believed
// of a process that is still there.
func descends(pid int, linkOf func(int) (link, error)) (bool, error) {
	child, at := pid, link{}
	for range maxLinks {
		now, err := linkOf(child)
		switch {
		case err != nil || at.start != 0 && now.start != at.start:
			if child == pid {
				return false, errGone
			}
			child, at = pid, link{} // its parent has ended: from the beginning
			continue
		case now.parent == os.Getpid():
			return true, nil
		case now.parent == 0:
			if again, e := linkOf(child); e == nil && again == now {
				return false, nil
			}
			continue
		}
		up, err := linkOf(now.parent)
		foreign := err != nil && errors.Is(unix.Kill(now.parent, 0), unix.EPERM)
		if again, e := linkOf(child); e != nil || again != now {
			at = now
			continue
		}
		switch {
		case foreign:
			// Another user's, and hidden from us (hidepid): no tool in a sandbox
			// becomes another user.
			return false, nil
		case err != nil:
			return false, err
		}
		child, at = now.parent, up
	}
	return false, fmt.Errorf("process %d has more than %d ancestors, or they end too fast", pid, maxLinks)
}

// link is what ties a process to its parent. Number and start are one process's
// for ever.
type link struct {
	parent int
	start  uint64 // in clock ticks since the boot
}

// linkOf reads /proc/PID/stat, whose second field, the name, may hold anything.
func linkOf(pid int) (l link, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return l, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return l, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	if l.parent, err = strconv.Atoi(string(fields[1])); err != nil {
		return l, err
	}
	l.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return l, err
}

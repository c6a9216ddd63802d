package server

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

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

// comm is what the kernel calls the process now, one line of UTF-8; "" where it has
// ended. Programs choose their names: it is for people to read.
func (p peer) comm() string {
	text, err := readProcess(p.pid, "comm", make([]byte, 0, 64))
	if err != nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(string(text), "\n"), "\uFFFD"))
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
	ours, err := descends(pid, linkOf)
	if err == nil && !ours {
		return stranger, nil
	}
	own, e := ownSigns()
	if e != nil {
		return confined, e
	}
	theirs, e := signsOf(pid)
	switch {
	case e != nil:
		return confined, e
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

// known are the daemon's own signs. Were they more than that by now, tools would
// be refused that are in no sandbox, and none in one be served.
var known atomic.Pointer[signs]

func ownSigns() (signs, error) {
	if own := known.Load(); own != nil {
		return *own, nil
	}
	own, err := signsOf(os.Getpid())
	if err == nil {
		known.Store(&own)
	}
	return own, err
}

func signsOf(pid int) (signs, error) {
	s := signs{filters: -1}
	text, err := readProcess(pid, "status", make([]byte, 0, 2<<10))
	if err != nil {
		return s, err
	}
	locked, told := number(text, "\nNoNewPrivs:")
	if !told {
		return s, fmt.Errorf("/proc/%d/status does not tell of privileges", pid)
	}
	s.locked = locked == 1
	if n, told := number(text, "\nSeccomp_filters:"); told {
		s.filters = n
	}
	return s, nil
}

// number is what follows a key in /proc/PID/status. No name of a process can look
// like a key: the kernel escapes it.
func number(status []byte, key string) (n int, ok bool) {
	i := bytes.LastIndex(status, []byte(key))
	if i < 0 {
		return 0, false
	}
	line, _, _ := bytes.Cut(status[i+len(key):], []byte("\n"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	return n, err == nil
}

// readProcess reads a file of /proc/PID into text, or new memory where it is
// longer. As os.ReadFile it takes two and a half times as many system calls, at
// every connection.
func readProcess(pid int, name string, text []byte) ([]byte, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		case n == 0:
			return text, nil
		default:
			text = slices.Grow(text[:len(text)+n], 1)
		}
	}
}

// descends reports whether a living process is a descendant of this one. As this
// one adopts the orphans among its descendants (tools.md §5), none leaves it.
//
// Processes may end meanwhile and their numbers be used anew. A parent is
// believed only if, after it was looked at, its child is still its child. One
// that is just ending may seem to have no parent: that there is none is believed
// of a process that is still there.
func descends(pid int, linkOf func(int) (link, error)) (bool, error) {
	child := pid
	now, err := linkOf(child)
	for range maxLinks {
		var up link
		var upErr error
		switch {
		case err != nil && child == pid:
			return false, errGone
		case err != nil: // its parent has ended: from the beginning
			child = pid
			now, err = linkOf(child)
			continue
		case now.parent == os.Getpid():
			return true, nil
		case now.parent != 0:
			up, upErr = linkOf(now.parent)
		}
		foreign := upErr != nil && errors.Is(unix.Kill(now.parent, 0), unix.EPERM)
		again, e := linkOf(child)
		switch {
		case e != nil || again.start != now.start: // it has ended
			err = errGone
		case again != now: // it has another parent
			now = again
		case now.parent == 0:
			return false, nil
		case foreign:
			// Another user's, and hidden from us (hidepid): no tool in a sandbox
			// becomes another user.
			return false, nil
		case upErr != nil:
			return false, upErr
		default:
			child, now = now.parent, up
		}
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
	var room [1 << 10]byte
	text, err := readProcess(pid, "stat", room[:0])
	if err != nil {
		return l, err
	}
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	for n, more := 2, true; more; n++ { // from the end of the second field, the name
		var field []byte
		field, rest, more = bytes.Cut(rest, []byte(" "))
		switch n {
		case 4:
			if l.parent, err = strconv.Atoi(string(field)); err != nil {
				return l, err
			}
		case 22:
			l.start, err = strconv.ParseUint(string(field), 10, 64)
			return l, err
		}
	}
	return l, fmt.Errorf("/proc/%d/stat cannot be read", pid)
}

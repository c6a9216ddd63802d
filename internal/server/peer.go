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
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// kin is what the process that connected is to the daemon.
type kin int

const (
	stranger   kin = iota // no process of ours
	descendant            // a tool in no sandbox, or what one has started
	confined              // a tool in a sandbox, of ours or of another daemon, or what one has started
)

// peer is who connected: the process that called connect(2), no matter who holds the
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
// error.
func kinOf(pid int) (kin, error) {
	boxed, err := sandboxed(pid)
	if err != nil || boxed {
		return confined, err
	}
	ours, err := descends(pid, linkOf)
	switch {
	case err != nil:
		return confined, err
	case ours:
		return descendant, nil
	default:
		return stranger, nil
	}
}

// sandboxed reports whether a living process is in a sandbox, of this daemon or of
// another: each has a hard limit on file locks below its daemon's, which nothing in it
// can raise (package proc). Nobody else has one, so anyone who does is refused, unless
// this daemon has the same one, as in a container that sets it, or where it was
// started in a sandbox itself. There, who is in the same sandbox is served: whom this
// process may look into, which Landlock keeps in the sandbox, and who has no filter of
// system calls more than it. It is not enough to have the limit: any lower one can be
// taken on purpose, but no filter be lost.
func sandboxed(pid int) (bool, error) {
	theirs, err := hardLocks(pid)
	if err != nil || theirs == unix.RLIM_INFINITY {
		return false, err
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &own); err != nil || theirs != own.Max {
		return true, err
	}
	if _, err = os.Readlink(fmt.Sprintf("/proc/%d/root", pid)); err != nil {
		return true, nil
	}
	here, err := filters(os.Getpid())
	if err != nil {
		return true, err
	}
	there, err := filters(pid)
	return there > here, err
}

// filters is how many filters of system calls a process has; 0 on kernels before 5.9,
// which do not tell.
func filters(pid int) (int, error) {
	text, err := readProcess(pid, "status", make([]byte, 0, 2<<10))
	if err != nil {
		return 0, err
	}
	_, rest, told := bytes.Cut(text, []byte("\nSeccomp_filters:"))
	if !told {
		return 0, nil
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strconv.Atoi(string(bytes.TrimSpace(line)))
}

// hardLocks is a process's hard limit on file locks, which everybody may read.
func hardLocks(pid int) (uint64, error) {
	text, err := readProcess(pid, "limits", make([]byte, 0, 2<<10))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(text, []byte("\nMax file locks "))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	values := bytes.Fields(line) // the soft one, the hard one, their unit
	if len(values) != 3 {
		return 0, fmt.Errorf("/proc/%d/limits has no line for file locks", pid)
	}
	if string(values[1]) == "unlimited" {
		return unix.RLIM_INFINITY, nil
	}
	return strconv.ParseUint(string(values[1]), 10, 64)
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

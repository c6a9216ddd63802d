package server

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// allowed says whose connections are served: our own user's, and root's
// (wire-v1 §1).
func allowed(peer, own int) bool { return peer == own || peer == 0 }

// peerOf is who connected, as the kernel tells it.
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		err = e
	}
	return cred, err
}

// confined reports that a process is a tool in this daemon's own sandbox: it
// descends from the daemon and, unlike the daemon, can gain no privileges,
// which is how a sandbox begins. It could have the daemon do what it must not do
// itself. One that is gone already is not.
func confined(pid int) bool {
	if own, ok := statusOf(os.Getpid()); !ok || own.locked {
		return false // nothing can be told apart
	}
	for locked := false; ; {
		s, ok := statusOf(pid)
		if !ok || pid <= 1 {
			return false
		}
		locked = locked || s.locked
		if s.parent == os.Getpid() {
			return locked
		}
		pid = s.parent
	}
}

// status is what /proc tells of a process.
type status struct {
	parent int
	locked bool // no new privileges (prctl PR_SET_NO_NEW_PRIVS), which is inherited and for ever
}

func statusOf(pid int) (s status, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, false
	}
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		switch {
		case err != nil:
		case key == "PPid":
			s.parent, ok = n, true
		case key == "NoNewPrivs":
			s.locked = n == 1
		}
	}
	return s, ok
}

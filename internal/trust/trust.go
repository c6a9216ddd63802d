// Package trust tells whether another user of the machine could stand in for
// the daemon or for a client: by the folders that lead to a socket, by the user at
// its other end, and by a program's file; and which entries of PATH a program in the
// sandbox can have put something into. Server, clients and doctor ask it, and who starts
// programs.
//
// Concurrency: it keeps nothing but the folders of [Writable]; its functions may be
// called from anywhere.
//
// It refuses to change a mode, to make a folder, and to know the protocol.
package trust

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links on the way to a folder, as the kernel does.
const maxLinks = 40

// FolderError says which folder or link on the way to a socket is in the hands
// of others, and why. Writable says that its mode lets them write to it.
type FolderError struct {
	Path, Reason string
	Writable     bool
}

func (e *FolderError) Error() string { return e.Path + " " + e.Reason }

// PeerError says that another user listens on a socket, and which.
type PeerError struct{ UID int }

func (e *PeerError) Error() string { return fmt.Sprintf("user %d listens there, not you", e.UID) }

// Folder reports what lets another user put something else in the place of a
// file in dir: the first of dir and the folders above it, links followed, that
// belongs to neither us nor root, or that others may write to. Where only the
// owner of an entry may replace it (the sticky bit, as on /tmp) they may. The
// error is a *FolderError, or the system's where dir cannot be looked at.
func Folder(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	at, rest, links := "/", strings.Split(abs, "/"), 0
	if err := check(at); err != nil {
		return err
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			if err := check(at); err != nil {
				return err
			}
			continue
		}
		if links++; links > maxLinks {
			return &os.PathError{Op: "open", Path: dir, Err: unix.ELOOP}
		}
		if err := checkLink(next); err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return checkLast(at)
}

// checkLast is for the folder itself, which has passed: one that may be root's,
// and may be anybody's, will not do.
func checkLast(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st := info.Sys().(*syscall.Stat_t); !ours(st) && info.Mode()&os.ModeSticky == 0 {
		return &FolderError{Path: dir, Reason: fmt.Sprintf("belongs to user %d, who may be anybody", st.Uid)}
	}
	return nil
}

// likeRoot tells the owner of /, who could replace everything: root, but in a
// user namespace that does not know root. There all whom it does not know have
// one number.
func likeRoot(st *syscall.Stat_t) bool {
	var root syscall.Stat_t
	return syscall.Lstat("/", &root) == nil && st.Uid == root.Uid
}

func check(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	mode, st := info.Mode(), info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return &FolderError{Path: dir, Reason: "is not a folder"}
	case !ours(st) && !likeRoot(st):
		return &FolderError{Path: dir, Reason: fmt.Sprintf("belongs to user %d, who could replace what is in it", st.Uid)}
	case mode&os.ModeSticky != 0:
		return nil
	case mode&0o002 != 0:
		return &FolderError{dir, fmt.Sprintf("can be written to by everybody (mode %04o), who could replace what is in it",
			mode.Perm()), true}
	case mode&0o020 != 0 && !private(st.Gid):
		return &FolderError{dir, fmt.Sprintf("can be written to by group %d (mode %04o), who could replace what is in it",
			st.Gid, mode.Perm()), true}
	}
	return nil
}

// checkLink is for a link in a folder that has passed: in a sticky one it may
// be anybody's.
func checkLink(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st := info.Sys().(*syscall.Stat_t); !ours(st) {
		return &FolderError{Path: path, Reason: fmt.Sprintf("is a link of user %d's, who could replace it", st.Uid)}
	}
	return nil
}

func ours(st *syscall.Stat_t) bool { return st.Uid == 0 || int(st.Uid) == os.Geteuid() }

// private tells a group that nobody else is in: root's, and the user's own one
// where distributions give each user a group of the same number.
func private(gid uint32) bool {
	return gid == 0 || int(gid) == os.Getegid() && os.Getegid() == os.Geteuid()
}

// Peer is a *PeerError unless the process that listens at the other end of a
// connection is run by us or by root. Nothing is sent. Other errors say that
// the kernel does not tell.
func Peer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("who listens: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("who listens: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return &PeerError{int(cred.Uid)}
	}
	return nil
}

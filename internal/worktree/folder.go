package worktree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// dirFD is a folder that is held open: what happens to its name changes nothing.
type dirFD int

// openFolder opens a folder by its path, which is absolute. No part of it may be a link.
func openFolder(dir string) (dirFD, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	d, err := dirFD(root).folder(strings.Trim(dir, "/"), false)
	if err != nil {
		err = &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return d, err
}

func (d dirFD) close() { _ = unix.Close(int(d)) }

// folder opens a folder below, "" is this one. No part of its path may be a link; what is
// missing is made if it is to be.
func (d dirFD) folder(rel string, make bool) (dirFD, error) {
	at, err := unix.Openat(int(d), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil || rel == "" {
		return dirFD(at), err
	}
	for _, name := range strings.Split(rel, "/") {
		if make {
			if err = unix.Mkdirat(at, name, 0o777); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(at)
		if at = next; err != nil {
			return -1, err
		}
	}
	return dirFD(at), nil
}

// signature is that of a file in the folder.
func (d dirFD) signature(name string) string {
	var st unix.Stat_t
	if unix.Fstatat(int(d), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return "" // of a folder that becomes a file, or the other way round
	}
	return fmt.Sprintf("%d %o %d %d.%09d", st.Ino, st.Mode, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}

func (d dirFD) remove(name string) error { return unix.Unlinkat(int(d), name, 0) }

// removeEmpty removes a folder below and those above it, as long as they are empty.
func (d dirFD) removeEmpty(rel string) {
	for ; rel != ""; rel = parent(rel) {
		dir, err := d.folder(parent(rel), false)
		if err != nil {
			return
		}
		err = unix.Unlinkat(int(dir), path.Base(rel), unix.AT_REMOVEDIR)
		if dir.close(); err != nil {
			return
		}
	}
}

// missing tells whether an error says that there is no such folder: nothing, a file, or a link.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// take moves a file into the folder, or copies it from another file system.
func (d dirFD) take(from, name string, info os.FileInfo) error {
	err := unix.Renameat(unix.AT_FDCWD, from, int(d), name)
	if errors.Is(err, unix.EXDEV) {
		beside := ".nous-land-" + rand.Text()
		if err = d.copy(from, beside, info); err == nil {
			err = unix.Renameat(int(d), beside, int(d), name)
		}
		if err != nil {
			_ = unix.Unlinkat(int(d), beside, 0)
		} else {
			err = os.Remove(from)
		}
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", name, err)
	}
	return nil
}

// copy makes a file with the text, mode and times of another, or such a link.
func (d dirFD) copy(from, name string, info os.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err == nil {
			err = unix.Symlinkat(target, int(d), name)
		}
		return err
	}
	in, err := regular.Open(from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := d.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(info.Mode().Perm()))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	then := unix.NsecToTimespec(info.ModTime().UnixNano())
	return errors.Join(err, out.Close(),
		unix.UtimesNanoAt(int(d), name, []unix.Timespec{then, then}, unix.AT_SYMLINK_NOFOLLOW))
}

func (d dirFD) open(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(int(d), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// has tells whether a file in the folder has the text or target of another, and its mode.
func (d dirFD) has(name, like string) bool {
	info, err := os.Lstat(like)
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		want, err := os.Readlink(like)
		buf := make([]byte, unix.PathMax)
		n, ownErr := unix.Readlinkat(int(d), name, buf)
		return err == nil && ownErr == nil && string(buf[:n]) == want
	}
	f, err := d.open(name, unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	own, err := f.Stat()
	if err != nil || own.Mode() != info.Mode() || own.Size() != info.Size() {
		return false
	}
	g, err := regular.Open(like, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer g.Close()
	return sameText(f, g)
}

// Package regular opens regular files and nothing else, so that neither opening
// nor reading one waits for another program, or never ends: no FIFO, no device,
// no socket, no folder.
//
// Concurrency: its functions may be called from any number of goroutines.
//
// It refuses to guess: whose file it is, and how long it may be, is asked of the
// file that was opened, not of its name.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Why a file is not opened, inside a *fs.PathError.
var (
	ErrLink     = errors.New("is a symbolic link")
	ErrKind     = errors.New("is not a regular file")
	ErrNoFolder = errors.New("is no folder")
	ErrForeign  = errors.New("belongs to another user")
	ErrLong     = errors.New("is too long")
	ErrPublic   = errors.New("can be written by everybody: run chmod o-w on it")
	ErrShared   = errors.New("can be written by others: run chmod go-w on it")
	ErrOpen     = errors.New("has a key that others can read: run chmod go= on it")
)

// careful: opening a FIFO does not wait for its other end, and a terminal does not
// become the daemon's own.
const careful = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// Open opens a file of the daemon's own state, as os.OpenFile does with that
// flag; one that it makes has mode 0600. The file must belong to this user or to
// root, and path itself must be no link. The error is a *fs.PathError.
func Open(path string, flag int) (*os.File, error) {
	f, info, err := open(path, flag|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	if foreign(info) {
		_ = f.Close()
		return nil, refuse(path, ErrForeign)
	}
	return f, nil
}

// Follow opens a file to read that somebody named. It may be a link, and
// anybody's. The error is a *fs.PathError.
func Follow(path string) (*os.File, error) {
	f, _, err := open(path, os.O_RDONLY)
	return f, err
}

// Read returns the content of a file that the user wrote and named, of at most
// most bytes. It may be a link, and anybody's. The error is a *fs.PathError.
func Read(path string, most int64) ([]byte, error) {
	f, _, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return read(f, path, most)
}

// Settings is Read for a file that says what is executed, so that not everybody may
// write it.
func Settings(path string, most int64) ([]byte, error) {
	f, info, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return readGuarded(f, info, path, most)
}

// ReadOwn returns the content of a file that must be as Open wants it, and that not
// everybody may write, of at most most bytes. The error is a *fs.PathError.
func ReadOwn(path string, most int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return readGuarded(f, info, path, most)
}

// readGuarded is read unless everybody may write the file.
func readGuarded(f *os.File, info os.FileInfo, path string, most int64) ([]byte, error) {
	if info.Mode().Perm()&0o002 != 0 {
		_ = f.Close()
		return nil, refuse(path, ErrPublic)
	}
	return read(f, path, most)
}

// FollowOwn is ReadOwn for a file that may be a link to one of this user's or root's,
// and that neither its group nor others may write.
func FollowOwn(path string, most int64) ([]byte, error) {
	f, info, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	why := error(nil)
	switch {
	case foreign(info):
		why = ErrForeign
	case info.Mode().Perm()&0o022 != 0:
		why = ErrShared
	}
	if why != nil {
		_ = f.Close()
		return nil, refuse(path, why)
	}
	return read(f, path, most)
}

// Folder makes a folder of the daemon's own state (mode 0700) where there is none. What
// is there must be as IsFolder wants it.
func Folder(path string) error {
	if err := IsFolder(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(path, 0o700)
}

// IsFolder finds fault with a folder of the daemon's own state: it must belong to this
// user or to root, and path itself must be no link. The error is a *fs.PathError.
func IsFolder(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return refuse(path, ErrLink)
	case !info.IsDir():
		return refuse(path, ErrNoFolder)
	case foreign(info):
		return refuse(path, ErrForeign)
	}
	return nil
}

func foreign(info os.FileInfo) bool {
	owner := info.Sys().(*syscall.Stat_t).Uid
	return owner != 0 && int(owner) != os.Geteuid()
}

// read reads a file to its end, and closes it.
func read(f *os.File, path string, most int64) ([]byte, error) {
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		return nil, refuse(path, long(most))
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most { // it grew
		err = refuse(path, long(most))
	}
	return text, err
}

func long(most int64) error { return fmt.Errorf("%w: more than %d bytes", ErrLong, most) }

func open(path string, flag int) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, flag|careful, 0o600)
	switch {
	case errors.Is(err, unix.ELOOP) && flag&unix.O_NOFOLLOW != 0 && isLink(path):
		return nil, nil, refuse(path, ErrLink)
	case errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR): // a FIFO without a reader, a socket; a folder
		return nil, nil, refuse(path, ErrKind)
	case err != nil:
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(path, ErrKind)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSymlink
}

func refuse(path string, why error) error { return &fs.PathError{Op: "open", Path: path, Err: why} }

// Secret is FollowOwn for a file with a key: neither its group nor others may read it
// either. The group of one of root's may, as that is how a service gets a key.
func Secret(path string, most int64) ([]byte, error) {
	f, info, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	why, closed := error(nil), fs.FileMode(0o077)
	if info.Sys().(*syscall.Stat_t).Uid == 0 {
		closed = 0o027
	}
	switch {
	case foreign(info):
		why = ErrForeign
	case info.Mode().Perm()&closed != 0:
		why = ErrOpen
	}
	if why != nil {
		_ = f.Close()
		return nil, refuse(path, why)
	}
	return read(f, path, most)
}

// Named is the path of a file that a configuration names: a leading ~/ is the home folder,
// and what is not absolute then is beside the configuration, in dir.
func Named(path, home, dir string) string {
	if rest, ok := strings.CutPrefix(path+"/", "~/"); ok {
		return filepath.Join(home, rest)
	}
	if dir != "" && !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

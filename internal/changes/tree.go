package changes

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// workTree is a folder that is looked at and changed without ever following a link in it.
type workTree struct{ top *os.File }

// openTree opens a folder that was without links when its path was found: one that came on the way since leads
// elsewhere.
func openTree(dir string) (*workTree, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &workTree{os.NewFile(uintptr(fd), dir)}, nil
}

func (t *workTree) close() { _ = t.top.Close() }

// open opens what is at a path below the top. No part of it may be a link.
func (t *workTree) open(rel string, flags uint64) (int, error) {
	if rel == "" {
		rel = "."
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(t.top.Fd()), rel, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// folder opens a folder below the top, to look into it.
func (t *workTree) folder(rel string) (*os.File, error) {
	fd, err := t.open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// stamp tells whether a file is as it was, as far as its inode says.
type stamp struct{ Mtime, Ctime, Size, Ino int64 }

// raw is what stat says.
type raw struct {
	stamp
	mode uint32
	uid  uint32
}

func rawOf(st *unix.Stat_t) raw {
	return raw{stamp{st.Mtim.Nano(), st.Ctim.Nano(), st.Size, int64(st.Ino)}, st.Mode, st.Uid}
}

// slack is how much older than a look at a file its times have to be for the look to
// count: the clock of a file system ticks slowly.
const slack = 50 * time.Millisecond

// settled reports that what was seen at a time will show by its stamp if it is changed
// later.
func (s stamp) settled(at time.Time) bool {
	late := at.Add(-slack)
	if s.Mtime%int64(time.Second) == 0 && s.Ctime%int64(time.Second) == 0 { // one with coarse times
		late = at.Add(-2 * time.Second)
	}
	return max(s.Mtime, s.Ctime) < late.UnixNano()
}

func (s stamp) identity() string { return fmt.Sprintf("%d.%d.%d", s.Size, s.Mtime, s.Ino) }

// stat is what is at a path, without following a link; fs.ErrNotExist where there is nothing,
// nor could be.
func (t *workTree) stat(rel string) (raw, error) {
	dir, name := path.Split(rel)
	fd := int(t.top.Fd())
	if dir != "" {
		var err error
		if fd, err = t.open(strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY); err != nil {
			return raw{}, absent(err)
		}
		defer unix.Close(fd)
	}
	r, err := statAt(fd, name)
	return r, absent(err)
}

// absent has what cannot be there be what is not there.
func absent(err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return os.ErrNotExist
	}
	return err
}

func statAt(fd int, name string) (raw, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return rawOf(&st), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return raw{}, err
		}
	}
}

// errChanging says that a file was written while it was read.
var errChanging = errors.New("it was written to while it was read")

// errLong says that a file has more than is kept.
var errLong = errors.New("it is too long to be kept")

// readAt writes what a regular file has, or where a link leads, to what into returns, and says how it was. into is
// called again where the file was written to meanwhile.
func readAt(fd int, name string, most int64, into func(size int64) (io.Writer, error)) (raw, error) {
	for range 3 {
		r, err := statAt(fd, name)
		if err != nil {
			return r, err
		}
		if r.mode&unix.S_IFMT == unix.S_IFLNK {
			err = linkAt(fd, name, into)
		} else {
			r, err = fileAt(fd, name, most, into)
		}
		if err != nil && !errors.Is(err, errChanging) {
			return r, err
		}
		if after, failed := statAt(fd, name); err == nil && failed == nil && after == r {
			return r, nil
		}
	}
	return raw{}, errChanging
}

func linkAt(fd int, name string, into func(size int64) (io.Writer, error)) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return err
	}
	to, err := into(int64(n))
	if err == nil {
		_, err = to.Write(buf[:n])
	}
	return err
}

func fileAt(fd int, name string, most int64, into func(size int64) (io.Writer, error)) (raw, error) {
	in, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return raw{}, err
	}
	f := os.NewFile(uintptr(in), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return raw{}, err
	}
	r := rawOf(&st)
	switch {
	case r.mode&unix.S_IFMT != unix.S_IFREG:
		return r, errChanging
	case r.Size > most:
		return r, errLong
	}
	to, err := into(r.Size)
	if err != nil {
		return r, err
	}
	if _, err = io.CopyN(to, f, r.Size); errors.Is(err, io.EOF) {
		err = errChanging
	}
	return r, err
}

// hashAt is the name that the content has which is there, and how it was.
func hashAt(fd int, name string, most int64) (o OID, r raw, err error) {
	var sum hash.Hash
	r, err = readAt(fd, name, most, func(size int64) (io.Writer, error) {
		sum = blobHash(size)
		return sum, nil
	})
	if err == nil {
		o = OID(sum.Sum(nil))
	}
	return o, r, err
}

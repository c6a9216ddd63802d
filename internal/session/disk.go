package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// Disk is how a Store opens journals and changes what is on the disk; other reading is
// the operating system's own. The methods block as those of os do and return their errors;
// Sync is fdatasync, SyncDir makes the names in a directory durable (wire-v1
// §7). Safe for concurrent use.
//
// It is there so that tests can have every one of these operations fail, be cut
// short or be the last.
type Disk interface {
	Create(path string) (*os.File, error)
	Open(path string) (*os.File, error)
	Write(f *os.File, text []byte) (int, error)
	Sync(f *os.File) error
	Truncate(f *os.File, size int64) error
	Link(from, to string) error
	SyncDir(dir string) error
}

// OSDisk is the operating system's.
type OSDisk struct{}

// Create makes a file to be appended to. It never takes one that is there.
func (OSDisk) Create(path string) (*os.File, error) {
	return regular.Open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND)
}

// Open opens a file to be read and appended to.
func (OSDisk) Open(path string) (*os.File, error) { return regular.Open(path, os.O_RDWR|os.O_APPEND) }

// Write appends text to f.
func (OSDisk) Write(f *os.File, text []byte) (int, error) { return f.Write(text) }

// Sync returns when the file's content is durable.
func (OSDisk) Sync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Truncate cuts f off at size bytes.
func (OSDisk) Truncate(f *os.File, size int64) error { return f.Truncate(size) }

// Link gives a file a second name. It never replaces another file.
func (OSDisk) Link(from, to string) error { return os.Link(from, to) }

// SyncDir returns when the names in the directory are durable.
func (OSDisk) SyncDir(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	for {
		if err := unix.Fsync(fd); err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fsync "+dir, err)
		}
	}
}

package session

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Aside returns an empty file that has no name and is gone when it is closed, for what
// is too long to be kept in memory. It blocks for the disk.
func (s *Store) Aside() (*os.File, error) {
	fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|unix.O_EXCL, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(s.dir, "aside")), nil
	}
	f, err := os.CreateTemp(s.dir, ".aside-") // not every file system has such files
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

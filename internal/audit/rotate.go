package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"noused/internal/regular"
)

// Bounds of the journal on the disk: the file, and so many older ones.
const (
	maxFile  = 16 << 20
	maxOlder = 4
)

// rotated is a file that is moved aside, to path.1 and on, when it is full.
type rotated struct {
	path string
	f    *os.File
	size int64
	max  int64
}

func openRotated(path string) (*rotated, error) {
	r := &rotated{path: path, max: maxFile}
	return r, r.open()
}

func (r *rotated) open() error {
	f, err := regular.Open(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	r.f, r.size = f, info.Size()
	return nil
}

// write appends a line. A journal that could not be written is opened again.
func (r *rotated) write(line []byte) error {
	if r.f != nil && r.size > 0 && r.size+int64(len(line)) >= r.max {
		r.close()
		if err := r.shift(); err != nil {
			return err
		}
	}
	if r.f == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	n, err := r.f.Write(append(line[:len(line):len(line)], '\n'))
	r.size += int64(n)
	if err != nil {
		r.close()
	}
	return err
}

func (r *rotated) shift() error {
	for i := maxOlder; i > 0; i-- {
		from := r.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", r.path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", r.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r *rotated) close() {
	if r.f != nil {
		_ = r.f.Close()
		r.f = nil
	}
}

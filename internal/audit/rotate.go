package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

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

	moving sync.Mutex // held while files are given other names, or removed
}

// openRotated opens the file, and moves a former one aside that is full. most is how
// many bytes all files may have together, 0 for as many as there may be.
func openRotated(path string, most int64) (*rotated, error) {
	r := &rotated{path: path, max: maxFile}
	if most > 0 {
		r.max = min(r.max, most/(maxOlder+1))
	}
	err := r.open()
	if err == nil && r.size >= r.max {
		r.close()
		if err = r.shift(); err == nil {
			err = r.open()
		}
	}
	return r, err
}

// prune removes the oldest of the files that were moved aside until all have at most
// so many bytes, and reports each. With dry it only reports.
func (r *rotated) prune(most int64, dry bool, removed func(fs.FileInfo)) error {
	r.moving.Lock()
	defer r.moving.Unlock()
	var files []fs.FileInfo // the newest first
	total := int64(0)
	for i := range maxOlder + 1 {
		info, err := os.Lstat(regular.Rotated(r.path, i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		total += info.Size()
		files = append(files, info)
	}
	for i := len(files) - 1; i > 0 && total > most; i-- {
		if !dry {
			if err := os.Remove(filepath.Join(filepath.Dir(r.path), files[i].Name())); err != nil {
				return err
			}
		}
		total -= files[i].Size()
		removed(files[i])
	}
	return nil
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
	r.moving.Lock()
	defer r.moving.Unlock()
	return regular.Rotate(r.path, maxOlder)
}

func (r *rotated) close() {
	if r.f != nil {
		_ = r.f.Close()
		r.f = nil
	}
}

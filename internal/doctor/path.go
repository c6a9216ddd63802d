package doctor

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// process is one that has a lock; PID is 0 where it has not said.
type process struct{ PID int }

func (h *process) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return "process " + strconv.Itoa(h.PID)
}

// heldBy returns who has the lock of package lock on path, nil for nobody. It
// makes no file, does not wait, and lets go at once.
func heldBy(path string) (*process, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, err
	}
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return &process{pid}, nil
}

// plain are paths that a shell takes as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// quote writes a path as a shell wants it.
func quote(path string) string {
	if plain.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// nearest is the closest folder above path, or path itself, that is there.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

func canWrite(path string) error {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return &os.PathError{Op: "write to", Path: path, Err: err}
	}
	return nil
}

// Package detach is what a daemon has that runs apart from any terminal: where its
// log is and how it stays small, and how it says that it is ready to the process that has
// started it. Both sides use it, nous and noused.
//
// Concurrency: a Log may be written to from any goroutine. Ready is called once,
// before there are others.
//
// It refuses to start anything, to rotate a file that is not of the log's folder,
// and to let all logs together grow without end.
package detach

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
	"noused/internal/xdg"
)

// Bounds, in bytes. A log has two files, the one that is written and the one before
// it, with .1 behind its name.
const (
	fileLimit   = 4 << 20
	folderLimit = 64 << 20 // of the logs of all daemons
)

const logSuffix = ".log"

// LogDir is the folder of the logs: $XDG_STATE_HOME/noused/log.
func LogDir(getenv func(string) string) string {
	return filepath.Join(xdg.State(getenv), "noused", "log")
}

// LogName is the name of the log of the daemon at a socket: noused.log for the
// default one, and one with a number of its own for any other.
func LogName(socket, defaultSocket string) string {
	if socket == defaultSocket {
		return "noused" + logSuffix
	}
	sum := sha256.Sum256([]byte(socket))
	return "noused-" + hex.EncodeToString(sum[:6]) + logSuffix
}

// Open opens a log to append to, and makes it and its folder (modes 0600 and 0700)
// where they are missing. from is how long it is already. Older logs of the folder
// are removed where all together are too long.
func Open(path string) (f *os.File, from int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, err
	}
	trim(filepath.Dir(path), path)
	f, err = regular.Open(path, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() >= fileLimit {
		_ = f.Close()
		if err = regular.Rotate(path, 1); err == nil {
			return Open(path)
		}
		return nil, 0, err
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// trim removes the oldest logs of a folder until those that are left, and one more
// that is full, are within the bound. It leaves keep alone.
func trim(dir, keep string) {
	entries, _ := os.ReadDir(dir)
	type file struct {
		path string
		size int64
		at   int64
	}
	var all []file
	sum := int64(2 * fileLimit)
	for _, e := range entries {
		info, err := e.Info()
		path := filepath.Join(dir, e.Name())
		if err != nil || !info.Mode().IsRegular() || !isLog(e.Name()) || path == keep || path == regular.Rotated(keep, 1) {
			continue
		}
		all = append(all, file{path, info.Size(), info.ModTime().UnixNano()})
		sum += info.Size()
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.at, b.at) })
	for _, f := range all {
		if sum <= folderLimit {
			return
		}
		if os.Remove(f.path) == nil {
			sum -= f.size
		}
	}
}

func isLog(name string) bool {
	name = strings.TrimSuffix(name, ".1")
	return strings.HasPrefix(name, "noused") && strings.HasSuffix(name, logSuffix)
}

// Tail is the end of what a log has from a place on, of at most most bytes and
// without the half of a line. What does not fit is left out; so is what cannot be
// read.
func Tail(f *os.File, from int64, most int) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	start := max(from, info.Size()-int64(most))
	text, _ := io.ReadAll(io.NewSectionReader(f, start, int64(most)))
	if start > from {
		_, rest, _ := strings.Cut(string(text), "\n")
		return strings.TrimSpace(rest)
	}
	return strings.TrimSpace(string(text))
}

// Log is where a daemon writes its log to.
type Log interface {
	io.Writer
	Sync() error
}

// Bounded is the log that stderr is. Where that is a file of the folder of logs, it
// is begun anew when it is full, or when somebody has removed or moved it, and the one
// before is kept; what else the process writes to its stderr follows, and path is the
// file's. Any other stderr is left as it is.
func Bounded(stderr *os.File, dir string) (log Log, path string) {
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(stderr.Fd())))
	if err != nil {
		return stderr, ""
	}
	path, removed := strings.CutSuffix(path, " (deleted)")
	path, moved := strings.CutSuffix(path, ".1")
	if !isLog(filepath.Base(path)) {
		return stderr, ""
	}
	if removed { // its folder, too, maybe
		_ = os.MkdirAll(dir, 0o700)
	}
	info, err := stderr.Stat()
	if err != nil || !info.Mode().IsRegular() || !sameFolder(filepath.Dir(path), dir) {
		return stderr, ""
	}
	b := &bounded{f: stderr, path: path, size: info.Size()}
	if removed || moved {
		b.renew()
	}
	return b, path
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

type bounded struct {
	mu   sync.Mutex
	f    *os.File
	path string
	size int64
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > 0 && b.size+int64(len(p)) > fileLimit {
		b.renew()
	}
	n, err := b.f.Write(p)
	b.size += int64(n)
	return n, err
}

// renew goes on in a new file. Without one, what the old one has is lost: it must
// not grow.
func (b *bounded) renew() {
	if b.turn() != nil {
		_ = b.f.Truncate(0)
	}
	b.size = 0
}

// turn puts a new file in the place of the one that is full, or is gone.
func (b *bounded) turn() error {
	if err := os.MkdirAll(filepath.Dir(b.path), 0o700); err != nil {
		return err
	}
	if err := regular.Rotate(b.path, 1); err != nil {
		return err
	}
	f, err := regular.Open(b.path, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Dup3(int(f.Fd()), int(b.f.Fd()), 0); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

func (b *bounded) Sync() error { return b.f.Sync() }

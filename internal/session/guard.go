package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"noused/internal/lock"
	"noused/internal/regular"
)

// errRemoved says that a journal has no name any more: what would be written to it
// is gone with the daemon.
var errRemoved = errors.New("the journal has been removed while the daemon had it open")

// guard stands between a store and a disk that somebody else changes, or that
// fails altogether. Safe for concurrent use; the nil guard, of a journal without a
// store, lets everything pass.
type guard struct {
	lock *lock.Lock

	mu       sync.Mutex
	unmended map[string]mending // by journal
}

// check is asked before anything is written: the state directory must still be
// this daemon's, and the journal be in it. It takes two system calls and no I/O.
func (g *guard) check(journal *os.File) error {
	if g == nil {
		return nil
	}
	if err := g.lock.Check(); err != nil {
		return err
	}
	var is unix.Stat_t
	if err := unix.Fstat(int(journal.Fd()), &is); err != nil {
		return err
	}
	if is.Nlink == 0 {
		return errRemoved
	}
	return nil
}

// mending is what has to be done to a journal after its disk failed: it is cut to
// size, as what stands behind was refused, and its bytes from synced on are written
// again. A sync that fails leaves them in memory as if they were on the disk, where they
// would never go (fsync(2)).
type mending struct {
	of           os.FileInfo // the journal's: what has its name by then may be another file
	synced, size int64
}

func (m mending) do(disk Disk, path string) error {
	f, err := regular.Open(path, os.O_RDWR)
	if err != nil {
		return err
	}
	is, err := f.Stat()
	if err != nil || !os.SameFile(is, m.of) {
		return errors.Join(err, f.Close())
	}
	end := m.size
	refused := disk.Truncate(f, m.size)
	if refused != nil {
		end = is.Size() // what stays must not become a hole before what the next daemon writes
	}
	if m.synced < end {
		if _, err = f.Seek(m.synced, io.SeekStart); err == nil {
			from := io.NewSectionReader(f, m.synced, end-m.synced)
			_, err = io.CopyBuffer(onlyWriter{diskWriter{disk, f}}, from, make([]byte, 64<<10))
		}
	}
	return errors.Join(refused, err, f.Close())
}

// onlyWriter keeps io.Copy from reading into the file by itself.
type onlyWriter struct{ io.Writer }

// mend has the journal mended now, or before it is opened again.
func (j *Journal) mend(synced, size int64) {
	is, err := j.f.Stat()
	m, g := mending{is, synced, size}, j.guard
	if err != nil || m.do(j.disk, j.path) == nil || g == nil {
		return
	}
	g.leave(j.path, m)
}

func (g *guard) leave(path string, m mending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unmended == nil {
		g.unmended = map[string]mending{}
	}
	g.unmended[path] = m
}

// mended does what is left to do to a journal that is to be opened. Nobody else opens it
// meanwhile.
func (g *guard) mended(disk Disk, path string) error {
	g.mu.Lock()
	m, left := g.unmended[path]
	delete(g.unmended, path)
	g.mu.Unlock()
	if !left {
		return nil
	}
	if err := m.do(disk, path); err != nil && !errors.Is(err, os.ErrNotExist) {
		g.leave(path, m)
		return fmt.Errorf("what was refused cannot be taken out of %s: %w", path, err)
	}
	return nil
}

package session

import (
	"errors"
	"fmt"
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

	mu      sync.Mutex
	refused map[string]int64 // by journal: how long it is without what was refused and is still in it
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

// leave notes that a journal has kept, behind so many bytes, what was refused.
func (g *guard) leave(path string, size int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil {
		g.refused = map[string]int64{}
	}
	g.refused[path] = size
}

// undo takes what was refused out of a journal that is to be opened.
func (g *guard) undo(disk Disk, path string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	size, left := g.refused[path]
	if !left {
		return nil
	}
	f, err := regular.Open(path, os.O_RDWR)
	if err == nil {
		err = errors.Join(disk.Truncate(f, size), f.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("what was refused cannot be taken out of %s: %w", path, err)
	}
	delete(g.refused, path)
	return nil
}

package proc

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// scratchPrefix begins the names of the directories that a [scratch] makes.
const scratchPrefix = "noused-scratch-"

// scratch holds the private temporary directories of sandboxed processes, in
// one directory of the Supervisor's that is made with the first, and is locked
// for as long as the daemon lives. What a killed daemon and its guardian have
// left is swept by the next.
type scratch struct {
	told func(dir string) // of the directory, before it is made, if set

	mu   sync.Mutex
	dir  string
	lock *os.File
	last int
}

func (s *scratch) make() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tries := 3; s.dir == ""; tries-- { // another daemon may sweep it before it is locked
		if err := s.begin(); err != nil && tries == 0 {
			return "", err
		}
	}
	s.last++
	dir := filepath.Join(s.dir, strconv.Itoa(s.last))
	return dir, os.Mkdir(dir, 0o700)
}

func (s *scratch) begin() error {
	dir := filepath.Join(os.TempDir(), scratchPrefix+rand.Text())
	if s.told != nil {
		s.told(dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err != nil {
		lock.Close()
		return err
	}
	s.dir, s.lock = dir, lock
	return nil
}

// lockDir opens a directory, no link, that nobody else has locked.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepScratch removes the directories of daemons that are no more.
func sweepScratch() {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		dir := filepath.Join(os.TempDir(), e.Name())
		if lock, err := lockDir(dir); err == nil {
			if ownDir(lock) {
				_ = removeAll(dir)
			}
			lock.Close()
		}
	}
}

func ownDir(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && int(st.Uid) == os.Geteuid()
}

// drop removes one of them; "" is none.
func (s *scratch) drop(dir string) error {
	if dir == "" {
		return nil
	}
	return removeAll(dir)
}

func (s *scratch) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		_ = removeAll(s.dir)
		s.lock.Close()
	}
}

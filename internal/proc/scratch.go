package proc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
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
	dir  string // without links
	lock *os.File
	root *os.Root // of dir, whatever is put in its place
	last int
	over bool // all is removed, and nothing is made any more
}

func (s *scratch) make() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return "", errStopping
	}
	for tries := 3; s.dir == ""; tries-- { // another daemon may sweep it before it is locked
		if err := s.create(); err != nil && tries == 0 {
			return "", err
		}
	}
	s.last++
	name := strconv.Itoa(s.last)
	return filepath.Join(s.dir, name), s.root.Mkdir(name, 0o700)
}

// path is the directory that has them all, "" while there is none.
func (s *scratch) path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

func (s *scratch) create() error {
	dir := filepath.Join(Resolve(os.TempDir()), scratchPrefix+rand.Text())
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
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", lock.Fd()))
	if err == nil {
		_, err = os.Lstat(dir)
	}
	if err != nil {
		lock.Close()
		return err
	}
	s.dir, s.lock, s.root = dir, lock, root
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
				_ = removeTree(dir)
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
	return removeAll(s.root, filepath.Base(dir))
}

func (s *scratch) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.dir != "" {
		_ = removeTree(s.dir)
		s.root.Close()
		s.lock.Close()
	}
}

// removeTree is removeAll for a path.
func removeTree(dir string) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	return removeAll(root, filepath.Base(dir))
}

// removeAll removes a tree whose owner may have locked parts of it. No link leads out
// of it.
func removeAll(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	tree, e := root.OpenRoot(name)
	if e != nil {
		_ = root.Chmod(name, 0o700)
		if tree, e = root.OpenRoot(name); e != nil {
			return err
		}
	}
	defer tree.Close()
	_ = tree.Chmod(".", 0o700)
	_ = fs.WalkDir(tree.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = tree.Chmod(path, 0o700)
		}
		return nil
	})
	return root.RemoveAll(name)
}

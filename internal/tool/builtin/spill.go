package builtin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxSpill      = 16 << 20 // bytes of one command's output that are kept
	maxSpillFiles = 32
	spillPrefix   = "bash-"
)

// spill is a file in the user's cache directory with all of a command's output,
// where that is more than a result shows. The oldest such files go first. Its
// zero value is ready; a file that cannot be made keeps nothing.
type spill struct {
	file *os.File
	size int
	err  error
}

func (s *spill) open() bool {
	if s.file != nil || s.err != nil {
		return s.file != nil
	}
	var dir string
	if dir, s.err = os.UserCacheDir(); s.err != nil {
		return false
	}
	dir = filepath.Join(dir, "noused")
	if s.err = os.MkdirAll(dir, 0o700); s.err != nil {
		return false
	}
	pruneSpills(dir)
	s.file, s.err = os.CreateTemp(dir, spillPrefix+"*.txt")
	return s.err == nil
}

func (s *spill) write(b []byte) {
	if b = b[:min(len(b), maxSpill-s.size)]; len(b) == 0 || !s.open() {
		return
	}
	n, err := s.file.Write(b)
	if s.size += n; err != nil {
		s.close()
		s.err = err
	}
}

// note says where the output is, "" where nowhere.
func (s *spill) note(whole int) string {
	switch {
	case s.file == nil:
		return ""
	case s.size < whole:
		return fmt.Sprintf("; the first %d bytes are in %s", s.size, s.file.Name())
	}
	return "; all of it is in " + s.file.Name()
}

func (s *spill) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// pruneSpills makes room for one more file.
func pruneSpills(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var kept []os.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), spillPrefix) {
			kept = append(kept, info)
		}
	}
	slices.SortFunc(kept, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept[:max(0, len(kept)-maxSpillFiles+1)] {
		os.Remove(filepath.Join(dir, info.Name()))
	}
}

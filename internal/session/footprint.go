package session

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Footprint is what a session takes on the disk: the bytes of its journal and of
// what else is kept under its id. An image that branches share counts for each of
// them. Used is when its journal was written last.
type Footprint struct {
	ID    string
	Bytes int64
	Used  time.Time
}

// Footprints are those of all sessions, the one that was used longest ago first. It
// reads folders, and no journal. What a crash has left of deletions goes before.
func (s *Store) Footprints(ctx context.Context) ([]Footprint, error) {
	s.mu.Lock()
	err := s.prepareWrite()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, sessionsName)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	of := map[string]*Footprint{}
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		id, ext, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || !ValidID(id) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if of[id] == nil {
			of[id] = &Footprint{ID: id}
		}
		of[id].Bytes += bytesOf(filepath.Join(dir, e.Name()), info)
		if "."+ext == journalExt {
			of[id].Used = info.ModTime()
		}
	}
	all := make([]Footprint, 0, len(of))
	for _, f := range of {
		if !f.Used.IsZero() { // else it is being deleted, or made
			all = append(all, *f)
		}
	}
	slices.SortFunc(all, func(a, b Footprint) int { return cmp.Or(a.Used.Compare(b.Used), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

// bytesOf are those of a file, or of the files in a folder and below. What is gone has none.
func bytesOf(path string, info fs.FileInfo) (n int64) {
	if !info.IsDir() {
		return info.Size()
	}
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

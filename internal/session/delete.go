package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Delete removes a session's journal, and what else is kept under its id, for
// good. Where it was the active session, the newest of the others becomes that
// before. The session must not be open. ErrNotFound when there is none.
func (s *Store) Delete(id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.held(); err != nil {
		return err
	}
	if !s.Exists(id) {
		return ErrNotFound
	}
	alone := false // the active session, and no other can take its place
	if active := s.active.Load(); active != nil && *active == id {
		ids, err := s.IDs()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(ids, func(other string) bool { return other != id && s.readable(other) })
		if alone = i < 0; !alone {
			if err := s.note(ids[i], at); err != nil {
				return err
			}
			s.active.Store(&ids[i])
		}
	}
	s.files.Lock() // no image is given its name meanwhile
	err := s.remove(id)
	s.files.Unlock()
	if alone && !s.Exists(id) {
		s.active.Store(nil)
	}
	if err != nil {
		return fmt.Errorf("delete session %s: %w", id, err)
	}
	return nil
}

// deletedExt is behind a session's id in the name of its journal while what else
// it has is being removed.
const deletedExt = ".deleted"

// remove moves a session's journal aside, from when on there is no such session,
// and takes all of its files away then. Where that fails, or the daemon ends, the
// next start finishes it.
func (s *Store) remove(id string) error {
	dir := filepath.Join(s.dir, sessionsName)
	aside := filepath.Join(dir, id+deletedExt)
	if err := os.Rename(s.path(id), aside); err != nil {
		return err
	}
	if err := s.disk.SyncDir(dir); err != nil {
		return errors.Join(err, os.Rename(aside, s.path(id)))
	}
	return s.finishDeletion(id)
}

// finishDeletion removes all that is kept under an id, the journal last. Images
// that are being kept meanwhile may go by themselves.
func (s *Store) finishDeletion(id string) error {
	dir := filepath.Join(s.dir, sessionsName)
	files, err := os.ReadDir(dir)
	for _, file := range files {
		if name := file.Name(); strings.HasPrefix(name, id+".") && name != id+deletedExt {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, id+deletedExt))
	}
	return errors.Join(err, s.disk.SyncDir(dir))
}

// finishDeletions finishes what a crash left of sessions that were being deleted.
// What cannot be removed harms nobody, and is tried again at the next start.
func (s *Store) finishDeletions() {
	left, _ := filepath.Glob(filepath.Join(s.dir, sessionsName, "*"+deletedExt)) // a bad pattern is its only error
	for _, path := range left {
		id := strings.TrimSuffix(filepath.Base(path), deletedExt)
		if ValidID(id) && !s.Exists(id) { // else it is not what remove made
			_ = s.finishDeletion(id)
		}
	}
}

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
	if err := s.prepareWrite(); err != nil {
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
	_, err := s.remove(id)
	if alone && !s.Exists(id) {
		s.active.Store(nil)
	}
	if err != nil {
		return fmt.Errorf("delete session %s: %w", id, err)
	}
	return nil
}

// DeleteAll is Delete for many sessions, which costs little more than for one. The
// active session stays, and so does what is not there. It returns which of them are gone,
// on an error too.
func (s *Store) DeleteAll(ids []string) (gone []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prepareWrite(); err != nil {
		return nil, err
	}
	active := s.active.Load()
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return active != nil && *active == id || !s.Exists(id)
	})
	if gone, err = s.remove(ids...); err != nil {
		err = fmt.Errorf("delete sessions: %w", err)
	}
	return gone, err
}

// deletedExt is behind a session's id in the name of its journal while what else
// it has is being removed.
const deletedExt = ".deleted"

// remove moves the sessions' journals aside, from when on there are no such sessions,
// and takes all of their files away then. Where that fails, or the daemon ends, the
// next start finishes it. It returns which sessions are gone. s is locked.
func (s *Store) remove(ids ...string) (gone []string, err error) {
	s.files.Lock() // no image is given its name meanwhile
	defer s.files.Unlock()
	dir := filepath.Join(s.dir, sessionsName)
	aside := func(id string) string { return filepath.Join(dir, id+deletedExt) }
	for _, id := range ids {
		if err = os.Rename(s.path(id), aside(id)); err != nil {
			break
		}
		gone = append(gone, id)
	}
	if len(gone) == 0 {
		return nil, err
	}
	if wrong := s.disk.SyncDir(dir); wrong != nil {
		for _, id := range gone {
			wrong = errors.Join(wrong, os.Rename(aside(id), s.path(id)))
		}
		return nil, errors.Join(err, wrong)
	}
	for _, id := range gone {
		s.streams.forget(id)
	}
	return gone, errors.Join(err, s.finishDeletions(gone))
}

// finishDeletions removes all that is kept under some ids, the journals last. Images
// that are being kept meanwhile may go by themselves.
func (s *Store) finishDeletions(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	failed := make(map[string]error, len(ids))
	for _, id := range ids {
		failed[id] = nil
	}
	dir := filepath.Join(s.dir, sessionsName)
	names, unread := readNames(dir)
	for _, name := range names {
		id, _, _ := strings.Cut(name, ".")
		if wrong, ours := failed[id]; ours && name != id+deletedExt {
			failed[id] = errors.Join(wrong, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	err := unread
	for _, id := range ids {
		if failed[id] == nil && unread == nil {
			failed[id] = os.Remove(filepath.Join(dir, id+deletedExt))
		}
		err = errors.Join(err, failed[id])
	}
	return errors.Join(err, s.disk.SyncDir(dir))
}

// finishFormer finishes what a crash left of sessions that were being deleted.
// What cannot be removed harms nobody, and is tried again at the next start.
func (s *Store) finishFormer() {
	left, _ := filepath.Glob(filepath.Join(s.dir, sessionsName, "*"+deletedExt)) // a bad pattern is its only error
	var ids []string
	for _, path := range left {
		id := strings.TrimSuffix(filepath.Base(path), deletedExt)
		if ValidID(id) && !s.Exists(id) { // else it is not what remove made
			ids = append(ids, id)
		}
	}
	_ = s.finishDeletions(ids)
}

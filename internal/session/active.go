package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/regular"
)

// activeLine says that a session was made the active one. Making a session
// does that as well, and says it by its id: ids rise with time, so an id above
// Newest was made later than this line was written. SessionID is "" while there is
// no active session.
type activeLine struct {
	V         int       `json:"v"`
	At        time.Time `json:"at"`
	SessionID string    `json:"active"`
	Newest    string    `json:"newest"`
}

// Active returns the active session's id, "" before there is one. It may read the
// disk; an error is the disk's.
func (s *Store) Active() (string, error) {
	if id := s.active.Load(); id != nil {
		return *id, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.list(); err != nil {
		return "", err
	}
	if id := s.active.Load(); id != nil {
		return *id, nil
	}
	return "", nil
}

// SetActive makes a session the active one. It blocks until that is on the disk;
// on an error the former one still is.
func (s *Store) SetActive(id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.prepareWrite()
	if err == nil {
		err = s.note(id, at)
	}
	if err == nil {
		s.active.Store(&id)
	}
	return err
}

func (s *Store) note(id string, at time.Time) error {
	line, err := json.Marshal(activeLine{recordVersion, at.UTC(), id, s.newest})
	if err == nil {
		// A torn line before this one must not swallow it.
		_, err = s.disk.Write(s.activeIn, append(append([]byte{'\n'}, line...), '\n'))
	}
	if err == nil {
		err = s.disk.Sync(s.activeIn)
	}
	if err == nil && !s.activeNamed {
		err = s.disk.SyncDir(s.dir)
		s.activeNamed = err == nil
	}
	if err != nil {
		return fmt.Errorf("set active session: %w", err)
	}
	return nil
}

// openActive returns the last whole line of the file that remembers the active
// session, and starts the file anew when it has grown long.
func (s *Store) openActive() (activeLine, error) {
	path := filepath.Join(s.dir, activeName)
	last, size, err := readActive(path)
	if err == nil && size > activeLimit {
		var line []byte
		if line, err = json.Marshal(last); err == nil {
			err = regular.Replace(path, append(line, '\n'), 0o600)
		}
	}
	if err == nil {
		s.activeIn, err = regular.Open(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	}
	return last, err
}

func readActive(path string) (last activeLine, size int64, err error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return last, 0, nil
	}
	if err != nil {
		return last, 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return last, 0, err
	}
	tail := make([]byte, min(info.Size(), 4<<10))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return last, 0, err
	}
	for line := range bytes.Lines(tail) {
		var l activeLine
		if json.Unmarshal(line, &l) == nil {
			last = l
		}
	}
	return last, info.Size(), nil
}

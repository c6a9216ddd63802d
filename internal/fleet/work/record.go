package work

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/regular"
)

// record is what must be known of a job after the daemon was killed.
type record struct {
	job.Job   `json:"job"`
	Folder    string   `json:"folder,omitempty"` // the worktree that was made
	SessionID string   `json:"session_id,omitempty"`
	RunID     string   `json:"run_id,omitempty"`
	End       *job.End `json:"end,omitempty"`
	// Again: it may have been begun, and its session made. It is so of every record that
	// is read.
	Again bool `json:"-"`
}

const (
	recordSuffix = ".json"
	maxRecord    = 2*fleet.MaxJob + 2*job.MaxOutput
	maxRecords   = 10_000
)

// load reads the records. One that cannot be read is told of, and stays.
func (w *Worker) load() (all []record, err error) {
	if err := os.MkdirAll(w.o.Dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(w.o.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries[:min(len(entries), maxRecords)] {
		id, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok {
			continue
		}
		r, err := w.read(id)
		if err != nil {
			w.o.Log.Error("what the daemon knew of a job cannot be read", zap.String("job", id), zap.Error(err))
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

func (w *Worker) read(id string) (r record, err error) {
	text, err := regular.ReadOwn(w.path(id), maxRecord)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.ID != id {
		return r, fmt.Errorf("it is of the job %.80q", r.ID)
	}
	r.Again = true
	return r, r.Check()
}

func (w *Worker) path(id string) string { return filepath.Join(w.o.Dir, id+recordSuffix) }

// keep writes the record, so that it is there after a crash.
func (w *Worker) keep(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temp := filepath.Join(w.o.Dir, "."+r.ID)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := regular.Open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, w.path(r.ID)); err != nil {
		return err
	}
	return w.sync()
}

func (w *Worker) sync() error {
	dir, err := os.Open(w.o.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (w *Worker) drop(id string) error {
	if err := os.Remove(w.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

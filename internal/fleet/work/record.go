package work

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// Bounds of what is read of the daemon before, in bytes but for the files.
const (
	maxRecord  = 2*fleet.MaxJob + 8*job.MaxOutput // a character may be six in JSON
	maxKnown   = 64 << 20                         // of all records
	maxFiles   = 10_000
	fileSuffix = ".json"
	tempPrefix = "."
)

// load reads the records. One that cannot be read, or that there is no room for, is
// logged, and stays.
func (w *Worker) load() (all []record, err error) {
	files, err := w.files()
	if err != nil {
		return nil, err
	}
	size := 0
	for i, file := range files {
		id, ok := strings.CutSuffix(file, fileSuffix)
		if strings.HasPrefix(file, tempPrefix) { // the daemon was killed while it wrote it
			_ = os.Remove(filepath.Join(w.o.Dir, file))
			continue
		}
		if !ok {
			continue
		}
		if size > maxKnown || i == maxFiles {
			w.o.Log.Error(
				"there are too many jobs that were begun before: the rest is not gone on with; what is not needed can be removed",
				zap.String("folder", w.o.Dir), zap.Int("read", len(all)), zap.Int("left", len(files)-i),
				zap.Int("max_bytes", maxKnown), zap.Int("max_files", maxFiles))
			break
		}
		r, n, err := w.read(id)
		if size += n; err != nil {
			w.o.Log.Error("what the daemon knew of a job cannot be read", zap.String("file", w.path(id)), zap.Error(err))
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

// files are the names in the folder, which it makes if it is missing.
func (w *Worker) files() (names []string, err error) {
	if err := regular.Folder(w.o.Dir); err != nil {
		return nil, err
	}
	dir, err := os.Open(w.o.Dir)
	if err != nil {
		return nil, err
	}
	names, err = dir.Readdirnames(maxFiles + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.Sort(names)
	return names, errors.Join(err, dir.Close())
}

func (w *Worker) read(id string) (r record, size int, err error) {
	text, err := regular.ReadOwn(w.path(id), maxRecord)
	if err != nil {
		return r, 0, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, len(text), err
	}
	r.Again = true
	return r, len(text), r.check(id)
}

// check refuses a record that is not whole.
func (r record) check(id string) error {
	switch {
	case r.ID != id:
		return fmt.Errorf("it is of the job %.80q", r.ID)
	case r.RunID != "" && r.SessionID == "":
		return errors.New("it has a run_id and no session_id")
	case r.End != nil && r.End.ID != id:
		return fmt.Errorf("its end is of the job %.80q", r.End.ID)
	}
	return r.Check()
}

func (w *Worker) path(id string) string { return filepath.Join(w.o.Dir, id+fileSuffix) }

// keep writes the record, so that it is there after a crash.
func (w *Worker) keep(r record) error {
	text, err := json.Marshal(r, jsontext.AllowInvalidUTF8(true)) // a reason may come from any program
	if err != nil {
		return err
	}
	return regular.Replace(w.path(r.ID), text, 0o600)
}

func (w *Worker) drop(id string) error {
	if err := os.Remove(w.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package registry

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"noused/internal/tool"
)

// PruneOutput removes what was too long for a model and what jobs have written: the
// oldest first, what was written before then, and what is more than so many bytes
// together. A zero time or size removes nothing. What a job of this daemon has
// written stays. It reports each file; with dry it only reports. It blocks for the
// disk, until ctx ends.
func (r *Registry) PruneOutput(ctx context.Context, before time.Time, most int64, dry bool,
	removed func(tool.KeptFile),
) error {
	if before.IsZero() && most == 0 {
		return nil
	}
	files, err := r.keep.files.List("")
	if err != nil {
		return err
	}
	total := int64(0)
	for _, f := range files {
		total += f.Size()
	}
	for _, f := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !f.ModTime().Before(before) && (most == 0 || total <= most) {
			return nil // all others are younger
		}
		switch gone, err := r.jobs.removeFile(f.Name, dry); {
		case err != nil:
			return err
		case gone:
			total -= f.Size()
			removed(f)
		}
	}
	return nil
}

// PruneCaches removes the caches of sandboxed tools in folders where none was started
// since then, or that are no more, and returns how many. It blocks for the disk.
func (r *Registry) PruneCaches(before time.Time) (int, error) {
	return r.supervisor.SweepCaches(before)
}

// removeFile removes a file of the output folder unless a job of this daemon is its
// writer. With dry it says what it would do.
func (j *jobs) removeFile(name string, dry bool) (gone bool, err error) {
	j.starting.Lock() // a job that starts has a file before it is known
	defer j.starting.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writes(filepath.Join(j.files.Dir, name)) {
		return false, nil
	}
	if dry {
		return true, nil
	}
	if err := j.files.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return false, nil
}

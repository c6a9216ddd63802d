package registry

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/regular"
)

// PruneOutput removes what was too long for a model and what jobs have written: the
// oldest first, what was written before then, and what is more than so many bytes
// together. A zero time or size removes nothing. What a job of this daemon has
// written stays. It tells of each file; with dry it only tells. It blocks for the
// disk, until ctx ends.
func (r *Registry) PruneOutput(ctx context.Context, before time.Time, most int64, dry bool, removed func(fs.FileInfo)) error {
	if before.IsZero() && most == 0 {
		return nil
	}
	files, err := outputFiles(r.keep.dir)
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
		switch gone, err := r.jobs.removeFile(filepath.Join(r.keep.dir, f.Name()), dry); {
		case err != nil:
			return err
		case gone:
			total -= f.Size()
			removed(f)
		}
	}
	return nil
}

// removeFile removes a file of the output folder unless a job of this daemon is its
// writer. With dry it says what it would do.
func (j *jobs) removeFile(path string, dry bool) (gone bool, err error) {
	j.starting.Lock() // a job that starts has a file before it is known
	defer j.starting.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if slices.ContainsFunc(j.list, func(o *job) bool { return o.output.file.Name() == path }) {
		return false, nil
	}
	if dry {
		return true, nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return false, nil
}

// outputFiles are the regular files of the output folder that are named as the
// daemon names them, the oldest first. A folder that is a link is not the daemon's.
func outputFiles(dir string) (files []fs.FileInfo, err error) {
	switch err := regular.IsFolder(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		ours := slices.ContainsFunc([]string{keptPrefix, jobPrefix, assetPrefix}, func(p string) bool { return strings.HasPrefix(e.Name(), p) })
		if info, err := e.Info(); err == nil && ours && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files, nil
}

// assetPrefix begins the name of a file that came with a result of an MCP server.
const assetPrefix = "asset-"

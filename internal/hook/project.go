package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"noused/internal/hookfile"
	"noused/internal/mcpfile"
)

// trustFile is the file of trusted folders as it was read last.
type trustFile struct {
	folders map[string]mcpfile.TrustedText
	changed time.Time
	size    int64
	err     error
}

// refresh reads which folders are trusted, if that has changed.
func (h *Hooks) refresh() *trustFile {
	was := h.trusted.Load()
	is := &trustFile{}
	if info, err := os.Stat(filepath.Join(h.o.ConfigDir, string(mcpfile.Hooks))); err == nil {
		is.changed, is.size = info.ModTime(), info.Size()
	}
	if was != nil && was.err == nil && was.changed.Equal(is.changed) && was.size == is.size {
		return was
	}
	is.folders, is.err = mcpfile.Hooks.Read(h.o.ConfigDir)
	h.trusted.Store(is)
	return is
}

// known is what was read last.
func (h *Hooks) known() *trustFile {
	if t := h.trusted.Load(); t != nil {
		return t
	}
	return h.refresh()
}

// project returns the hooks of a folder, or why they do not run. closed are the points that
// the user trusts them to guard: nothing may pass there while they do not run.
func (h *Hooks) project(folder string) (list []hookfile.Hook, closed []string, err error) {
	if folder == "" {
		return nil, nil, nil
	}
	t := h.refresh()
	record, before := t.folders[folder]
	path := filepath.Join(folder, hookfile.FileName)
	text, err := hookfile.ProjectText(folder)
	switch {
	case err != nil:
		return nil, record.Guards, fmt.Errorf("%s: its hooks do not run: %w", path, err)
	case t.err != nil:
		if text != nil {
			closed = hookfile.Guards
		}
		return nil, closed, fmt.Errorf("%s: its hooks do not run: %w", path, t.err)
	case text == nil && !before:
		return nil, nil, nil
	case text == nil:
		return nil, record.Guards, fmt.Errorf("%s, whose hooks you trust, is gone: nous trust forgets it", path)
	case before && record.Hash != mcpfile.Hash(text) && len(record.Guards) == 0 && untrusted(path, text) == nil:
		return nil, nil, nil // it has no hooks
	case before && record.Hash != mcpfile.Hash(text):
		return nil, record.Guards, fmt.Errorf("%s has changed since you trusted it, and its hooks do not run: nous trust "+
			"shows them, and asks", path)
	}
	if !before {
		return nil, nil, untrusted(path, text)
	}
	if list, err = hookfile.ReadProject(folder, text); err != nil {
		return nil, record.Guards, fmt.Errorf("its hooks do not run: %w", err)
	}
	return list, nil, nil
}

// untrusted is the error of a file that nobody trusts, nil where it has no hooks.
func untrusted(path string, text []byte) error {
	has, err := hookfile.Any(path, text)
	switch {
	case err != nil:
		return fmt.Errorf("its hooks do not run: %w", err)
	case has:
		return fmt.Errorf("%s has hooks that do not run, as you have not trusted them: nous trust shows them, and asks", path)
	}
	return nil
}

// Problem says why the hooks of a folder do not run, "" where they do or there are none. It
// blocks for the disk.
func (h *Hooks) Problem(folder string) string {
	if _, _, err := h.project(folder); err != nil {
		return err.Error()
	}
	return ""
}

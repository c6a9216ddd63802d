package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"noused/internal/mcpfile"
	"noused/internal/regular"
)

// FileName is where a project has its hooks.
const FileName = ".noused/config.toml"

const maxFile = 64 << 10

// ProjectText is the text of a project's file, which a stranger may have written: it must be a
// regular file of this user, and no link. Nil: there is none.
func ProjectText(folder string) ([]byte, error) {
	text, err := regular.ReadOwn(filepath.Join(folder, FileName), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return append([]byte{}, text...), nil
}

// Trusted reports whether the user trusts a folder's file as it is, and whether anything of
// it was trusted before.
func Trusted(configDir, folder string, text []byte) (now, before bool, err error) {
	all, err := mcpfile.Hooks.Read(configDir)
	if err != nil {
		return false, false, err
	}
	record, before := all[folder]
	return before && text != nil && record.Hash == mcpfile.Hash(text), before, nil
}

// Trust remembers that the user trusts a folder's file, nil for none any more.
func Trust(configDir, folder string, text []byte, at time.Time) error {
	record := mcpfile.TrustedText{At: at}
	if text != nil {
		list, err := ReadProject(folder, text)
		if err != nil {
			return err
		}
		record.Hash, record.Guards = mcpfile.Hash(text), slices.ContainsFunc(list, Hook.guards)
	}
	return mcpfile.Hooks.Add(configDir, folder, record)
}

// trust is the file of trusted folders as it was read last.
type trust struct {
	folders map[string]mcpfile.TrustedText
	changed time.Time
	size    int64
	err     error
}

// refresh reads which folders are trusted, if that has changed.
func (h *Hooks) refresh() *trust {
	was := h.trusted.Load()
	is := &trust{}
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
func (h *Hooks) known() *trust {
	if t := h.trusted.Load(); t != nil {
		return t
	}
	return h.refresh()
}

// project returns the hooks of a folder, or why they do not run. guarded: the user trusts that
// they guard, so that nothing may pass while they do not run.
func (h *Hooks) project(folder string) (list []Hook, guarded bool, err error) {
	if folder == "" {
		return nil, false, nil
	}
	t := h.refresh()
	record, before := t.folders[folder]
	path := filepath.Join(folder, FileName)
	text, err := ProjectText(folder)
	switch {
	case err != nil:
		return nil, record.Guards, fmt.Errorf("%s: its hooks do not run: %w", path, err)
	case t.err != nil:
		return nil, text != nil, fmt.Errorf("%s: its hooks do not run: %w", path, t.err)
	case text == nil && !before:
		return nil, false, nil
	case text == nil:
		return nil, record.Guards, fmt.Errorf("%s, whose hooks you trust, is gone: nous trust forgets it", path)
	case before && record.Hash != mcpfile.Hash(text):
		return nil, record.Guards, fmt.Errorf("%s has changed since you trusted it, and its hooks do not run: nous trust "+
			"shows them, and asks", path)
	}
	list, err = ReadProject(folder, text)
	switch {
	case err != nil:
		return nil, record.Guards, fmt.Errorf("its hooks do not run: %w", err)
	case len(list) > 0 && !before:
		return nil, false, fmt.Errorf("%s has hooks that do not run, as you have not trusted them: nous trust shows them, "+
			"and asks", path)
	}
	return list, false, nil
}

// Problem says why the hooks of a folder do not run, "" where they do or there are none. It
// blocks for the disk.
func (h *Hooks) Problem(folder string) string {
	if _, _, err := h.project(folder); err != nil {
		return err.Error()
	}
	return ""
}

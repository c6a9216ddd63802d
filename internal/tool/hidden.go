package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// HiddenVariable tells a sandboxed program which paths it cannot read: a
// [Hidden] as its String has it.
const HiddenVariable = "NOUSED_HIDDEN"

// Hidden are files and folders that sandboxed programs must not read, and what
// inside of them they may. All are absolute; none need exist.
type Hidden struct {
	Paths  []string
	Except []string // counts only inside of a path
}

// Covers reports whether a path, links resolved, is hidden.
func (h Hidden) Covers(path string) bool {
	in := func(dir string) bool { return inside(dir, path) }
	return slices.ContainsFunc(h.Paths, in) && !slices.ContainsFunc(h.Except, in)
}

// HidesFrom reports whether a path, links resolved, is hidden from a module with
// that workdir.
func (h Hidden) HidesFrom(workdir, path string) bool { return h.resolved(workdir).Covers(path) }

// leadsTo reports whether a folder that is not hidden has something hidden
// below it.
func (h Hidden) leadsTo(dir string) bool {
	return slices.ContainsFunc(h.Paths, func(path string) bool { return inside(dir, path) })
}

// inside reports whether path is dir or below it.
func inside(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolved is h without links on the way, with further exceptions, and without
// those that lie in nothing hidden.
func (h Hidden) resolved(except ...string) Hidden {
	var r Hidden
	for _, path := range h.Paths {
		r.Paths = append(r.Paths, Resolve(path))
	}
	for _, path := range slices.Concat(h.Except, except) {
		path = Resolve(path)
		if slices.ContainsFunc(r.Paths, func(dir string) bool { return path != dir && inside(dir, path) }) &&
			!slices.Contains(r.Paths, path) {
			r.Except = append(r.Except, path)
		}
	}
	return r
}

// Resolve is filepath.EvalSymlinks for a path whose end may be missing.
func Resolve(path string) string {
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		return real
	case path == filepath.Dir(path):
		return path
	}
	return filepath.Join(Resolve(filepath.Dir(path)), filepath.Base(path))
}

// String is what [ParseHidden] reads: -PATH and +EXCEPT, each with a NUL's
// stand-in, a newline, behind it.
func (h Hidden) String() string {
	var b strings.Builder
	for sign, paths := range map[string][]string{"-": h.Paths, "+": h.Except} {
		for _, path := range paths {
			b.WriteString(sign + strings.ReplaceAll(path, "\n", "\n ") + "\n")
		}
	}
	return b.String()
}

// ParseHidden reads what String wrote; anything else is left out.
func ParseHidden(text string) (h Hidden) {
	text = strings.ReplaceAll(text, "\n ", "\x00")
	for line := range strings.Lines(text) {
		path := strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\x00", "\n")
		switch {
		case strings.HasPrefix(path, "-/"):
			h.Paths = append(h.Paths, path[1:])
		case strings.HasPrefix(path, "+/"):
			h.Except = append(h.Except, path[1:])
		}
	}
	return h
}

// readable are the paths that together have everything but what is hidden: of
// each folder on the way to something hidden all other entries. Links are left
// out; where they lead is in the list by itself, or hidden. A folder that may
// not be listed has only what is known to be in it.
func (h Hidden) readable() []string {
	return append(h.beside("/", nil), h.Except...)
}

// view is when something was last put into, or taken from, the folders that have
// something hidden below them. What may be read beside it is told to the kernel
// entry by entry when a process starts: a later entry is none of them. Folders
// that everybody may write to, as /tmp, are left out: they change all the time.
func (h Hidden) view() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, path := range h.Paths {
		for dir := filepath.Dir(path); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if info, err := os.Stat(dir); err == nil && info.Mode()&os.ModeSticky == 0 {
				fmt.Fprintf(&b, "%s %d\n", dir, info.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}

func (h Hidden) beside(dir string, list []string) []string {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) {
		entries = h.known(dir)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0 || slices.Contains(h.Paths, path):
		case h.leadsTo(path):
			list = h.beside(path, list)
		default:
			list = append(list, path)
		}
	}
	return list
}

// beneath is, of the folders that have something hidden below them, what is
// beside it. They may not be written to themselves: moved, the hidden would be
// found by nobody.
func (h Hidden) beneath(dirs []string) (list []string) {
	for _, dir := range dirs {
		if real := Resolve(dir); h.leadsTo(real) {
			list = h.beside(real, list)
		}
	}
	return list
}

// known are the entries of a folder that lead to something hidden.
func (h Hidden) known(dir string) (entries []fs.DirEntry) {
	for _, path := range h.Paths {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) && rel != "." {
			name, _, _ := strings.Cut(rel, "/")
			if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				entries = append(entries, fs.FileInfoToDirEntry(info))
			}
		}
	}
	return entries
}

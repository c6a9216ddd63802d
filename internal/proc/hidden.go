package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// HiddenVariable tells a sandboxed program which paths it cannot read: a
// [Hidden] as its String has it.
const HiddenVariable = "NOUSED_HIDDEN"

// Reserved reports whether a variable is how this package marks processes or
// tells them something: nobody else may set it or hand it on.
func Reserved(name string) bool { return name == markName || name == HiddenVariable }

// Hidden are files and folders that sandboxed programs must not read, and what
// inside of them they may. All are absolute; none need exist.
type Hidden struct {
	Paths  []string
	Except []string // counts only inside of a path; what Paths has inside of it is hidden again
}

// Covers reports whether a path, links resolved, is hidden: of what it lies in, the
// innermost tells.
func (h Hidden) Covers(path string) bool { return innermost(h.Paths, path) > innermost(h.Except, path) }

// innermost is the length of the longest of the folders that path is, or lies in;
// -1 for none.
func innermost(dirs []string, path string) int {
	longest := -1
	for _, dir := range dirs {
		if inside(dir, path) {
			longest = max(longest, len(dir))
		}
	}
	return longest
}

// HidesFrom reports whether a path, links resolved, is hidden from a module with
// that workdir.
func (h Hidden) HidesFrom(workdir, path string) bool {
	return h.resolved().without(Resolve(workdir)).Covers(path)
}

// leadsTo reports whether a folder that is not hidden has something hidden
// below it.
func (h Hidden) leadsTo(dir string) bool {
	return slices.ContainsFunc(h.Paths, func(path string) bool { return inside(dir, path) })
}

// inside reports whether path is dir or below it.
func inside(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolved is h without links on the way, and without the exceptions that lie in
// nothing hidden.
func (h Hidden) resolved() Hidden {
	r := Hidden{}
	for _, path := range h.Paths {
		r.Paths = append(r.Paths, Resolve(path))
	}
	var except []string
	for _, path := range h.Except {
		except = append(except, Resolve(path))
	}
	return r.without(except...)
}

// without is h, resolved, with further exceptions, links resolved, as far as they
// lie in something hidden.
func (h Hidden) without(except ...string) Hidden {
	h.Except = slices.Clip(h.Except)
	for _, path := range except {
		if slices.ContainsFunc(h.Paths, func(dir string) bool { return path != dir && inside(dir, path) }) &&
			!slices.Contains(h.Paths, path) {
			h.Except = append(h.Except, path)
		}
	}
	return h
}

// Resolve is filepath.EvalSymlinks for a path whose end may be missing, also where
// a link leads to what is missing.
func Resolve(path string) string {
	return resolve(filepath.Clean(path), maxLinks)
}

// maxLinks is how many links to what is missing may follow each other, as in the
// kernel.
const maxLinks = 40

func resolve(path string, links int) string {
	real, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		return real
	case path == filepath.Dir(path):
		return path
	}
	dir := resolve(filepath.Dir(path), links)
	path = filepath.Join(dir, filepath.Base(path))
	target, err := os.Readlink(path)
	switch {
	case err != nil || links == 0:
		return path
	case !filepath.IsAbs(target):
		target = filepath.Join(dir, target)
	}
	return resolve(filepath.Clean(target), links-1)
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
	marks := h.marks()
	list := h.beside("/", marks, nil)
	for _, path := range h.Except {
		if _, leads := marks[path]; leads {
			list = h.beside(path, marks, list)
		} else {
			list = append(list, path)
		}
	}
	return list
}

// identity tells which of the hidden are there: a cover lies over a file or folder,
// not over its name.
func (h Hidden) identity() string {
	var b strings.Builder
	for _, path := range h.Paths {
		var s unix.Stat_t
		if unix.Lstat(path, &s) == nil {
			fmt.Fprintf(&b, "%s %d %d\n", path, s.Dev, s.Ino)
		}
	}
	return b.String()
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

// marks has true for what is hidden and false for the folders above it.
func (h Hidden) marks() map[string]bool {
	marks := map[string]bool{}
	for _, path := range h.Paths {
		for dir := path; dir != filepath.Dir(dir); {
			dir = filepath.Dir(dir)
			if !marks[dir] {
				marks[dir] = false
			}
		}
		marks[path] = true
	}
	return marks
}

// beside adds to the list what is in a folder and neither hidden nor a link.
func (h Hidden) beside(dir string, marks map[string]bool, list []string) []string {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) {
		entries = h.known(dir)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		hides, leads := marks[path]
		switch {
		case e.Type()&fs.ModeSymlink != 0 || hides:
		case leads:
			list = h.beside(path, marks, list)
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
	marks := h.marks()
	for _, dir := range dirs {
		if real := Resolve(dir); h.leadsTo(real) {
			list = h.beside(real, marks, list)
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

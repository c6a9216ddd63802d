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
	Paths []string
	// Dots are folders of which every entry is hidden whose name begins with a dot.
	// Where such an entry is a link, that says nothing of what it leads to.
	Dots []string
	// Except counts only inside of something hidden; what Paths has inside of it is
	// hidden again. An exception with a link on the way is none: a program that may
	// write there could have made it, to have something else opened.
	Except []string
}

// Covers reports whether a path, links resolved, is hidden: the innermost match
// wins, and an exception over a dot.
func (h Hidden) Covers(path string) bool {
	return max(innermost(h.Paths, path), h.dotted(path)) > innermost(h.Except, path)
}

// dotted is the length of the longest entry of Dots that path is, or lies in; -1 for
// none.
func (h Hidden) dotted(path string) int {
	longest := -1
	for _, dir := range h.Dots {
		dir = strings.TrimSuffix(dir, "/") + "/"
		if rest, ok := strings.CutPrefix(path, dir); ok && strings.HasPrefix(rest, ".") {
			name, _, _ := strings.Cut(rest, "/")
			longest = max(longest, len(dir)+len(name))
		}
	}
	return longest
}

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
	return slices.ContainsFunc(slices.Concat(h.Paths, h.Dots), func(path string) bool { return inside(dir, path) })
}

// inside reports whether path is dir or below it.
func inside(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolved is h without links on the way, and without the exceptions that have one,
// are missing, or lie in nothing hidden.
func (h Hidden) resolved() Hidden {
	folders := map[string]string{}
	real := func(path string) (_ string, there bool) {
		dir, ok := folders[filepath.Dir(path)]
		if !ok {
			dir = Resolve(filepath.Dir(path))
			folders[filepath.Dir(path)] = dir
		}
		path = filepath.Join(dir, filepath.Base(path))
		var s unix.Stat_t
		err := unix.Lstat(path, &s)
		if err == nil && s.Mode&unix.S_IFMT == unix.S_IFLNK {
			path = Resolve(path)
		}
		return path, err == nil
	}
	r := Hidden{}
	for _, path := range h.Paths {
		path, _ = real(path)
		r.Paths = append(r.Paths, path)
	}
	for _, path := range h.Dots {
		r.Dots = append(r.Dots, Resolve(path))
	}
	var except []string
	for _, path := range h.Except { // most of a long list are not there
		if at, there := real(path); there && at == path {
			except = append(except, path)
		}
	}
	return r.without(except...)
}

// maxListed is how many entries of Dots can be covered.
const maxListed = 4096

// listed is h, resolved, with what Dots hides now among its Paths, links left out,
// and the exceptions inside of Paths alone.
func (h Hidden) listed() (Hidden, error) {
	l := Hidden{Paths: slices.Clip(h.Paths)}
	for _, dir := range h.Dots {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Hidden{}, err
		}
		for _, e := range entries {
			if path := filepath.Join(dir, e.Name()); e.Type()&fs.ModeSymlink == 0 && h.Covers(path) &&
				!slices.Contains(h.Paths, path) {
				l.Paths = append(l.Paths, path)
			}
		}
	}
	if n := len(l.Paths) - len(h.Paths); n > maxListed {
		return Hidden{}, fmt.Errorf("%s has %d entries that begin with a dot and are to be hidden, more than %d",
			strings.Join(h.Dots, ", "), n, maxListed)
	}
	return l.without(h.Except...), nil
}

// without is h, resolved, with further exceptions, links resolved, as far as they
// lie in something hidden.
func (h Hidden) without(except ...string) Hidden {
	h.Except = slices.Clip(h.Except)
	for _, path := range except {
		if !slices.Contains(h.Paths, path) && (innermost(h.Paths, path) >= 0 || h.dotted(path) >= 0) {
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

// String is what [ParseHidden] reads: -PATH, .DOTS and +EXCEPT, each with a NUL's
// stand-in, a newline, behind it.
func (h Hidden) String() string {
	var b strings.Builder
	for sign, paths := range map[string][]string{"-": h.Paths, ".": h.Dots, "+": h.Except} {
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
		case strings.HasPrefix(path, "./"):
			h.Dots = append(h.Dots, path[1:])
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
		if !h.Covers(filepath.Dir(path)) { // found beside
			continue
		}
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
	l, err := h.listed()
	if err != nil {
		return err.Error()
	}
	for _, path := range l.Paths {
		b.WriteString(identity(path))
	}
	return b.String()
}

// identity tells which file or folder has a name, "" where none has it.
func identity(path string) string {
	var s unix.Stat_t
	if unix.Lstat(path, &s) != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d\n", path, s.Dev, s.Ino)
}

// view is when something was last put into, or taken from, the folders that have
// something hidden below them. What may be read beside it is told to the kernel
// entry by entry when a process starts: a later entry is none of them. Folders
// that everybody may write to, as /tmp, are left out: they change all the time.
func (h Hidden) view() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, path := range slices.Concat(h.Paths, below(h.Dots)) {
		for dir := filepath.Dir(path); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if info, err := os.Stat(dir); err == nil && info.Mode()&os.ModeSticky == 0 && !h.Covers(dir) {
				fmt.Fprintf(&b, "%s %d\n", dir, info.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}

// below are names in these folders.
func below(dirs []string) (paths []string) {
	for _, dir := range dirs {
		paths = append(paths, filepath.Join(dir, ".any"))
	}
	return paths
}

// marks has true for what is hidden and false for the folders above it.
func (h Hidden) marks() map[string]bool {
	marks := map[string]bool{}
	for _, path := range slices.Concat(h.Paths, below(h.Dots)) {
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
		_, leads := marks[path]
		switch {
		case e.Type()&fs.ModeSymlink != 0 || h.Covers(path):
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
	for _, path := range slices.Concat(h.Paths, h.Dots) {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) && rel != "." {
			name, _, _ := strings.Cut(rel, "/")
			if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				entries = append(entries, fs.FileInfoToDirEntry(info))
			}
		}
	}
	return entries
}

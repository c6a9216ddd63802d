package builtin

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"noused/internal/format"
	"noused/internal/proc"
)

const (
	// maxVisited is how many entries find and grep look at in one call.
	maxVisited = 500_000
	// maxIgnore is how much of an ignore file is read, in bytes.
	maxIgnore = 1 << 20
)

// walker goes through a folder and what is below it, each folder by name,
// without what git ignores and without .git itself. Symbolic links are
// visited, not followed.
type walker struct {
	c *call
	// visit gets each entry's path from the folder on, with slashes.
	visit func(rel string, e fs.DirEntry) error

	hidden  proc.Hidden
	root    string // where the ignore patterns count from
	visited int
	blind   int // folders that could not be read
}

// errVisited ends a walk that is too long.
var errVisited = fmt.Errorf("[stopped after %d entries; look in a smaller folder]", maxVisited)

// walk goes through the folder at abs. The note says what was not looked at.
func (w *walker) walk(abs string) (note string, err error) {
	abs, w.hidden = proc.Resolve(abs), w.c.hidden()
	patterns, prefix := w.above(abs)
	err = w.folder(abs, "", prefix, patterns)
	var notes []string
	if err == errVisited {
		notes, err = append(notes, err.Error()), nil
	}
	if w.blind > 0 {
		notes = append(notes, fmt.Sprintf("[%s could not be read]", format.Count(w.blind, "folder")))
	}
	return strings.Join(notes, "\n"), err
}

// above collects what the folders above abs say about what git ignores, up to
// the one that has a .git. prefix are the names from there to abs. A folder
// that is ignored itself is searched all the same, as somebody asked for it;
// then nothing from above counts.
func (w *walker) above(abs string) (patterns []rule, prefix []string) {
	w.root = abs
	for dir := abs; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			w.root = dir
			break
		}
		if dir == filepath.Dir(dir) {
			return nil, nil
		}
	}
	patterns = ignoreFile(filepath.Join(w.root, ".git", "info", "exclude"), nil)
	if w.root == abs {
		return patterns, nil
	}
	rel, err := filepath.Rel(w.root, abs)
	if err != nil {
		return nil, nil
	}
	dir := w.root
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		patterns = append(patterns, ignoreFile(filepath.Join(dir, ".gitignore"), prefix)...)
		prefix = append(prefix, name)
		dir = filepath.Join(dir, name)
		if ignored(patterns, prefix, true) {
			w.root = abs
			return nil, nil
		}
	}
	return patterns, prefix
}

// folder visits what is in one folder. names lead to it from the root, rel
// from where the walk began.
func (w *walker) folder(abs, rel string, names []string, patterns []rule) error {
	entries, more, err := readDir(abs)
	if err != nil {
		w.blind++
		if rel == "" {
			return err
		}
		return nil
	}
	if more {
		w.blind++
	}
	patterns = append(slices.Clip(patterns), ignoreFile(filepath.Join(abs, ".gitignore"), names)...)
	for _, e := range entries {
		if e.Name() == ".git" {
			continue
		}
		if err := w.c.stopped(); err != nil {
			return err
		}
		if w.visited++; w.visited > maxVisited {
			return errVisited
		}
		inner := append(slices.Clip(names), e.Name())
		if ignored(patterns, inner, e.IsDir()) {
			continue
		}
		if w.hidden.Covers(filepath.Join(abs, e.Name())) {
			w.blind++
			continue
		}
		below := path.Join(rel, e.Name())
		if err := w.visit(below, e); err != nil {
			return err
		}
		if e.IsDir() {
			if err := w.folder(filepath.Join(abs, e.Name()), below, inner, patterns); err != nil {
				return err
			}
		}
	}
	return nil
}

// rule is one line of an ignore file that lies so many folders deep. One
// without a slash is meant for names. The library's matcher tries it on those
// of the folders above, too, which is wrong for us: they are known not to be
// ignored, and what lets a folder in need not let in what is in it.
type rule struct {
	gitignore.Pattern
	depth int
	named bool
}

// ignored reports what the last rule that fits says.
func ignored(rules []rule, names []string, dir bool) bool {
	for _, r := range slices.Backward(rules) {
		path := names
		if r.named {
			path = append(slices.Clip(names[:r.depth]), names[len(names)-1])
		}
		if m := r.Match(path, dir); m != gitignore.NoMatch {
			return m == gitignore.Exclude
		}
	}
	return false
}

// ignoreFile reads the patterns of an ignore file; none if it cannot be read.
func ignoreFile(abs string, names []string) (patterns []rule) {
	f, err := openReal(abs, os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	for in := bufio.NewScanner(io.LimitReader(f, maxIgnore)); in.Scan(); {
		line := strings.TrimSuffix(in.Text(), "\r")
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			named := !strings.Contains(strings.TrimRight(line, "/ "), "/")
			patterns = append(patterns, rule{gitignore.ParsePattern(line, names), len(names), named})
		}
	}
	return patterns
}

// glob is a pattern of find and grep (doublestar's syntax). Without a slash it
// fits a name at any depth; with one at its end it fits folders only.
type glob struct {
	pattern string
	deep    bool
	dirs    bool
}

// newGlob checks a pattern; the fault names the argument.
func newGlob(argument, pattern string) (*glob, error) {
	g := &glob{pattern: pattern}
	if filepath.IsAbs(pattern) {
		return nil, wrong(argument, "%q begins with a slash; put the folder into path", pattern)
	}
	if trimmed := strings.TrimRight(pattern, "/"); trimmed != pattern {
		g.pattern, g.dirs = trimmed, true
	}
	g.deep = !strings.Contains(g.pattern, "/")
	for strings.HasPrefix(g.pattern, "./") {
		g.pattern = g.pattern[2:]
	}
	if !doublestar.ValidatePattern(g.pattern) {
		return nil, wrong(argument, "%q is not a valid glob: a bracket, a brace or a backslash is not closed", pattern)
	}
	return g, nil
}

func (g *glob) fits(rel string, dir bool) bool {
	if g.dirs && !dir {
		return false
	}
	if g.deep {
		rel = path.Base(rel)
	}
	return doublestar.MatchUnvalidated(g.pattern, rel)
}

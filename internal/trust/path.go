package trust

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// usualPath stands for a PATH that has lost all its entries: an empty one would mean
// the current folder to a shell.
const usualPath = "/usr/local/bin:/usr/bin:/bin"

// pathKept is how long what [Path] has made of a PATH is kept: links on the way of its
// entries may change, those that only the user can change.
const pathKept = 2 * time.Second

// writable are the folders of [Writable], without links on the way, and what Path has made
// last, since they are as they are.
var writable struct {
	sync.RWMutex
	dirs     map[string]bool
	from, to string
	until    time.Time
}

// readlink is the system's. Tests count what is asked of it.
var readlink = os.Readlink

// Writable notes that programs in the sandbox may write to some folders, until this
// process ends: what they put there is not to be taken for a program of the user's. The
// home folder, and what it is in, does not count: nothing that the user has installed
// would be found.
func Writable(dirs ...string) {
	home, _ := os.UserHomeDir()
	_, home = Links(home)
	for _, dir := range dirs {
		if _, real := Links(dir); filepath.IsAbs(dir) && !below(real, home) {
			addWritable(real)
		}
	}
}

func addWritable(real string) {
	writable.Lock()
	defer writable.Unlock()
	if writable.dirs == nil {
		writable.dirs = make(map[string]bool)
	}
	if !writable.dirs[real] {
		writable.dirs[real], writable.from = true, ""
	}
}

// writableAt is the folder of [Writable] that makes what is found at a path a sandboxed
// program's doing, perhaps: the path lies there, or a link does that leads there. It is ""
// where there is none.
func writableAt(path string) string {
	links, real := Links(path)
	writable.RLock()
	defer writable.RUnlock()
	for _, at := range append(links, real) {
		for dir := at; ; dir = filepath.Dir(dir) {
			if writable.dirs[dir] {
				return dir
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return ""
}

// below reports whether a path is dir or lies in it; both are absolute and clean.
func below(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Path is a PATH for what runs outside the sandbox: without the entries that are
// relative, or lie in a folder of [Writable].
func Path(path string) string {
	if path == "" {
		return ""
	}
	now := time.Now()
	writable.RLock()
	from, to, until, count := writable.from, writable.to, writable.until, len(writable.dirs)
	writable.RUnlock()
	if from == path && now.Before(until) {
		return to
	}
	kept := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		return !filepath.IsAbs(dir) || writableAt(dir) != ""
	})
	to = cmp.Or(strings.Join(kept, string(filepath.ListSeparator)), usualPath)
	writable.Lock()
	defer writable.Unlock()
	if len(writable.dirs) == count { // else it may be wrong by now
		writable.from, writable.to, writable.until = path, to, now.Add(pathKept)
	}
	return to
}

// Environ is an environment, NAME=value, with a PATH as [Path] makes it.
func Environ(environ []string) []string {
	environ = slices.Clone(environ)
	for i, kv := range environ {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			environ[i] = "PATH=" + Path(path)
		}
	}
	return environ
}

// LookPath is [exec.LookPath] with what [Path] makes of a PATH, but that it looks no
// further than it has to. A program is passed over as well where a link leads to it from
// another folder: who made the link meant what was there then. The error is a
// *[ProgramError] where nothing is left.
func LookPath(name, path string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	found, passed := find(name, path)
	if found == "" && Path(path) == usualPath {
		found, _ = find(name, usualPath)
	}
	switch {
	case found != "":
		return found, nil
	case passed != nil:
		return "", passed
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// find finds a program in the absolute entries of a PATH, "" where it is in none. passed is
// the first that is not the user's for sure, before that one.
func find(name, path string) (found string, passed *ProgramError) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		at := writableAt(file)
		if at == "" {
			return file, passed
		}
		if passed == nil {
			passed = &ProgramError{Path: file, Folder: at, Reason: "is in " + at + ", which tools in the sandbox can write " +
				"to, or could: a session has worked there, or sandbox_write names it. To be run outside the sandbox, it has " +
				"to be named by its whole path, and PATH set in its env where it needs other programs from there"}
		}
	}
	return "", passed
}

// Links are where the links on the way of a path are, themselves reached without one, and
// where it leads.
func Links(path string) (links []string, real string) {
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for len(rest) > 0 && len(links) <= maxLinks {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		to, err := readlink(next)
		if err != nil {
			at = next
			continue
		}
		links = append(links, next)
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(filepath.Clean(to), "/"), rest...)
	}
	return links, at
}

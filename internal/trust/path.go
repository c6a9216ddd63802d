package trust

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// usualPath stands for a PATH that has lost all its entries: an empty one would mean
// the current folder to a shell.
const usualPath = "/usr/local/bin:/usr/bin:/bin"

// writable are the folders of [Writable], without links on the way.
var writable struct {
	sync.RWMutex
	dirs map[string]bool
}

// Writable notes that programs in the sandbox may write to some folders, until this
// process ends: what they put there is not to be taken for a program of the user's. The
// home folder, and what it is in, does not count: nothing that the user has installed
// would be found.
func Writable(dirs ...string) {
	home, _ := os.UserHomeDir()
	_, home = Links(home)
	writable.Lock()
	defer writable.Unlock()
	for _, dir := range dirs {
		if _, real := Links(dir); filepath.IsAbs(dir) && !below(real, home) {
			if writable.dirs == nil {
				writable.dirs = make(map[string]bool)
			}
			writable.dirs[real] = true
		}
	}
}

// isWritable reports whether what is found at a path may be a sandboxed program's doing:
// it lies in a folder of [Writable], or a link does that leads there.
func isWritable(path string) bool {
	links, real := Links(path)
	writable.RLock()
	defer writable.RUnlock()
	return slices.ContainsFunc(append(links, real), func(at string) bool {
		for dir := at; ; dir = filepath.Dir(dir) {
			if writable.dirs[dir] {
				return true
			}
			if dir == filepath.Dir(dir) {
				return false
			}
		}
	})
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
	kept := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		return !filepath.IsAbs(dir) || isWritable(dir)
	})
	return cmp.Or(strings.Join(kept, string(filepath.ListSeparator)), usualPath)
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

// LookPath is [exec.LookPath] with what [Path] makes of a PATH. The error is a
// *[ProgramError] where the program is in a folder that is passed over.
func LookPath(name, path string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	if found := find(name, Path(path)); found != "" {
		return found, nil
	}
	if found := find(name, path); found != "" {
		return "", &ProgramError{found, "is in a folder that tools in the sandbox can write to: " +
			"to be run outside of it, it has to be named by its whole path"}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// find finds a program in the absolute entries of a PATH, "" where it is in none.
func find(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		if file, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(dir) {
			return file
		}
	}
	return ""
}

// Links are where the links on the way of a path are, themselves reached without one, and
// where it leads.
func Links(path string) (links []string, real string) {
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for len(rest) > 0 && len(links) <= maxLinks {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		to, err := os.Readlink(next)
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

package composer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/tui/slash"
)

const (
	maxListed = 5000 // entries looked at for one completion
	maxSearch = 300 * time.Millisecond
)

var errNoWorkdir = errors.New("this core does not say which folder it works in: begin the path with / or ~/")

// findFiles completes a path: the entries of its folder that begin with its
// last part; then, where it names no folder, those anywhere beneath whose path
// contains it. A folder ends in "/". Relative paths are the daemon's, from
// workdir; "~/" is the home folder. .git is left out, and so is what is hidden
// unless the last part begins with a dot. The search beneath ends with ctx, with
// what it has found.
func findFiles(ctx context.Context, workdir, home, typed string) ([]string, error) {
	dir, last := filepath.Split(typed)
	root := dir
	switch {
	case strings.HasPrefix(dir, "~/"):
		root = filepath.Join(home, dir[2:])
	case filepath.IsAbs(dir):
	case workdir == "":
		return nil, errNoWorkdir
	default:
		root = filepath.Join(workdir, dir)
	}
	found, err := listFolder(root, dir, last)
	if err != nil {
		return nil, err
	}
	if dir == "" && len(last) > 1 {
		found = appendNew(found, searchFolder(ctx, root, last))
	}
	return found[:min(len(found), slash.MaxCandidates)], nil
}

func listFolder(root, shown, prefix string) ([]string, error) {
	f, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	defer f.Close()
	entries, err := f.ReadDir(maxListed)
	if len(entries) == 0 && err != nil && !errors.Is(err, fs.ErrClosed) {
		return nil, nil // an empty folder ends with io.EOF
	}
	var found []string
	for _, e := range entries {
		if listable(e.Name(), prefix) && strings.HasPrefix(strings.ToLower(e.Name()), strings.ToLower(prefix)) {
			found = append(found, shown+e.Name()+slashOf(root, e))
		}
	}
	sortPaths(found)
	return found, nil
}

func searchFolder(ctx context.Context, root, part string) []string {
	var found []string
	part = strings.ToLower(part)
	seen := 0
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if seen++; seen > maxListed || ctx.Err() != nil || len(found) >= slash.MaxCandidates {
			return fs.SkipAll
		}
		if path == root {
			return nil
		}
		if err != nil || !listable(e.Name(), part) {
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		shown, err := filepath.Rel(root, path)
		if err == nil && strings.Contains(strings.ToLower(shown), part) {
			found = append(found, shown+slashOf(filepath.Dir(path), e))
		}
		return nil
	})
	sortPaths(found)
	return found
}

func listable(name, typed string) bool {
	return name != ".git" && (!strings.HasPrefix(name, ".") || strings.HasPrefix(typed, "."))
}

// slashOf follows links: a link to a folder completes as one.
func slashOf(dir string, e fs.DirEntry) string {
	if e.IsDir() {
		return "/"
	}
	if e.Type()&fs.ModeSymlink != 0 {
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.IsDir() {
			return "/"
		}
	}
	return ""
}

// sortPaths puts folders first, each kind by name.
func sortPaths(paths []string) {
	slices.SortFunc(paths, func(a, b string) int {
		folderA, folderB := strings.HasSuffix(a, "/"), strings.HasSuffix(b, "/")
		if folderA != folderB {
			if folderA {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
}

// appendNew appends what is not among them yet.
func appendNew(have, more []string) []string {
	for _, path := range more {
		if !slices.Contains(have, path) {
			have = append(have, path)
		}
	}
	return have
}

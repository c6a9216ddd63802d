package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxNamed is how many files or commits a refusal names.
const maxNamed = 5

// ErrNotLinked says that a folder is not a linked worktree's.
var ErrNotLinked = errors.New("is not a worktree that git worktree add has made")

// UnsavedError says what removing a worktree would lose.
type UnsavedError struct {
	Dir   string
	What  string   // what kind of thing, in words
	Names []string // files or commits, a few of them, the last may be "…"
}

func (e *UnsavedError) Error() string {
	return fmt.Sprintf("the worktree %s has %s: %s", e.Dir, e.What, strings.Join(e.Names, ", "))
}

// Check tells why Remove would refuse to remove a worktree: an error of
// ErrNotLinked, an *UnsavedError, or that of git.
func Check(ctx context.Context, dir string) error {
	_, err := check(ctx, dir)
	return err
}

func check(ctx context.Context, dir string) (link, error) {
	l, err := linkOf(dir)
	if err != nil {
		return l, fmt.Errorf("%s %w", dir, ErrNotLinked)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return l, err
	}
	top, err := in(Directly, dir).git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return l, err
	}
	if strings.TrimSuffix(top, "\n") != real { // its repository says that it is another folder's
		return l, fmt.Errorf("%s %w: git says %q", dir, ErrNotLinked, strings.TrimSuffix(top, "\n"))
	}
	if err := uncommitted(ctx, dir); err != nil {
		return l, err
	}
	return l, unshared(ctx, dir)
}

// uncommitted fails for what a commit would have, ignored files aside.
func uncommitted(ctx context.Context, dir string) error {
	out, err := in(Directly, dir).git(ctx, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=none")
	if err != nil {
		return err
	}
	return unsaved(dir, "changes that are not committed", strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), func(entry string) string {
		return fmt.Sprintf("%.200q", entry[min(len(entry), len("XY ")):])
	})
}

// unshared fails for commits that only the worktree's own branch has.
func unshared(ctx context.Context, dir string) error {
	args := []string{"rev-list", "--oneline", fmt.Sprint("--max-count=", maxNamed+1), "HEAD", "--not"}
	branch, err := in(Directly, dir).git(ctx, "symbolic-ref", "--quiet", "HEAD")
	if err == nil { // a name has none of *, ? and [
		args = append(args, "--exclude="+strings.TrimPrefix(strings.TrimSpace(branch), "refs/heads/"))
	}
	out, err := in(Directly, dir).git(ctx, append(args, "--branches", "--remotes")...)
	if err != nil {
		return err
	}
	return unsaved(dir, "commits that no other branch and no remote has", strings.Split(strings.TrimSuffix(out, "\n"), "\n"), func(commit string) string {
		return fmt.Sprintf("%.100s", commit)
	})
}

func unsaved(dir, what string, found []string, name func(string) string) error {
	if len(found) == 1 && found[0] == "" {
		return nil
	}
	e := &UnsavedError{Dir: dir, What: what}
	for _, f := range found[:min(len(found), maxNamed)] {
		e.Names = append(e.Names, name(f))
	}
	if len(found) > maxNamed {
		e.Names = append(e.Names, "…")
	}
	return e
}

// Remove removes a worktree, and its branch not, where Check finds nothing that
// would be lost; git looks again itself. It blocks until all files are gone. The
// folders above it that are empty then go, too, up to home.
func Remove(ctx context.Context, dir, home string) error {
	l, err := check(ctx, dir)
	if err != nil {
		return err
	}
	if _, err := of(Directly, l.common).git(ctx, "worktree", "remove", "--", dir); err != nil {
		return err
	}
	for _, top := range []string{home, resolved(home)} {
		removeEmpty(filepath.Dir(dir), top)
	}
	return nil
}

func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// maxPlaces is how many folders Forget looks for the repository from.
const maxPlaces = 50

// Forget removes what a repository still knows of a worktree whose folder is
// gone; its branch stays. The repository is one that a folder of places is in;
// known is false where none of them knows the worktree. The empty folders above
// it go, too, up to home. It blocks until git has ended.
func Forget(ctx context.Context, dir, home string, places []string) (known bool, err error) {
	for _, place := range places[:min(len(places), maxPlaces)] {
		common, err := repository(ctx, Directly, place)
		if err != nil || !slices.Contains(linked(common), dir) {
			continue
		}
		if _, err := of(Directly, common).git(ctx, "worktree", "remove", "--", dir); err != nil {
			return true, err
		}
		for _, top := range []string{home, resolved(home)} {
			removeEmpty(filepath.Dir(dir), top)
		}
		return true, nil
	}
	return false, nil
}

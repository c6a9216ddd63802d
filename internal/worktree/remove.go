package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// check fails for what removing a worktree would lose: with ErrNotLinked, an *UnsavedError,
// or what git says. It reads every file of the worktree, and returns a place whose git runs
// nothing of the repository's, for which it makes the folder own.
func check(ctx context.Context, dir, home, own string) (l link, at place, err error) {
	if l, err = linkOf(dir); err != nil {
		return l, at, fmt.Errorf("%s %w", dir, ErrNotLinked)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return l, at, err
	}
	top, err := in(Directly, dir).git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return l, at, err
	}
	if strings.TrimSuffix(top, "\n") != real { // its repository says that it is another folder's
		return l, at, fmt.Errorf("%s %w: git says %q", dir, ErrNotLinked, strings.TrimSuffix(top, "\n"))
	}
	if err := repositoriesIn(ctx, dir); err != nil { // first: git would look into them with their own configuration
		return l, at, err
	}
	if at, err = checkoutPlace(real, l.gitDir).inert(ctx, l.common, own); err != nil {
		return l, at, err
	}
	at.config = append(slices.Clip(at.config), "-c", "core.fileMode=true")
	for _, find := range []func(context.Context, place, string) error{uncommitted, hidden} {
		if err := find(ctx, at, dir); err != nil {
			return l, at, err
		}
	}
	if err := unshared(ctx, at, dir, home); err != nil {
		return l, at, err
	}
	return l, at, unended(l.gitDir, dir)
}

// repositoriesIn fails for repositories in the worktree, submodules too: what they have is
// for people to look at. Ignored ones count.
func repositoriesIn(ctx context.Context, dir string) error {
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if d.Name() != ".git" || filepath.Dir(path) == dir {
			return nil
		}
		if found = append(found, path); len(found) > maxNamed {
			return fs.SkipAll
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	return unsaved(dir, "repositories of their own, which may have what is nowhere else", found, func(path string) string {
		rel, _ := filepath.Rel(dir, filepath.Dir(path))
		return fmt.Sprintf("%.200q", rel)
	})
}

// uncommitted fails for what a commit would have, ignored files aside.
func uncommitted(ctx context.Context, at place, dir string) error {
	out, err := at.git(ctx, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all",
		"--ignore-submodules=dirty")
	if err != nil {
		return err
	}
	return unsaved(dir, "changes that are not committed", strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"),
		func(entry string) string {
			return fmt.Sprintf("%.200q", entry[min(len(entry), len("XY ")):])
		})
}

// hidden fails for files that differ from the commit, whatever git's index says of them:
// it may have been told to assume that they are unchanged, or to skip them, or knows the
// size and the times of a file that somebody gave these back. So each is read, for an
// index of its own.
func hidden(ctx context.Context, at place, dir string) error {
	at.env = append(slices.Clip(at.env), "GIT_INDEX_FILE="+at.common+"-index")
	at.config = append(slices.Clip(at.config), "-c", "core.sparseCheckout=false", "-c", "core.ignoreStat=false")
	_, err := at.git(ctx, "read-tree", "HEAD")
	if err == nil {
		_, err = at.git(ctx, "update-index", "-q", "--really-refresh")
	}
	var out string
	if err == nil { // what is missing is not lost
		out, err = at.git(ctx, "diff-files", "--name-only", "-z", "--diff-filter=d", "--ignore-submodules=dirty")
	}
	if err != nil {
		return err
	}
	return unsaved(dir, "files that are not as committed, though git status does not show it, or a filter of the "+
		"repository's own would have to be run to see",
		strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), func(name string) string {
			return fmt.Sprintf("%.200q", name)
		})
}

// underWay are the names that git gives, in a worktree's own part of the repository, to
// what it has begun and not ended. Some of it is nowhere else, as what a rebase has stashed.
var underWay = []string{
	"rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "MERGE_AUTOSTASH",
	"CHERRY_PICK_HEAD", "REVERT_HEAD",
}

// unended fails for a rebase, a merge and the like that has not ended.
func unended(gitDir, dir string) error {
	var found []string
	for _, name := range underWay {
		if _, err := os.Lstat(filepath.Join(gitDir, name)); err == nil {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return unsaved(dir, "a rebase, merge or the like that has not ended", found, func(name string) string { return name })
}

// unshared fails for commits that only the worktree's own branch has, and that were not landed.
func unshared(ctx context.Context, at place, dir, home string) error {
	// those refs go with it
	args := []string{
		"rev-list", "--oneline", fmt.Sprint("--max-count=", maxNamed+1), "HEAD", "--glob=refs/worktree",
		"--not",
	}
	branch, err := at.git(ctx, "symbolic-ref", "--quiet", "HEAD")
	if err == nil { // a name has none of *, ? and [
		args = append(args, "--exclude="+strings.TrimPrefix(strings.TrimSpace(branch), "refs/heads/"))
	}
	args = append(args, "--branches", "--remotes")
	known, err := readRecord(home, dir)
	if err != nil {
		return err
	}
	if last := known.Landed; last != nil {
		if _, err := at.git(ctx, "merge-base", "--is-ancestor", last.As, "refs/heads/"+last.Into); err == nil {
			args = append(args, last.Commit)
		}
	}
	out, err := at.git(ctx, args...)
	if err != nil {
		return err
	}
	return unsaved(dir, "commits that no other branch and no remote has", strings.Split(strings.TrimSuffix(out, "\n"),
		"\n"), func(commit string) string {
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
	state := stateFolder(home, dir)
	err := withFolder(home, dir, func(own string) error {
		l, at, err := check(ctx, dir, home, filepath.Join(own, "git"))
		if err != nil {
			return err
		}
		return remove(ctx, l, at, dir, filepath.Join(own, "index"))
	})
	if err != nil {
		return err
	}
	for _, top := range []string{home, resolved(home)} {
		removeEmpty(filepath.Dir(dir), top)
	}
	return os.RemoveAll(state)
}

// remove has git remove what was checked. git asks for the state of submodules once more,
// with the configuration that these have: its index is a copy without any.
func remove(ctx context.Context, l link, at place, dir, index string) error {
	if err := copyIndex(l.gitDir, index); err != nil {
		return err
	}
	at.env = append(slices.Clip(at.env), "GIT_INDEX_FILE="+index)
	err := at.each(ctx, nil, func(entry string) error {
		if strings.HasPrefix(entry, gitlink) {
			return errors.New("git removes no worktree with submodules: git worktree remove --force does, if nothing in " +
				"them is needed")
		}
		return nil
	}, "ls-files", "--stage", "-z")
	if err != nil {
		return err
	}
	at.at = of(Directly, l.common).at
	return at.forget(ctx, l.common, dir)
}

func (p place) forget(ctx context.Context, common, dir string) error {
	_, err := p.git(ctx, "worktree", "remove", "--", dir)
	if err == nil { // git does so itself, but not through a link
		_ = os.Remove(filepath.Join(common, "worktrees"))
	}
	return err
}

// withFolder hands over a folder of our own, which no session can write, and removes it.
func withFolder(home, dir string, do func(own string) error) error {
	state := stateFolder(home, dir)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	own, err := os.MkdirTemp(state, "git-")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(os.RemoveAll(own), os.Remove(state)) }() // the latter if it is empty
	return do(own)
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
		err = withFolder(home, dir, func(own string) error {
			at, err := of(Directly, common).inert(ctx, common, filepath.Join(own, "git"))
			if err != nil {
				return err
			}
			return at.forget(ctx, common, dir)
		})
		if err != nil {
			return true, err
		}
		for _, top := range []string{home, resolved(home)} {
			removeEmpty(filepath.Dir(dir), top)
		}
		return true, forgetRecord(home, dir)
	}
	return false, nil
}

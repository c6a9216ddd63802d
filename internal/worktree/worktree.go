// Package worktree makes git worktrees for sessions, describes and removes
// them, and lands what was done there on another branch.
//
// Concurrency: its functions may be called from any number of goroutines. Two
// that add to one repository, or remove one worktree, are kept apart by git; one
// landing at a time goes on for a user.
//
// It refuses to lose anything: what is not committed, or is on no other branch,
// stays. It refuses to run programs that somebody left in a repository, hooks
// and fsmonitor, as sessions may write there. To make a worktree filters run, as without
// them a checkout is wrong: the Runner decides what they may do. To remove one, or to land,
// none of the repository's own does.
package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/gitfile"
)

// Of says of which repository a folder is a linked worktree, and which branch is
// checked out there, "" if none is. ok is false for every other folder: a main
// checkout, one within a worktree, one that the repository does not know. It
// runs nothing. The names are as they were given, control characters and all.
func Of(dir string) (repo, branch string, ok bool) {
	l, err := linkOf(dir)
	if err != nil {
		return "", "", false
	}
	if _, branch, err = gitfile.Head(l.gitDir); err != nil {
		return "", "", false
	}
	return repositoryName(l.common), branch, true
}

// Below tells whether a folder is below home, where worktrees of sessions are made.
func Below(dir, home string) bool {
	for _, top := range []string{home, resolved(home)} {
		if rel, err := filepath.Rel(top, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			return true
		}
	}
	return false
}

// link is what connects a worktree with its repository.
type link struct {
	gitDir string // the worktree's own part of the repository
	common string // the repository's git folder
}

func linkOf(dir string) (link, error) {
	gitDir, err := gitfile.Target(filepath.Join(dir, ".git"))
	if err != nil {
		return link{}, err
	}
	l := link{gitDir: gitDir}
	common, err := gitfile.Line(filepath.Join(l.gitDir, "commondir")) // a submodule has none
	if err != nil {
		return link{}, err
	}
	l.common = gitfile.Join(l.gitDir, common)
	back, err := gitfile.Line(filepath.Join(l.gitDir, "gitdir"))
	if err != nil {
		return link{}, err
	}
	if filepath.Dir(l.gitDir) != filepath.Join(l.common, "worktrees") ||
		!same(gitfile.Join(l.gitDir, back), filepath.Join(dir, ".git")) {
		return link{}, fmt.Errorf("%s does not belong to %s", l.gitDir, dir)
	}
	return l, nil
}

// same tells whether two names are one file's.
func same(x, y string) bool {
	a, err := os.Stat(x)
	if err != nil {
		return false
	}
	b, err := os.Stat(y)
	return err == nil && os.SameFile(a, b)
}

// repositoryName is what people call the repository of a git folder.
func repositoryName(common string) string {
	if filepath.Base(common) == ".git" {
		return filepath.Base(filepath.Dir(common))
	}
	return strings.TrimSuffix(filepath.Base(common), ".git")
}

// linked lists the folders that a repository has worktrees in, whether they are
// there or not.
func linked(common string) []string {
	const most = 10_000
	entries, _ := os.ReadDir(filepath.Join(common, "worktrees"))
	var dirs []string
	for _, e := range entries[:min(len(entries), most)] {
		own := filepath.Join(common, "worktrees", e.Name())
		if pointer, err := gitfile.Line(filepath.Join(own, "gitdir")); err == nil {
			dirs = append(dirs, filepath.Dir(gitfile.Join(own, pointer)))
		}
	}
	return dirs
}

// Main is the main checkout of the worktree's repository, "" if it has none.
func (t Tree) Main() string {
	if filepath.Base(t.common) != ".git" {
		return ""
	}
	return filepath.Dir(t.common)
}

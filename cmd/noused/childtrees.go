package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"noused/internal/worktree"
)

// childTrees makes the worktrees of child sessions, where those of people's sessions are.
type childTrees struct {
	git  worktree.Runner
	home string
}

func (c childTrees) Make(ctx context.Context, workdir, title string) (string, error) {
	run := c.git
	if top := c.top(workdir); top != "" {
		run = func(ctx context.Context, git worktree.Command, out io.Writer) error {
			git.Read = append(git.Read, top)
			return c.git(ctx, git, out)
		}
	}
	t, err := worktree.Add(ctx, run, workdir, c.home, "", title)
	return t.Dir, err
}

// top is the top of the worktree that a session is in, "" for one that is elsewhere: worktrees are hidden from
// other sessions.
func (c childTrees) top(workdir string) string {
	for dir := workdir; worktree.Below(dir, c.home); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
	}
	return ""
}

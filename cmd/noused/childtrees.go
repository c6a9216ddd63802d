package main

import (
	"context"

	"noused/internal/worktree"
)

// childTrees makes the worktrees of child sessions, where those of people's sessions are.
type childTrees struct {
	git  worktree.Runner
	home string
}

func (c childTrees) Make(ctx context.Context, workdir, title string) (string, error) {
	t, err := worktree.Add(ctx, c.git, workdir, c.home, "", title)
	return t.Dir, err
}

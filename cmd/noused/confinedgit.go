package main

import (
	"context"
	"io"
	"os"
	"slices"

	"noused/internal/proc"
	"noused/internal/tool/registry"
	"noused/internal/trust"
	"noused/internal/worktree"
)

// maxSaid is how much of what git says is kept, in bytes.
const maxSaid = 64 << 10

// confinedGit runs git in the sandbox of tools, where it may write only to the folders that
// the command needs. Sessions can write to their repositories, and so can say what git
// executes there (hooks, filters).
func confinedGit(tools *registry.Registry) worktree.Runner {
	return func(ctx context.Context, c worktree.Command, out io.Writer) error {
		box := proc.Sandbox{Name: "git", Workdir: os.DevNull, Read: c.Read}
		if len(c.Write) > 0 {
			box.Workdir, box.Write, box.Fixed = c.Write[0], c.Write[1:], c.Write[:1]
		}
		// It may write where the session whose folder is in PATH may not.
		env := append(slices.Clip(c.Env), "PATH="+trust.Path(os.Getenv("PATH")))
		p, err := tools.StartConfined(ctx, box, proc.Command{Name: "git", Path: c.Path, Args: c.Args, Dir: "/", Env: env})
		if err != nil {
			return err
		}
		if len(c.In) > 0 {
			_ = p.Send(c.In) // nothing else is in the queue
		}
		p.CloseInput()
		_, _ = io.Copy(out, p) // of what a killed one has printed, nothing is used
		if exit := p.Wait(); !exit.OK() {
			return &worktree.Exit{How: exit.String(), Said: p.Stderr(maxSaid)}
		}
		return nil
	}
}

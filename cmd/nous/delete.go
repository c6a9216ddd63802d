package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

// deleteCommand goes on after a session that cannot be deleted, as rm does.
func (a *app) deleteCommand() *cobra.Command {
	var tree, children bool
	cmd := &cobra.Command{
		Use:     "delete SESSION…",
		Aliases: []string{"rm"},
		Short:   "Delete sessions for good, without asking, and print their ids",
		Long: `Delete sessions for good, without asking, and print their ids. SESSION is an id,
the beginning of one, or a whole title. A session that runs is not deleted. The
branches of a session are sessions of their own and stay. When the active session
is deleted, the newest of the others becomes that.
A session with child sessions is deleted with --children, and they with it, the
children first. Worktrees stay, and are named.

With --worktree the folder of a session goes, too, where it is a git worktree,
and the branch stays. That is refused while something there is not committed,
ignored files aside, while a commit is on no other branch and no remote, while
another session has a folder there, and for a main checkout. With --children, too,
each worktree goes where nothing is lost; where something would be, the session
that has it stays, and so do those above it.`,
		Example: `  nous delete ses-0198c5f2
  nous delete --worktree ses-0198c5f2
  nous delete --children --worktree ses-0198c5f2`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !cmd.Flags().Changed("session"):
				return cmdline.Wants(1, -1, "SESSION, the id of a session")(cmd, args)
			case len(args) > 0:
				return cmdline.Errorf("%s takes --session or names sessions, not both", cmdline.Name(cmd))
			}
			return nil
		},
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if tree {
				if done, err := a.doneThere(cmd, args); done {
					return err
				}
			}
			if len(args) == 0 {
				args = []string{a.session}
			}
			var failed error
			for _, name := range args {
				for err := range a.deleteSession(cmd.Context(), name, tree, children) {
					var gone *client.NoDaemonError
					if errors.As(err, &gone) || errors.Is(err, client.ErrLost) {
						return err
					}
					failed = &quietExit{a.report(cmd, err)}
				}
			}
			return failed
		},
	}
	cmd.Flags().BoolVar(&children, "children", false, "delete its child sessions, too")
	cmd.Flags().BoolVar(&tree, "worktree", false, "remove the session's git worktree, too, if nothing is lost")
	return cmd
}

// deleteSession yields what could not be deleted: why, for each.
func (a *app) deleteSession(ctx context.Context, name string, tree, children bool) iter.Seq[error] {
	return func(yield func(error) bool) {
		id, err := lookup.SessionToDelete(ctx, a.daemonSender(), name)
		switch {
		case err != nil:
		case children:
			a.deleteFamily(ctx, id, tree, yield)
			return
		case tree:
			err = a.deleteInWorktree(ctx, id)
		default:
			err = a.deleteAlone(ctx, id)
		}
		if err != nil {
			yield(err)
		}
	}
}

// deleteFamily deletes a session with its children, and theirs, each after those below it. One that
// cannot be deleted stays, and so do those above it, as a folder that is not empty.
func (a *app) deleteFamily(ctx context.Context, id string, tree bool, yield func(error) bool) {
	all, err := lookup.Sessions(ctx, a.daemonSender(), "")
	if err != nil {
		yield(err)
		return
	}
	at := slices.IndexFunc(all, func(s protocol.SessionInfo) bool { return s.SessionID == id })
	if at < 0 { // as a daemon has it that lists no sessions, or a journal that cannot be read
		gone := func() error { return a.deleteNow(ctx, id, true) }
		if tree {
			gone = func() error { return a.deleteInWorktree(ctx, id) } // refuses a session whose folder it does not know
		}
		if err := gone(); err != nil {
			yield(err)
		}
		return
	}
	family := plain.WithChildren(all[at:at+1], all)
	for _, s := range family {
		if s.RunState != protocol.StateIdle {
			yield(errRuns(s.SessionID))
			return
		}
	}
	above := map[string]string{} // those that stay, and for which session below
	for _, s := range slices.Backward(family) {
		var err error
		if below := above[s.SessionID]; below != "" {
			err = fmt.Errorf("%s stays, as its child session %s does", s.SessionID, below)
		} else {
			err = a.deleteChild(ctx, s, all, tree)
		}
		if err == nil {
			all = slices.DeleteFunc(all, func(o protocol.SessionInfo) bool { return o.SessionID == s.SessionID })
			continue
		}
		if s.Parent != nil {
			above[s.Parent.SessionID] = s.SessionID
		}
		if !yield(err) {
			return
		}
	}
}

// deleteChild deletes one session of a family, with its worktree if that is wanted and no other session is there.
func (a *app) deleteChild(ctx context.Context, s protocol.SessionInfo, all []protocol.SessionInfo, tree bool) error {
	stays, linked := a.staying(s, all)
	if linked && tree {
		return a.deleteInWorktree(ctx, s.SessionID)
	}
	return a.deleteAndSay(ctx, s.SessionID, true, stays)
}

// deleteAlone deletes a session that has no children.
func (a *app) deleteAlone(ctx context.Context, id string) error {
	stays := ""
	all, _ := lookup.Sessions(ctx, a.daemonSender(), "") // the deletion says what is wrong
	for _, s := range all {
		if s.SessionID == id {
			stays, _ = a.staying(s, all)
		}
	}
	return a.deleteAndSay(ctx, id, false, stays)
}

func (a *app) deleteAndSay(ctx context.Context, id string, children bool, stays string) error {
	err := a.deleteNow(ctx, id, children)
	if err == nil && stays != "" {
		a.Notef("%s", stays)
	}
	return err
}

// staying says that the folder of a session stays, where one was made for it that no other session has, and whether
// that is a worktree still.
func (a *app) staying(s protocol.SessionInfo, all []protocol.SessionInfo) (text string, linked bool) {
	shared := slices.ContainsFunc(all, func(o protocol.SessionInfo) bool {
		return o.SessionID != s.SessionID && o.Workdir == s.Workdir
	})
	_, branch, linked := worktree.Of(s.Workdir)
	switch {
	case shared || a.far != nil:
		return "", false
	case linked:
		return fmt.Sprintf("the worktree %s stays, with its branch %s", s.Workdir, branch), true
	case s.Parent != nil && worktree.Below(s.Workdir, worktree.Home(os.Getenv)):
		return fmt.Sprintf("the folder %s stays: it is no worktree any more", s.Workdir), false
	}
	return "", false
}

func (a *app) deleteNow(ctx context.Context, id string, children bool) error {
	del := func(c client.Sender) (protocol.SessionDeleted, error) { return actions.Delete(ctx, c, id, children) }
	_, err := act(a, del, func(r protocol.SessionDeleted) { a.Println(r.SessionID) })
	return err
}

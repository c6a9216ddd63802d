package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

func (a *app) sessionsCommand() *cobra.Command {
	var (
		limit  int
		before string
		all    bool
		watch  bool
		tree   bool
	)
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of this folder, those that need you first",
		Long: `List the sessions whose folder is the current one: those that need you first,
then those that work, then those with something unread, then the others; of
each kind those that changed last first. --all lists those of all folders, folder by folder.
Child sessions are counted with their parent; those that wait for you are listed, and
--tree lists all below their parents.

--watch goes on until Ctrl-C and shows what changes: the table on a terminal, and
in a pipe a line for each change. With --json a line is the session as the daemon
tells it, with "deleted":true when it is no more. Sessions that are made or
deleted show within five seconds, all else at once. Of several hosts it shows what
nous fleet watch does.`,
		Example: `  nous sessions --all
  nous sessions --watch --all
  nous sessions --json`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := protocol.ListSessionsParams{Before: before}
			if cmd.Flags().Changed("limit") {
				p.Limit = &limit
			}
			a.tree = tree
			return a.listSessions(cmd.Context(), p, all, watch)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on and show what changes")
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most `n`")
	cmd.Flags().StringVar(&before, "before", "", "list only sessions made before the one with this `id`")
	cmd.Flags().BoolVar(&all, "all", false, "list the sessions of all folders")
	cmd.Flags().BoolVar(&tree, "tree", false, "list child sessions below their parents")
	remove := a.deleteCommand()
	remove.Use, remove.Aliases = "rm SESSION…", nil
	cmd.AddCommand(remove)
	return cmd
}

// listSessions prints sessions. A core that has no folders lists all it has.
func (a *app) listSessions(ctx context.Context, p protocol.ListSessionsParams, all, watch bool) error {
	switch {
	case a.several() && watch && p.Limit != nil:
		return cmdline.Errorf("--limit with --watch is of one host: give %s once", a.hostFlag())
	case a.several() && p.Before != "":
		return cmdline.Errorf("--before is of one host: give %s once", a.hostFlag())
	case a.several() && watch:
		return a.watchHosts(ctx, all)
	case a.several():
		return a.sessionsOfHosts(ctx, p, all)
	}
	if !all {
		dir, err := a.folder()
		if err != nil {
			return err
		}
		p.Workdir, all = dir, dir == ""
	}
	if watch {
		return a.watchSessions(ctx, p, all)
	}
	here := !all && !a.JSON
	var everywhere []protocol.SessionInfo
	if here {
		var err error
		if everywhere, err = lookup.Sessions(ctx, a.daemonSender(), ""); err != nil {
			return err
		}
	}
	var shown []protocol.SessionInfo
	_, err := fetch(ctx, a, protocol.ListSessions, p, func(r protocol.Sessions) {
		shown = plain.WithChildren(r.Sessions, everywhere)
		a.printSessions(shown, r.ActiveSessionID, all)
	})
	if err == nil && here {
		a.noteElsewhere(shown, everywhere)
	}
	return err
}

// noteElsewhere says that other folders than that of the list have sessions.
func (a *app) noteElsewhere(here, everywhere []protocol.SessionInfo) {
	others := 0
	for _, s := range everywhere {
		if slices.ContainsFunc(here, func(h protocol.SessionInfo) bool { return h.SessionID == s.SessionID }) {
			continue
		}
		if !s.Blank() && (len(here) == 0 || s.Workdir != here[0].Workdir) {
			others++
		}
	}
	some := slices.ContainsFunc(here, func(s protocol.SessionInfo) bool { return !s.Blank() })
	switch {
	case others > 0 && some:
		a.Notef("%d more in other folders: nous sessions --all", others)
	case others > 0:
		a.Notef("no session has this folder; %d in other folders: nous sessions --all", others)
	case !some:
		a.Notef("no session has this folder")
	}
}

// printSessions prints a list of sessions.
func (a *app) printSessions(list []protocol.SessionInfo, active string, all bool) {
	for _, line := range a.sessionTable(list, active, all) {
		a.Spans(line)
	}
}

func (a *app) newCommand() *cobra.Command {
	var activate bool
	var branch, agent string
	cmd := &cobra.Command{
		Use:   "new [TITLE…]",
		Short: "Make a session in the current folder, and print its id",
		Long: `Make a session in the current folder, and print its id. It is what nous means in
this folder from now on; the daemon's active session stays the one it is,
unless --switch says otherwise. On another machine where no folder is named, nous means
the active session, and the new one is that.

With --worktree the session gets a git worktree of its own, of the repository
that the current folder is in, under $XDG_DATA_HOME/noused/worktrees: go there, or
name the session, for the commands that follow. A branch
that does not exist is made from HEAD; without BRANCH it is named after TITLE.
The repository's hooks are not run.`,
		Example: `  nous new
  nous new --switch fix the parser
  nous new --worktree=parser fix the parser
  nous new --agent opencode`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := protocol.NewSessionParams{Title: strings.Join(args, " "), Activate: &activate, Agent: agent}
			if cmd.Flags().Changed("worktree") {
				if branch == "" {
					return cmdline.Errorf("--worktree wants the name of a branch, or nothing at all")
				}
				if done, err := a.doneThere(cmd, args); done {
					return err
				}
				return a.newInWorktree(cmd.Context(), branch, p)
			}
			dir, err := a.folder()
			if err != nil {
				return err
			}
			p.Workdir = dir
			activate = activate || a.nowhere(dir)
			return query(cmd.Context(), a, protocol.NewSession, p, a.printSession)
		},
	}
	switchFlag(cmd, &activate)
	a.agentFlag(cmd, &agent)
	cmd.Flags().StringVar(&branch, "worktree", "", "in a new git worktree, on this `branch`")
	cmd.Flags().Lookup("worktree").NoOptDefVal = noBranch
	return cmd
}

func switchFlag(cmd *cobra.Command, activate *bool) {
	cmd.Flags().BoolVar(activate, "switch", false, "make it the daemon's active session, too")
}

func (a *app) printSession(r protocol.Session) { a.Println(r.SessionID) }

func (a *app) switchCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "switch SESSION",
		Short:             "Make a session the daemon's active one",
		Example:           "  nous switch ses-0198c5f2",
		Args:              cmdline.Wants(1, 1, "SESSION, the id of a session"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := lookup.SessionID(cmd.Context(), a.daemonSender(), args[0])
			if err != nil {
				return err
			}
			_, err = act(a, func(c client.Sender) (protocol.Session, error) { return actions.Switch(cmd.Context(), c, id) },
				a.printSession)
			return err
		},
	}
}

func (a *app) branchCommand() *cobra.Command {
	var (
		leaf     string
		activate bool
	)
	cmd := &cobra.Command{
		Use:               "branch [SESSION]",
		Short:             "Copy a session up to its leaf into a new one, and print the new id",
		Example:           "  nous branch ses-0198c5f2",
		Args:              cmdline.Wants(0, 1, "SESSION, the id of a session, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scopeOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			if scope.SessionID == "" {
				state, err := request(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{})
				if err != nil {
					return err
				}
				scope.SessionID = state.SessionID
			}
			_, err = act(a, func(c client.Sender) (protocol.Branch, error) {
				return actions.Branch(cmd.Context(), c, scope.SessionID, leaf, activate)
			}, func(r protocol.Branch) { a.Println(r.SessionID) })
			return err
		},
	}
	cmd.Flags().StringVar(&leaf, "leaf", "", "branch at the entry with this `id`")
	switchFlag(cmd, &activate)
	return cmd
}

// scopeOf is the session that an argument names, or that the command means
// without one.
func (a *app) scopeOf(ctx context.Context, args []string) (protocol.Scope, error) {
	if len(args) > 0 {
		err := a.findNamed(ctx, args[0], false)
		a.found = err == nil
		return protocol.Scope{SessionID: a.session}, err
	}
	return a.scope(ctx, needOne)
}

func (a *app) renameCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rename TITLE…",
		Short:   "Give a session another title",
		Example: "  nous rename fix the parser",
		Args:    cmdline.Wants(1, -1, "TITLE, one line of at most 200 characters"),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			_, err = act(a, func(c client.Sender) (protocol.TitleAccepted, error) {
				return actions.Rename(cmd.Context(), c, scope, strings.Join(args, " "))
			}, func(r protocol.TitleAccepted) { a.Println(r.Title) })
			return err
		},
	}
}

func (a *app) setLeafCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "set-leaf ENTRY",
		Short:   "Go back to an earlier message",
		Example: "  nous set-leaf 0198c5f2",
		Args:    cmdline.Wants(1, 1, "ENTRY, the id of an entry; nous tree shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			_, err = act(a, func(c client.Sender) (protocol.Leaf, error) {
				return actions.SetLeaf(cmd.Context(), c, scope, args[0])
			}, func(r protocol.Leaf) { a.Println(r.LeafID) })
			return err
		},
	}
}

func (a *app) treeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tree",
		Short: "Draw a session's entries as a tree, with the leaf marked",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			_, err = act(a, func(c client.Sender) (protocol.Tree, error) {
				return actions.ReadTree(cmd.Context(), c, scope)
			}, a.printTree)
			return err
		},
	}
}

// printTree draws a tree, with the leaf marked.
func (a *app) printTree(r protocol.Tree) {
	var rows [][]string
	leaf := -1
	for i, row := range plain.TreeRows(r) {
		mark := ""
		if row.Leaf {
			mark, leaf = "*", i
		}
		rows = append(rows, []string{mark, row.ID, strings.Repeat("  ", row.Depth) + row.Role + ": " +
			format.Unmarked(plain.OneLine(row.Snippet, 80))})
	}
	for i, line := range plain.Table(rows) {
		look := ""
		if i == leaf {
			look = plain.Bold
		}
		a.Spans(plain.Span{Text: line, Look: look})
	}
}

// sessionTable is a list of sessions as a person sees it, those that need
// somebody first; of all folders one table for each, with the folder above it. A
// folder that is a worktree is shown as one.
func (a *app) sessionTable(list []protocol.SessionInfo, active string, all bool) (lines []plain.Span) {
	list = slices.DeleteFunc(slices.Clone(list), protocol.SessionInfo.Blank)
	slices.SortFunc(list, protocol.ByNeed)
	list = plain.Families(list, a.tree)
	now := time.Now()
	width, _ := plain.SizeOf(a.out.W)
	folders := plain.Folders(list)
	if len(folders) == 0 || folders[0] == "" { // it has none
		return plain.SessionLines(list, active, now, width)
	}
	for _, folder := range folders {
		if len(lines) > 0 {
			lines = append(lines, plain.Span{})
		}
		repo, branch, linked := a.worktreeOf(folder)
		switch {
		case a.gone(folder):
			lines = append(lines, plain.Span{Text: a.folderText(folder), Look: plain.Bold})
		case linked:
			lines = append(lines, plain.Span{
				Text: plain.OneLine(folder, 4096) + "  worktree of " + plain.Worktree(repo, branch), Look: plain.Bold,
			})
		case all:
			lines = append(lines, plain.Span{Text: plain.OneLine(folder, 4096), Look: plain.Bold})
		}
		of := slices.DeleteFunc(slices.Clone(list), func(s protocol.SessionInfo) bool { return s.Workdir != folder })
		lines = append(lines, plain.SessionLines(of, active, now, width)...)
	}
	return lines
}

// folderGone tells whether a session's folder is no more. One that cannot be
// looked at may be there.
func folderGone(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// gone is folderGone of a folder of the daemon's machine, if that is this one.
func (a *app) gone(dir string) bool { return a.far == nil && folderGone(dir) }

// worktreeOf is worktree.Of of such a folder.
func (a *app) worktreeOf(dir string) (repo, branch string, ok bool) {
	if a.far != nil {
		return "", "", false
	}
	return worktree.Of(dir)
}

// folderText is a session's folder in a line, "" where it has none.
func (a *app) folderText(dir string) string {
	if dir != "" && a.gone(dir) {
		return plain.OneLine(dir, 4096) + " (gone)"
	}
	return plain.OneLine(dir, 4096)
}

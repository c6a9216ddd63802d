package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) sessionsCommand() *cobra.Command {
	var limit int
	var before string
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List sessions, newest first, with the active one marked",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := protocol.ListSessionsParams{Before: before}
			if cmd.Flags().Changed("limit") {
				p.Limit = &limit
			}
			return query(cmd.Context(), a, protocol.ListSessions, p, func(r protocol.Sessions) {
				a.printSessions(r.Sessions, a.activeSession(cmd.Context(), r))
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most `n`")
	cmd.Flags().StringVar(&before, "before", "", "list only sessions older than the one with this `id`")
	cmd.AddCommand(a.removeCommand())
	return cmd
}

// removeCommand goes on after a session that cannot be deleted, as rm does.
func (a *app) removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SESSION…",
		Short: "Delete sessions for good, without asking, and print their ids",
		Long: `Delete sessions for good, without asking, and print their ids. One that runs
is not deleted; branches of a session are sessions of their own and stay. When
the active session is deleted, the newest of the others becomes that.`,
		Example:           "  nous sessions rm ses-0198c5f2",
		Args:              cmdline.Wants(1, -1, "SESSION, the id of a session"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var failed error
			for _, id := range args {
				err := query(cmd.Context(), a, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: id}, func(r protocol.SessionDeleted) {
					a.println(r.SessionID)
				})
				var wire *protocol.Error
				if err != nil && !errors.As(err, &wire) {
					return err
				}
				if err != nil {
					failed = &quietExit{a.report(cmd, err)}
				}
			}
			return failed
		},
	}
}

// activeSession does not ask where there is none: asking makes one.
func (a *app) activeSession(ctx context.Context, r protocol.Sessions) string {
	if len(r.Sessions) == 0 {
		return ""
	}
	state, err := ask(ctx, a, protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		return ""
	}
	return state.SessionID
}

func (a *app) printSessions(list []protocol.SessionInfo, active string) {
	rows := make([][]string, len(list))
	for i, s := range list {
		mark := ""
		if s.SessionID == active {
			mark = "*"
		}
		rows[i] = []string{
			mark, s.SessionID, s.CreatedAt.Local().Format(time.DateTime), s.UpdatedAt.Local().Format(time.DateTime), strconv.Itoa(s.Messages),
			s.RunState, oneLine(s.Title, 60),
		}
	}
	a.printTable([]string{"", "SESSION", "CREATED", "UPDATED", "MESSAGES", "STATE", "TITLE"}, rows)
}

func (a *app) newCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new [TITLE…]",
		Short: "Make a session, make it the active one, and print its id",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := protocol.NewSessionParams{Title: strings.Join(args, " ")}
			return query(cmd.Context(), a, protocol.NewSession, p, a.printSession)
		},
	}
}

func (a *app) printSession(r protocol.Session) { a.println(r.SessionID) }

func (a *app) switchCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "switch SESSION",
		Short:             "Make a session the active one",
		Example:           "  nous switch ses-0198c5f2",
		Args:              cmdline.Wants(1, 1, "SESSION, the id of a session"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return query(cmd.Context(), a, protocol.SwitchSession, protocol.SwitchSessionParams{SessionID: args[0]}, a.printSession)
		},
	}
}

func (a *app) branchCommand() *cobra.Command {
	var leaf string
	cmd := &cobra.Command{
		Use:               "branch [SESSION]",
		Short:             "Copy a session up to its leaf into a new one, and print the new id",
		Example:           "  nous branch ses-0198c5f2",
		Args:              cmdline.Wants(0, 1, "SESSION, the id of a session, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := protocol.BranchSessionParams{SessionID: a.session, LeafID: leaf}
			if len(args) > 0 {
				p.SessionID = args[0]
			}
			if p.SessionID == "" {
				state, err := ask(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{})
				if err != nil {
					return err
				}
				p.SessionID = state.SessionID
			}
			if p.SessionID == "" || leaf != "" {
				if err := a.branchOfOlder(cmd.Context(), &p); err != nil {
					return err
				}
			}
			return query(cmd.Context(), a, protocol.BranchSession, p, func(r protocol.Branch) { a.println(r.SessionID) })
		},
	}
	cmd.Flags().StringVar(&leaf, "leaf", "", "branch at the entry with this `id`")
	return cmd
}

func (a *app) setLeafCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "set-leaf ENTRY",
		Short:   "Choose the entry that the next prompt continues from",
		Example: "  nous set-leaf 0198c5f2",
		Args:    cmdline.Wants(1, 1, "ENTRY, the id of an entry; nous tree shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := protocol.SetLeafParams{Scope: a.scope(), LeafID: args[0]}
			return query(cmd.Context(), a, protocol.SetLeaf, p, func(r protocol.Leaf) { a.println(r.LeafID) })
		},
	}
}

func (a *app) treeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tree",
		Short: "Draw a session's entries as a tree, with the leaf marked",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd.Context(), a, protocol.GetTree, protocol.GetTreeParams{Scope: a.scope()}, a.printTree)
		},
	}
}

// printTree indents where the tree branches, not at every entry: a long
// conversation without branches stays one column.
func (a *app) printTree(r protocol.Tree) {
	known := make(map[string]bool, len(r.Nodes))
	for _, n := range r.Nodes {
		known[n.ID] = true
	}
	children := make(map[string][]protocol.Node)
	for _, n := range r.Nodes {
		parent := n.ParentID
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], n)
	}
	type visit struct {
		node  protocol.Node
		depth int
	}
	var stack []visit
	push := func(parent string, depth int) {
		kids := children[parent]
		if parent != "" && len(kids) > 1 {
			depth++
		}
		for i := len(kids) - 1; i >= 0; i-- {
			stack = append(stack, visit{kids[i], depth})
		}
	}
	push("", 0)
	var rows [][]string
	var leafRow int
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		mark := ""
		if v.node.ID == r.LeafID {
			mark, leafRow = "*", len(rows)
		}
		rows = append(rows, []string{mark, v.node.ID, strings.Repeat("  ", v.depth) + v.node.Role + ": " + oneLine(v.node.Snippet, 80)})
		push(v.node.ID, v.depth)
	}
	for i, line := range table(rows) {
		look := ""
		if i == leafRow && rows[i][0] == "*" {
			look = asBold
		}
		a.printSpans(span{line, look})
	}
}

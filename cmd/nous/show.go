package main

import (
	"context"

	"github.com/spf13/cobra"

	"noused/internal/client/export"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) showCommand() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "show [RUN|MESSAGE|SESSION]",
		Short: "Show one run, one message or the facts of a session",
		Long: `Show one run, one message or the facts of a session, by its id or by a beginning
of the id that no other has. It is looked for in the 200 newest sessions, on all
their branches; with --session in that session only. A session may also be
called by its title. Without an argument it is the session that --session names,
or that of this folder.`,
		Example: `  nous show run-0198c5f2
  nous show --raw msg-0198c5f2`,
		Args:              cmdline.Wants(0, 1, "RUN, MESSAGE or SESSION, an id or the beginning of one, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.show(cmd.Context(), args[0], full)
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			if scope.SessionID == "" { // the active one
				state, err := request(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{})
				if err != nil {
					return err
				}
				scope.SessionID = state.SessionID
			}
			return a.show(cmd.Context(), scope.SessionID, full)
		},
	}
	a.rawFlag(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "print the tool calls and results of a run whole")
	return cmd
}

func (a *app) show(ctx context.Context, name string, full bool) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := lookup.Find(ctx, a.senderOver(c), name, a.session)
	switch {
	case err != nil:
		return err
	case found.Session != nil:
		var last *protocol.LastRun
		if !a.JSON && found.Session.LastStopReason == protocol.StopError { // only the state says why
			p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: found.Session.SessionID}}
			state, err := call(ctx, a, c, protocol.GetState, p)
			if err != nil {
				return err
			}
			last = state.LastRun
		}
		return a.printFacts(*found.Session, last)
	case found.Run != nil:
		if a.JSON {
			return a.Encoded(*found.Run)
		}
		p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: found.Run.SessionID}}
		state, err := call(ctx, a, c, protocol.GetState, p)
		if err != nil {
			return err
		}
		return a.Run(*found.Run, state, full)
	}
	return a.Whole(found.In, found.Entry)
}

// printFacts prints what list_sessions knows of a session. last is how its last run failed, if it did.
func (a *app) printFacts(s protocol.SessionInfo, last *protocol.LastRun) error {
	if a.JSON {
		return a.Encoded(s)
	}
	tree := ""
	if repo, branch, ok := a.worktreeOf(s.Workdir); ok {
		tree = plain.Worktree(repo, branch)
	}
	a.Pairs(plain.Facts(s, last, a.folderText(s.Workdir), tree))
	return nil
}

func (a *app) messagesCommand() *cobra.Command {
	var leaf string
	var full bool
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "Print a session's conversation, from its root to its leaf",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			p := protocol.GetMessagesParams{Scope: scope, LeafID: leaf, Whole: true}
			session, err := export.Messages(cmd.Context(), a.senderOver(c), a.Printer, p, full)
			if session != "" {
				a.seen(cmd.Context(), session)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&leaf, "leaf", "", "end at the entry with this `id`")
	a.rawFlag(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "print tool calls and results whole")
	return cmd
}

func (a *app) exportCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "export [SESSION]",
		Short: "Write a session's conversation as a document",
		Long: `Write a session's conversation, from its root to its leaf, to standard output.

  md    Markdown. A text with dangerous links or active HTML is put into a code
        block.
  html  One web page that needs no other file; images are in it. The Markdown
        of assistants is rendered, without HTML of theirs. It also has the
        session's tree and its other branches, and can be searched.
  json  What the daemon has, indented. --json prints it on one line.
  atif  A trajectory in the Agent Trajectory Interchange Format (ATIF-v1.4),
        for Harbor and others that evaluate agents.

Characters that could control a terminal are removed from md and html, and
escaped in json and atif.`,
		Example: `  nous export > talk.md
  nous export --format html ses-… > talk.html`,
		Args:              cmdline.Wants(0, 1, "SESSION, the id of a session, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			write := export.Writers[format]
			if write == nil {
				return cmdline.Errorf("--format %s: want md, json, html or atif", format)
			}
			if a.JSON && cmd.Flags().Changed("format") && format != "json" {
				return cmdline.Errorf("--json and --format %s exclude each other", format)
			}
			scope, err := a.scopeOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			doc, err := a.document(cmd.Context(), scope.SessionID, format)
			if err != nil {
				return err
			}
			if a.JSON {
				write = export.JSONLine
			}
			return write(a.out, doc)
		},
	}
	cmd.Flags().StringVar(&format, "format", "md", "the document's `format`: md, json, html or atif")
	completeWords(cmd, "format", "md", "json", "html", "atif")
	return cmd
}

// document reads a session over one connection.
func (a *app) document(ctx context.Context, session, format string) (*export.Document, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return export.Read(ctx, a.senderOver(c), session, format, a.far != nil)
}

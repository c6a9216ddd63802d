package main

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/tui"
)

// boardPages bounds how many sessions are printed: so many thousand.
const boardPages = 10

func (a *app) boardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "board",
		Short: "Show all sessions by what they need, and what they are doing",
		Long: `Show all sessions of the daemon on one screen, by what they need: those that
wait for you, those that work, those that are done and unread, the idle ones;
grouped by folder. Type to filter; Enter opens one, Tab says something to one.

With --host given again it has the sessions of all these hosts.

Where standard input or output is no terminal, nous prints them and ends.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !a.json && plain.IsTerminal(a.in) && plain.IsTerminal(a.out.w) && os.Getenv("TERM") != "dumb" {
				a.board = true
				return a.openTUI(cmd, false)
			}
			if a.several() {
				return a.printBoards(cmd.Context())
			}
			return a.printBoard(cmd.Context())
		},
	}
}

// printBoard prints all sessions, or what the daemon says of them.
func (a *app) printBoard(ctx context.Context) error {
	limit, last, all := 1000, "", []protocol.SessionInfo(nil)
	for range boardPages {
		p := protocol.ListSessionsParams{Limit: &limit, Before: last}
		r, err := fetch(ctx, a, protocol.ListSessions, p, func(protocol.Sessions) {})
		if err != nil {
			return err
		}
		all = append(all, r.Sessions...)
		if len(r.Sessions) < limit {
			break
		}
		last = r.Sessions[len(r.Sessions)-1].SessionID
	}
	if a.json {
		return nil // it has been printed
	}
	return tui.PrintBoard(a.out, all, "")
}

// printBoards is printBoard for several hosts.
func (a *app) printBoards(ctx context.Context) error {
	lists, failed := eachHost(ctx, a, func(ctx context.Context, _ *app, h hosts.Host) ([]hosts.Session, error) {
		return h.List(ctx, protocol.ListSessionsParams{Limit: new(1000)}, max(boardPages/len(a.hosts), 1), nil)
	})
	if a.json {
		a.printSessionLines(hosts.Sorted(lists))
		return failed
	}
	of := map[string][]protocol.SessionInfo{}
	for _, l := range lists {
		for _, s := range l.Value {
			of[s.Host] = append(of[s.Host], s.SessionInfo)
		}
	}
	return cmp.Or(tui.PrintBoards(a.out, of), failed)
}

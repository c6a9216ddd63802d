package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) searchCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "search TEXT…",
		Short: "Find a text in the messages of all sessions",
		Long: `Find a text in the messages and summaries of all sessions, on every branch of
them, the newest session first. Upper and lower case are the same. Exit status
1 says that nothing was found, as with grep.`,
		Example: `  nous search the lantern
  nous search --json --limit 1 lantern`,
		Args: cmdline.Wants(1, -1, "TEXT, what to look for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := checkText(strings.Join(args, " "))
			if err != nil {
				return err
			}
			p := protocol.SearchSessionsParams{Text: text}
			if cmd.Flags().Changed("limit") {
				p.Limit = &limit
			}
			r, err := fetch(cmd.Context(), a, protocol.SearchSessions, p, a.printMatches)
			if err == nil && len(r.Matches) == 0 {
				err = &quietExit{exitFailed}
			}
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "print at most `n` matches")
	return cmd
}

func (a *app) printMatches(r protocol.SearchResults) {
	if len(r.Matches) == 0 {
		return
	}
	rows := make([][]string, len(r.Matches))
	for i, m := range r.Matches {
		rows[i] = []string{
			m.SessionID, m.CreatedAt.Local().Format(time.DateTime), m.Role, plain.OneLine(m.Title, 30),
			plain.OneLine(m.Snippet, 160),
		}
	}
	a.printTable([]string{"SESSION", "TIME", "ROLE", "TITLE", "TEXT"}, rows)
	if r.Truncated {
		a.notef("there are more; --limit says how many to print")
	}
}

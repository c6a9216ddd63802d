package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

func (a *app) pruneCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete old data, by [retention]",
		Long: `Delete old data and list it: sessions, the full text of results that were too long
for a model, and the audit journal. [retention] in the daemon's configuration says how
long they are kept. The daemon does this when it starts, and once a day. Without
[retention] it deletes nothing.

Sessions that run, wait for an approval or are in use stay, and so does the active
one. Unread sessions are deleted like any other.`,
		Example: `  nous prune --dry-run
  nous prune`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := fetch(cmd.Context(), a, protocol.Prune, protocol.PruneParams{DryRun: dry}, a.printPruned)
			if err != nil {
				return err
			}
			for _, problem := range r.Problems {
				a.notef("not all could be removed: %s", problem)
			}
			if len(r.Problems) > 0 {
				return &quietExit{exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "remove nothing, only list")
	return cmd
}

// thenRestart is how a configuration that has been written is read.
func (a *app) thenRestart() string {
	if a.far != nil {
		return " " + a.far.there("restart")
	}
	return ": nous restart"
}

func (a *app) printPruned(r protocol.Pruned) {
	if r.Limits == (protocol.PruneLimits{}) {
		a.notef("nothing is ever removed, as %s has no [retention]; for example:\n\n[retention]\nsessions_older = "+
			"\"90d\"\ntool_output_larger = \"1GiB\"\n\nWrite that into it, and then%s", r.Config, a.thenRestart())
		return
	}
	rows := make([][]string, 0, len(r.Sessions)+len(r.ToolOutput)+len(r.Audit))
	for _, s := range r.Sessions {
		rows = append(rows, []string{s.SessionID, plain.Days(time.Since(s.UsedAt)), format.Size(s.Size), plain.OneLine(s.Title, 60)})
	}
	for _, f := range append(r.ToolOutput, r.Audit...) {
		rows = append(rows, []string{f.Name, plain.Days(time.Since(f.ChangedAt)), format.Size(f.Size), ""})
	}
	if len(rows) > 0 {
		a.printTable([]string{"WHAT", "AGE", "SIZE", "TITLE"}, rows)
	}
	if r.Truncated {
		a.println("…")
	}
	word := "removed"
	if r.DryRun {
		word = "to be removed"
	}
	sum := func(s protocol.PrunedSum, thing, of string) string {
		return fmt.Sprintf("%s%s (%s)", format.Count(s.Count, thing), of, format.Size(s.Bytes))
	}
	a.println(word + ": " + sum(r.Sums.Sessions, "session", "") + ", " +
		sum(r.Sums.ToolOutput, "file", " of tool output") + ", " +
		sum(r.Sums.Audit, "file", " of the audit journal"))
}

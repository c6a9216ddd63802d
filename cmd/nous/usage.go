package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) usageCommand() *cobra.Command {
	by := ""
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show how many tokens all sessions took, and what they cost",
		Long: `Show how many tokens the model calls of all sessions took, and what they cost
where prices are known. Days are those of your time zone. CACHED are those of
INPUT that came from the provider's cache. What a branch has copied counts in the
session it was copied from; what a deleted session took is not known any more.`,
		Example: `  nous usage
  nous usage --by model
  nous usage --by session --json | jq '.rows[0]'`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := protocol.GetUsageParams{By: protocol.UsageBy(by), TimeZone: timeZone(time.Now())}
			if err := oneOfUsage(p.By); err != nil {
				return err
			}
			return query(cmd.Context(), a, protocol.GetUsage, p, a.printUsage)
		},
	}
	cmd.Flags().StringVar(&by, "by", string(protocol.ByDay), "`what` the rows are for: day, model, session or folder")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"day", "model", "session", "folder"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func oneOfUsage(by protocol.UsageBy) error {
	switch by {
	case protocol.ByDay, protocol.ByModel, protocol.BySession, protocol.ByFolder:
		return nil
	}
	return cmdline.Errorf("--by %s: want day, model, session or folder", by)
}

// timeZone is the name of the zone that this process is in, or its offset where
// it has no name that others know.
func timeZone(now time.Time) string {
	name, set := os.LookupEnv("TZ")
	name = strings.TrimPrefix(name, ":")
	switch {
	case set && name == "":
		return "UTC"
	case !set:
		link, _ := os.Readlink("/etc/localtime")
		_, name, _ = strings.Cut(link, "zoneinfo/")
	}
	if _, bad := protocol.Location(name); name == "" || bad != nil {
		return now.Format("-07:00")
	}
	return name
}

func (a *app) printUsage(r protocol.UsageReport) {
	header := map[protocol.UsageBy][]string{
		protocol.ByDay: {"DAY"}, protocol.ByModel: {"MODEL"}, protocol.BySession: {"SESSION"}, protocol.ByFolder: {"FOLDER"},
	}[r.By]
	rows := [][]string{append(header, "INPUT", "CACHED", "OUTPUT", "COST", "")}
	for _, row := range r.Rows {
		name := cmp.Or(row.Day, row.Model, row.SessionID, row.Workdir)
		rows = append(rows, append([]string{plain.OneLine(name, 4096)},
			append(usageCells(row.UsageSum), plain.OneLine(row.Title, 60))...))
	}
	if len(r.Rows) != 1 {
		rows = append(rows, append([]string{"total"}, append(usageCells(r.Total), "")...))
	}
	for i, line := range plain.Table(plain.AlignRight(rows, 1, 5)) {
		look := ""
		if i == 0 {
			look = plain.Dim
		}
		a.printSpans(plain.Span{Text: line, Look: look})
	}
	if r.Truncated {
		a.notef("there are more rows; the total has them, too")
	}
	for _, sentence := range r.LeftOut {
		a.notef("%s", sentence)
	}
}

func usageCells(u protocol.UsageSum) []string {
	cost := "-"
	if u.Cost != nil {
		cost = fmt.Sprintf("%.4f %s", u.Cost.Amount, u.Cost.Currency)
	}
	return []string{
		strconv.FormatInt(u.InputTokens, 10), strconv.FormatInt(u.CachedTokens, 10),
		strconv.FormatInt(u.OutputTokens, 10), cost,
	}
}

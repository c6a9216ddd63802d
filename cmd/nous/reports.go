package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) modelsCommand() *cobra.Command {
	var probe bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models that could answer prompts",
		Long: `List the models that could answer prompts: the daemon's own, marked *, the
providers of its configuration and those that its environment has a key for,
provider modules, and offline.

With --probe their servers are asked which models they have, and so are the
servers that may run on this machine: Ollama, LM Studio, llama.cpp and vLLM.
Without --probe no server is asked.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd.Context(), a, protocol.ListModels, protocol.ListModelsParams{Probe: probe},
				func(r protocol.Models) {
					a.Models(r, probe)
				})
		},
	}
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the servers, and those that may run on this machine")
	return cmd
}

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
			r, err := fetch(cmd.Context(), a, protocol.SearchSessions, p, a.Matches)
			if err == nil && len(r.Matches) == 0 {
				a.Complain("nothing found")
				err = &quietExit{exitFailed}
			}
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "print at most `n` matches")
	return cmd
}

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
			return query(cmd.Context(), a, protocol.GetUsage, p, a.Usage)
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
			r, err := fetch(cmd.Context(), a, protocol.Prune, protocol.PruneParams{DryRun: dry}, func(r protocol.Pruned) {
				a.Pruned(r, a.thenRestart())
			})
			if err != nil {
				return err
			}
			for _, problem := range r.Problems {
				a.Notef("not all could be removed: %s", problem)
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
		return " " + a.far.There("restart")
	}
	return ": nous restart"
}

func (a *app) systemCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "system [SESSION]",
		Short: "Print what a session's model is told before the conversation",
		Long: `Print what a session's model is told before the conversation, as it is sent:
the daemon's own prompt, the AGENTS.md files, the skills, and where the
conversation takes place. A session whose model was not asked yet is described
as it is now. Files that cannot be used are named on standard error.`,
		Args:              cmdline.Wants(0, 1, "SESSION, the id of a session, or nothing"),
		ValidArgsFunction: completer(a.sessionIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scopeOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			p := protocol.GetSystemParams{Scope: scope}
			return query(cmd.Context(), a, protocol.GetSystem, p, func(r protocol.System) {
				a.Println(r.Text)
				for _, problem := range r.LeftOut {
					a.Notef("left out: %s", problem)
				}
			})
		},
	}
	a.rawFlag(cmd)
	return cmd
}

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) stateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "state",
		Short: "Show what a session and the daemon are doing",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.several() {
				return a.statesOfHosts(cmd.Context())
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			return query(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{Scope: scope}, a.printState)
		},
	}
}

// modelName is how set-model takes a model.
func modelName(m protocol.ModelInfo) string {
	name := m.Provider + "/" + m.Name
	if m.BaseURL != "" {
		name += " at " + m.BaseURL
	}
	return name
}

// contextFill says how much of the model's context the session fills.
func contextFill(c protocol.ContextInfo) string {
	fill := fmt.Sprintf("about %d tokens", c.Tokens)
	if c.Window > 0 {
		fill = fmt.Sprintf("about %d of %d tokens (%d %%)", c.Tokens, c.Window, 100*c.Tokens/c.Window)
	}
	if c.Tools > 0 {
		fill += fmt.Sprintf("; definitions of tools take about %d", c.Tools)
	}
	return fill
}

func (a *app) printState(s protocol.State) {
	pairs := [][2]string{{"session", cmp.Or(s.SessionID, "the active one")}, {"run state", string(s.RunState)}}
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, [2]string{key, value})
		}
	}
	add("folder", a.folderText(s.Workdir))
	if repo, branch, ok := a.worktreeOf(s.Workdir); ok {
		add("worktree", describeWorktree(repo, branch))
	}
	add("run", s.RunID)
	if s.LastRun != nil && s.LastRun.Error != nil && s.RunID == "" {
		add("last run", "failed: "+describeError(s.LastRun.Error.Code, s.LastRun.Error.Message, ""))
	}
	add("steering mode", string(s.SteeringMode))
	add("follow-up mode", string(s.FollowUpMode))
	add("pending", fmt.Sprintf("%d steer, %d follow-up", s.PendingCounts.Steer, s.PendingCounts.FollowUp))
	for _, in := range s.Queued.Inputs {
		add("  "+wordFor(in.Kind), in.InputID+"  "+oneLine(in.Text, lineWidth))
	}
	if len(s.Queued.Inputs) == 0 { // they are only counted
		for _, text := range s.Queued.Steer {
			add("  steer", oneLine(text, lineWidth))
		}
		for _, text := range s.Queued.FollowUp {
			add("  follow-up", oneLine(text, lineWidth))
		}
	}
	if s.Partial != nil {
		add("saying", oneLine(s.Partial.Text, lineWidth))
	}
	if s.Daemon.Epoch == "" {
		add("daemon", "says no more")
		a.printPairs(pairs)
		return
	}
	add("approvals", string(s.ApprovalMode))
	for _, q := range s.PendingApprovals {
		key := "  waits"
		if q.SessionID != s.SessionID {
			key = "  elsewhere"
		}
		add(key, q.ApprovalID+"  "+asksFor(q, lineWidth))
	}
	add("model", modelName(s.Model))
	add("context", contextFill(s.Context))
	add("active tools", cmp.Or(strings.Join(s.ActiveTools, ", "), "none"))
	if kind := s.SessionState.Kind(); kind == jsontext.KindBeginObject && string(s.SessionState) != "{}" {
		add("session state", oneLine(string(s.SessionState), lineWidth))
	}
	for _, asset := range s.Assets {
		add("asset", fmt.Sprintf("%s %s (%s)", asset.AssetID, asset.Path, asset.MediaType))
	}
	add("usage", fmt.Sprintf("%d in, %d out", s.Usage.InputTokens, s.Usage.OutputTokens))
	if c := s.Usage.Cost; c != nil {
		add("cost", fmt.Sprintf("%.4f %s", c.Amount, cellText(c.Currency)))
	}
	for _, run := range s.Runs {
		if run.RunID != s.RunID {
			add("also "+string(run.RunState), run.RunID+" in "+run.SessionID)
		}
	}
	add("last event", fmt.Sprint(s.LastSeq))
	add("daemon", fmt.Sprintf("%s, pid %d, since %s, epoch %s", s.Daemon.Version, s.Daemon.PID,
		s.Daemon.StartedAt.Local().Format(time.DateTime), s.Daemon.Epoch))
	a.printPairs(pairs)
}

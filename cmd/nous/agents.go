package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) agentsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "agents",
		Short: "List the agents that sessions can be made for",
		Long: `List the agents that sessions can be made for, with nous new --agent and nous
prompt --agent: those that noused knows, and the sections [agent.NAME] of config.toml.
What an agent does without asking is not noused's to stop, unless it runs in the
sandbox. SIGNED IN goes by the files that an agent is known to keep, none of which is
opened; - is where that cannot be told.

Below are the named agents of the folder, which nous prompt --as takes: those that
are built in, and the files of agents/ in .noused and .claude.`,
		Example: `  nous agents
  nous prompt --agent opencode what is in this directory
  nous prompt --as explore where is the version set`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listAgents(cmd.Context())
		},
	}
}

// listAgents prints the agents, and the named ones of the folder.
func (a *app) listAgents(ctx context.Context) error {
	raw, err := client.Raw(ctx, a.daemonSender(), protocol.ListAgents, protocol.ListAgentsParams{})
	if err != nil {
		return err
	}
	var r protocol.Agents
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("list_agents: decode reply: %w", err)
	}
	there, err := a.listNamed(ctx)
	if err != nil {
		return err
	}
	named := there.Named
	leftOut := slices.DeleteFunc(there.LeftOut, func(why string) bool { return !strings.Contains(why, "/agents/") })
	if a.JSON {
		list, err := json.Marshal(struct {
			Named   []protocol.NamedAgent `json:"named_agents"`
			LeftOut []string              `json:"left_out"`
		}{named, leftOut})
		if err == nil {
			a.JSONLine(plain.Joined(raw, list))
		}
		return err
	}
	rows := make([][]string, len(r.Agents))
	for i, agent := range r.Agents {
		rows[i] = a.agentRow(ctx, agent)
	}
	a.Table([]string{"AGENT", "FOUND", "VERSION", "SIGNED IN", "SANDBOX", "ABOUT"}, rows)
	if len(named) == 0 {
		return nil
	}
	rows = make([][]string, len(named))
	for i, one := range named {
		about := cmp.Or(one.Description, "-")
		if one.Agent != "" {
			about = "made by " + one.Agent + ": " + about
		}
		rows[i] = []string{
			one.Name, plain.OneLine(about, plain.LineWidth), plain.OneLine(cmp.Or(one.Path, "built in"), 4096),
		}
	}
	a.Println("")
	a.Table([]string{"NAMED AGENT", "ABOUT", "FILE"}, rows)
	for _, problem := range leftOut {
		a.Notef("left out: %s", problem)
	}
	return nil
}

// agentRow is an agent in the table.
func (a *app) agentRow(ctx context.Context, agent protocol.AgentInfo) []string {
	version, about := "-", agent.Path
	switch {
	case agent.Found && a.far == nil:
		version = versionOf(ctx, agent.Path)
	case !agent.Found && agent.Install != "":
		about = "install: " + agent.Install
	case !agent.Found:
		about = agent.Problem
	}
	signedIn := "-"
	if agent.Found && agent.SignedIn != nil {
		signedIn = plain.YesNo(*agent.SignedIn)
	}
	if agent.Found && agent.SignIn != "" && signedIn != plain.YesNo(true) {
		about += "; sign in: " + agent.SignIn
	}
	name := agent.Name
	if agent.Default {
		name += " (default)"
	}
	return []string{
		name, plain.YesNo(agent.Found), version, signedIn, plain.YesNo(agent.Sandboxed),
		plain.OneLine(about, plain.LineWidth),
	}
}

// versionTime is how long a program has to say its version.
const versionTime = 5 * time.Second

// maxVersion is how much of what a program says of its version is read, in bytes.
const maxVersion = 4 << 10

// versionOf is what a program on this machine says of its version, in one line. One that says
// more than maxVersion is ended.
func versionOf(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "-"
	}
	out, _ := io.ReadAll(io.LimitReader(said, maxVersion))
	if len(out) == maxVersion {
		cancel()
	}
	err = cmd.Wait()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil && len(out) < maxVersion || line == "" {
		return "-"
	}
	return plain.OneLine(line, 30)
}

// agentFlag is --agent of a command that makes a session.
func (a *app) agentFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "agent", "", "in a new session, whose turns this agent makes: `name` of nous agents")
	must(cmd.RegisterFlagCompletionFunc("agent", a.agentNames))
}

// agentNames are the names that --agent takes.
func (a *app) agentNames(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := []string{protocol.OwnAgent}
	r, err := request(cmd.Context(), a, protocol.ListAgents, protocol.ListAgentsParams{})
	for _, agent := range r.Agents {
		names = append(names, agent.Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) })
	return completions(names, err)
}

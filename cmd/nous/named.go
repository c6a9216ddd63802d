package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// namedAgents are the names that --as takes.
func (a *app) namedAgents(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	r, err := request(cmd.Context(), a, protocol.ListSkills, protocol.ListSkillsParams{})
	var names []string
	for _, one := range r.Named {
		if strings.HasPrefix(one.Name, typed) {
			names = append(names, one.Name+"\t"+one.Description)
		}
	}
	return completions(names, err)
}

// mustKnow refuses a named agent that the daemon does not have. An older daemon has none, and would make the run
// with all tools.
func (a *app) mustKnow(ctx context.Context, scope protocol.Scope, name string) error {
	if name == "" {
		return nil
	}
	r, err := request(ctx, a, protocol.ListSkills, protocol.ListSkillsParams{Scope: scope})
	switch {
	case err != nil:
		return err
	case r.Named == nil:
		return cmdline.Errorf("--as: the daemon is older than nous and has no named agents; " +
			"nous restart starts the newer one")
	}
	names := make([]string, len(r.Named))
	for i, one := range r.Named {
		switch {
		case one.Name == name && one.Agent != "":
			return cmdline.Errorf("--as: the turns of %s are made by %s: nous prompt --agent %[2]s", name, one.Agent)
		case one.Name == name:
			return nil
		}
		names[i] = one.Name
	}
	for _, problem := range r.LeftOut {
		if strings.Contains(problem, "/agents/"+name+".md: ") {
			return cmdline.Errorf("--as: %s", problem)
		}
	}
	slices.Sort(names)
	return cmdline.Errorf("--as %s: there is no such agent, only %s", name, strings.Join(names, ", "))
}

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// namedAgents are the names that --as takes.
func (a *app) namedAgents(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	r, err := a.listNamed(cmd.Context())
	var names []string
	for _, one := range r.Named {
		if strings.HasPrefix(one.Name, typed) {
			names = append(names, one.Name+"\t"+one.Description)
		}
	}
	return completions(names, err)
}

// listNamed asks for the named agents of the folder. A daemon too old to be asked about one has none.
func (a *app) listNamed(ctx context.Context) (r protocol.Skills, err error) {
	dir, err := a.folder()
	if err != nil {
		return r, err
	}
	r, err = request(ctx, a, protocol.ListSkills, protocol.ListSkillsParams{Workdir: dir})
	if errors.Is(err, client.ErrUnsupported) {
		return protocol.Skills{}, nil
	}
	return r, err
}

// mustHaveNamed refuses a daemon that is too old for named agents: it would make the run with all tools.
func (a *app) mustHaveNamed(ctx context.Context, scope protocol.Scope) error {
	r, err := request(ctx, a, protocol.ListSkills, protocol.ListSkillsParams{Scope: scope})
	if err == nil && r.Named == nil {
		err = cmdline.Errorf("--as: the daemon is older than nous and has no named agents; " +
			"nous restart starts the newer one")
	}
	return err
}

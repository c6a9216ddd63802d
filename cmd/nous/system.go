package main

import (
	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/protocol"
)

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
				a.println(r.Text)
				for _, problem := range r.LeftOut {
					a.notef("left out: %s", problem)
				}
			})
		},
	}
	a.rawFlag(cmd)
	return cmd
}

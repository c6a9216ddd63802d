package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"noused/internal/acp/bridge"
	"noused/internal/buildinfo"
	"noused/internal/cmdline"
)

func (a *app) acpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "acp",
		Short: "Serve an editor over ACP (the editor starts this)",
		Long: `Speak the Agent Client Protocol, version 1, on standard input and output. Editors
such as Zed, those of JetBrains, Neovim and Emacs start nous acp as an agent; docs/editors.md
has the lines of their configuration. Errors go to standard error.

Sessions and runs belong to the daemon. Closing the editor ends neither, and nous
shows the same sessions.`,
		Example: "  nous acp",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(25) // an editor has many such programs, and none of them is busy
			return bridge.Run(cmd.Context(), bridge.Options{
				Daemon: a.way(), Local: a.far == nil, Start: a.startForEditor, Patience: a.patience, In: a.in, Out: a.out.w,
				Log: a.notef, Version: buildinfo.Version(),
			})
		},
	}
}

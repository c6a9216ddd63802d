package main

import (
	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/manpage"
)

// manPagesCommand is the hidden command that writes the pages of the manual.
func manPagesCommand(root *cobra.Command) *cobra.Command {
	cmd := manpage.Command(manpage.Build{
		Date: buildinfo.Date(), Version: buildinfo.Version(),
		SeeAlso: []string{"noused(1)", "noused.toml(5)", "noused-tools(7)", "noused-protocol(7)"},
	}, nil)
	cmd.PreRun = func(*cobra.Command, []string) { // not that of whoever writes the pages
		root.PersistentFlags().Lookup("socket").DefValue = "$XDG_RUNTIME_DIR/noused/noused.sock"
	}
	return cmd
}

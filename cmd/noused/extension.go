package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/idlemem"
	"noused/internal/proc"
	"noused/internal/tool/builtin"
)

func extensionCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "extension",
		Short: "Check a tool, or serve the built-in ones",
		Args:  cmdline.Wants(0, 0, ""),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(
		filesCommand(),
		checkCommand(),
	)
	return parent
}

// filesCommand serves the built-in tools as a child process of the daemon. SIGTERM ends it
// after the call in hand.
func filesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   builtin.Name,
		Short: "Serve read, write, edit, ls, find, grep and bash as a gevals extension over stdin and stdout",
		Long: `Speaks the gevals extension protocol 0.0.1 over stdin and stdout. The daemon
starts it. You can try it with one request on stdin:

  echo '{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"ls","args":{},"context":{"workdir":".","phase":"setup"}}}' |
    noused extension files`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Its commands run in the same sandbox, as the same user.
			if err := proc.Conceal(); err != nil {
				return err
			}
			dir, err := os.Getwd()
			if err != nil {
				return fmt.Errorf("find the working directory: %w", err)
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			defer stop()
			return builtin.Serve(ctx, idlemem.New(nil).Reader(cmd.InOrStdin()), cmd.OutOrStdout(), dir, os.Environ())
		},
	}
}

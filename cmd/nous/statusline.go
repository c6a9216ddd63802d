package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

// statuslineTime bounds what a prompt waits for.
const statuslineTime = 500 * time.Millisecond

func (a *app) statuslineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "statusline",
		Short: "Print one line for tmux or a prompt: what waits and what runs",
		Long: `Print one line for tmux or a shell's prompt: how many approvals wait for an answer,
and how many sessions run. It prints nothing where neither does, and where no daemon
runs; it starts none, and its exit status is 0 then, too.`,
		Example: "  nous statusline",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.statusline(cmd.Context())
			return nil
		},
	}
}

// statusline never starts a daemon, and says nothing of one that does not answer.
func (a *app) statusline(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, statuslineTime)
	defer done()
	conn, err := a.way().Commands(ctx)
	if err != nil {
		return
	}
	c := client.New(conn)
	defer c.Close()
	a.met.Store(true) // none is started when it goes
	s, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Daemon: true})
	if err != nil {
		return
	}
	var parts []string
	if n := len(s.PendingApprovals); n > 0 {
		parts = append(parts, format.Count(n, "approval"))
	}
	if n := len(s.Runs); n > 0 {
		parts = append(parts, format.Count(n, "run"))
	}
	if len(parts) > 0 {
		fmt.Fprintf(a.out, "nous: %s\n", strings.Join(parts, ", "))
	}
}

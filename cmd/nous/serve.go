package main

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/spf13/cobra"

	"noused/internal/acp/bridge"
	"noused/internal/buildinfo"
	"noused/internal/client/proxy"
	"noused/internal/cmdline"
)

func (a *app) acpCommand() *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use:   "acp",
		Short: "Serve an editor over ACP (the editor starts this)",
		Long: `Speak the Agent Client Protocol, version 1, on standard input and output. Editors
such as Zed, those of JetBrains, Neovim and Emacs start nous acp as an agent; docs/editors.md
has the lines of their configuration. Errors go to standard error.

Sessions and runs belong to the daemon. Closing the editor ends neither, and nous
shows the same sessions. With --agent another agent makes the turns of new sessions; its
options and commands are the editor's to choose from.`,
		Example: "  nous acp\n  nous acp --agent opencode",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(25) // an editor has many such programs, and none of them is busy
			return bridge.Run(cmd.Context(), bridge.Options{
				Daemon: a.runningDaemon(), Local: a.far == nil, Start: a.startForEditor, Patience: a.patience,
				In: a.in, Out: a.out.W, Log: a.Notef, Version: buildinfo.Version(), Agent: agent,
			})
		},
	}
	a.agentFlag(cmd, &agent)
	return cmd
}

func (a *app) proxyCommand() *cobra.Command {
	var mayStart bool
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Join the daemon's two sockets on standard input and output",
		Long: `Join the daemon's two sockets on standard input and output, for a nous or any other
client that comes by ssh: nous --host runs it at the far end.

The first line is a hello. Then each subscribe line that is read goes to the event socket,
every other line to the command socket, and what both say comes back, line by line.
docs/remote.md has the details. Where there is no daemon, or it goes away, the last line is
{"ok":false,"error":{"code":"…","message":"…"}} and the exit status 3.`,
		Example: "  nous proxy",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.proxy(cmd.Context(), mayStart)
			switch {
			case err == nil:
				return nil
			case errors.Is(err, proxy.ErrNobodyReads):
				return &quietExit{exitFailed}
			case a.out.Failure() != nil:
				return a.out.Failure()
			}
			return a.endProxy(err)
		},
	}
	cmd.Flags().BoolVar(&mayStart, "start", false, "start a daemon where none runs")
	return cmd
}

func (a *app) proxy(ctx context.Context, mayStart bool) error {
	o := proxy.Options{Socket: a.socket, Patience: a.patience, Answer: a.answer, Reader: a.out.W}
	if mayStart {
		o.Start = func(ctx context.Context, err error) (bool, error) {
			err = a.startFor(ctx, err)
			return errors.Is(err, errStarted), err
		}
	}
	return o.Run(ctx, a.in, a.out)
}

// endProxy says why there is no proxy, or none any more.
func (a *app) endProxy(err error) error {
	if _, err := a.out.Write(proxy.LastLine(err, a.socket)); err != nil {
		return err
	}
	return &quietExit{exitNoDaemon}
}

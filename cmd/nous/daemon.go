package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/start"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon; its runs go on with the next one",
		Long: `Stop the daemon. Runs get a while (drain_timeout) to reach a boundary; the next
daemon goes on with them. nous stop returns when the daemon has gone. That none runs is
no failure.

It stays stopped until the next nous command that needs one starts it. Screens and other
programs that are attached do not. A daemon of systemd's is stopped with its sockets.`,
		Example:           "  nous stop",
		Args:              cmdline.Wants(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			s, err := start.Stop(ctx, a.starting())
			if ctx.Err() != nil {
				a.notef("interrupted; a daemon that was told to stop does so all the same")
				return &quietExit{exitLeft}
			}
			if err != nil {
				return a.refused(instead(err, "nous stop", "end it with kill"))
			}
			a.tellDaemon("stopped", s.PID, s.Unit)
			return nil
		},
	}
}

func (a *app) restartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restart",
		Short: "Restart the daemon, to run a newer one; its runs go on",
		Long: `Restart the daemon: the program that is at its path now takes its place, with the
command line and the environment that it had. A daemon of systemd's is restarted by
systemd, as its unit says. Runs get a while (drain_timeout) to reach a boundary, and go
on. Clients that connect meanwhile wait. Where none runs, one is started.

Nothing happens where the new program is no noused, is too old for the journals or cannot
read the configuration: that is told first.`,
		Example:           "  nous restart",
		Args:              cmdline.Wants(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.restart(cmd.Context())
		},
	}
}

func (a *app) restart(ctx context.Context) error {
	was, is, err := start.Restart(ctx, a.starting())
	var wire *protocol.Error
	switch {
	case err != nil && was.PID == 0:
		return err
	case errors.As(err, &wire) && wire.Code == protocol.SessionError && !a.json: // the sentence says it all
		a.complain(wire.Message)
		return &quietExit{exitFailed}
	case err != nil:
		return a.refused(instead(err, "nous restart", "nous stop and then nous have the same effect"))
	case was.PID == 0 && is.Unit:
		a.tellDaemon("started", 0, is.Log)
	case was.PID == 0:
		a.tellDaemon("started", is.PID, "")
	default:
		a.tellDaemon("restarted", was.PID, was.Unit)
	}
	return nil
}

// refused is the failure of something that a daemon was asked for: there is one.
func (a *app) refused(err error) error {
	var failed *start.Error
	if errors.As(err, &failed) {
		a.complain(failed.What)
		a.notes(failed.Said, failed.Next)
		return &quietExit{exitFailed}
	}
	return err
}

// notes writes each note to a line of its own.
func (a *app) notes(texts ...string) {
	for _, text := range texts {
		if text != "" {
			a.notef("%s", text)
		}
	}
}

// instead says what to do where the daemon does not know the command.
func instead(err error, command, next string) error {
	if errors.Is(err, client.ErrUnsupported) {
		return &start.Error{What: "this daemon is an older one and does not know " + command, Next: next}
	}
	return err
}

// tellDaemon says how the daemon is.
func (a *app) tellDaemon(what string, pid int, unit string) {
	if a.json {
		line, err := json.Marshal(struct {
			Daemon string `json:"daemon"`
			PID    int    `json:"pid,omitzero"`
			Unit   string `json:"unit,omitzero"`
		}{what, pid, unit})
		if err == nil {
			a.printJSON(line)
		}
		return
	}
	switch {
	case unit != "":
		a.println(what + " " + unit)
	case pid != 0:
		a.println(fmt.Sprintf("%s noused (process %d)", what, pid))
	case what == "stopped":
		a.println("no daemon runs at " + a.place())
	default:
		a.println(what)
	}
}

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	lines := 100
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show what the daemon has logged last",
		Long: `Show what the daemon has logged last: from systemd's journal where it runs as
its unit, else from the log of the daemon that nous has started. Where none runs, the
log is that of the last one. A daemon that was started otherwise logs to wherever its
standard error goes.`,
		Example: "  nous logs -f",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return cmdline.Errorf("--lines %d: want 0 or more", lines)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			r := start.LogReader{Options: a.starting(), Running: a.running, Stderr: a.err, Print: func(text string) error {
				a.print(text)
				return a.out.Failure()
			}}
			return r.Read(ctx, lines, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is logged, until Ctrl-C")
	cmd.Flags().IntVarP(&lines, "lines", "n", lines, "begin with the last `n` lines")
	a.rawFlag(cmd)
	return cmd
}

// running is the daemon that answers. None is started.
func (a *app) running(ctx context.Context) (protocol.DaemonInfo, error) {
	c, err := client.Dial(ctx, a.socket)
	if err != nil {
		return protocol.DaemonInfo{}, err
	}
	defer c.Close()
	s, err := call(ctx, a, c, protocol.GetState, protocol.GetStateParams{Daemon: true})
	return s.Daemon, err
}

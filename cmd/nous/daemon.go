package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/machine"
	"noused/internal/client/plain"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/start"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon; its runs go on with the next one",
		Long: `Stop the daemon. A run may first end the call of a tool or the model that it is in,
for drain_timeout at most; the next daemon goes on with it. nous stop returns when the
daemon has gone. That none runs is no failure.

It stays stopped until the next nous command that needs one starts it. Screens and other
programs that are attached do not. A daemon of systemd's is stopped with its sockets.`,
		Example:           "  nous stop",
		Args:              cmdline.Wants(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			told := a.tellDrain()
			s, err := start.Stop(ctx, a.starting())
			told()
			if ctx.Err() != nil {
				a.Notef("interrupted; a daemon that was told to stop does so all the same")
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
		Long: `Restart the daemon: the program that is at its path now takes its place, in the same
process, with the command line and the environment that it had. Hosted agents live on, in
the middle of a turn too; other runs may first end the call of a tool or the model that
they are in, for drain_timeout at most, and go on. Clients that connect meanwhile wait.
Where none runs, one is started.

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
	told := a.tellDrain()
	was, is, err := start.Restart(ctx, a.starting())
	told()
	var wire *protocol.Error
	switch {
	case err != nil && was.PID == 0:
		return err
	case errors.As(err, &wire) && wire.Code == protocol.SessionError && !a.JSON: // the sentence says it all
		a.Complain(wire.Message)
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

// tellDrain says why the end of a daemon takes long, unless told is called within a second.
func (a *app) tellDrain() (told func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(time.Second, func() {
		defer close(done)
		a.Notef("waiting for calls that are under way, for drain_timeout at most; their runs go on with the next daemon")
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// refused is the failure of something that a daemon was asked for: there is one.
func (a *app) refused(err error) error {
	var failed *start.Error
	if errors.As(err, &failed) {
		a.Complain(failed.What)
		a.notes(failed.Said, failed.Next)
		return &quietExit{exitFailed}
	}
	return err
}

// notes writes each note to a line of its own.
func (a *app) notes(texts ...string) {
	for _, text := range texts {
		if text != "" {
			a.Notef("%s", text)
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
	if a.JSON {
		line, err := json.Marshal(struct {
			Daemon string `json:"daemon"`
			PID    int    `json:"pid,omitzero"`
			Unit   string `json:"unit,omitzero"`
		}{what, pid, unit})
		if err == nil {
			a.JSONLine(line)
		}
		return
	}
	switch {
	case unit != "":
		a.Println(what + " " + unit)
	case pid != 0:
		a.Println(fmt.Sprintf("%s noused (process %d)", what, pid))
	case what == "stopped":
		a.Println("no daemon runs at " + a.place())
	default:
		a.Println(what)
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
			r := start.LogReader{Options: a.starting(), Running: a.running, Stderr: a.Err, Print: func(text string) error {
				a.Print(text)
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

// doctorCommand is `nous doctor`: the daemon's own program has the code, so it
// does the work.
func (a *app) doctorCommand() *cobra.Command {
	cmd := a.handedOn("doctor [flags]", "Check the installation and say what to do: noused doctor", "doctor")
	cmd.Long = `Check the installation and say what to do: noused doctor, which also has the flags.

With --host it checks what nous --host needs: whether ssh gets there and finds nous,
whether the versions are the same, whether the daemon stays when you log out there, and
whether the clocks agree. Within tmux it looks at the options that the screen needs.`
	cmd.Example = "  nous doctor\n  nous doctor --host box"
	check := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		names, _ := hostOf(args)
		if len(names) > 0 || ofFleet(args) || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
			return err
		}
		a.JSON = slices.Contains(args, "--json")
		for _, f := range machine.Tmux(cmd.Context()) {
			a.printFinding(f)
		}
		return err
	}
	return cmd
}

// ofFleet tells whether arguments that are not read as flags name a fleet.
func ofFleet(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return flag == "--via" || flag == "--on" || flag == "--creds"
	})
}

// handedOn is a command that the daemon's program does, with all flags as they are.
func (a *app) handedOn(use, short string, does ...string) *cobra.Command {
	return &cobra.Command{
		Use:                use,
		Short:              short,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, rest := hostOf(args)
			if len(names) > 0 && does[0] == "doctor" {
				a.hostNames = names
				return a.examineHost(cmd.Context(), rest)
			}
			if does[0] == "doctor" && ofFleet(args) {
				return cmdline.Errorf("nous doctor is for the machine of the daemon: log in there and run `nous doctor`")
			}
			program, err := start.Find()
			if err != nil {
				a.Complain("noused does what was asked for: " + err.Error())
				return &quietExit{exitNoDaemon}
			}
			child := exec.CommandContext(cmd.Context(), program, slices.Concat(does, args)...)
			child.Stdin, child.Stdout, child.Stderr = a.in, a.out.W, a.Err
			err = child.Run()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) &&
				(exit.Exited() || exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGPIPE) {
				return &quietExit{max(exit.ExitCode(), exitOK)} // a reader that has enough is no failure
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", program, does[0], err)
			}
			return nil
		},
	}
}

// hostOf takes --host out of arguments that are not read as flags. Without --host it is NOUS_HOST.
func hostOf(args []string) (names, rest []string) {
	for i := 0; i < len(args); i++ {
		name, given := strings.CutPrefix(args[i], "--host=")
		switch {
		case given:
			names = append(names, name)
		case args[i] == "--host" && i+1 < len(args):
			i++
			names = append(names, args[i])
		default:
			rest = append(rest, args[i])
		}
	}
	if env := os.Getenv("NOUS_HOST"); names == nil && env != "" {
		names = []string{env}
	}
	return names, rest
}

// examineHost checks what nous --host needs.
func (a *app) examineHost(ctx context.Context, rest []string) error {
	for _, arg := range rest {
		if arg != "--json" {
			return cmdline.Errorf("doctor --host takes no %s: `ssh %s noused doctor` checks the installation there", arg,
				a.hostNames[0])
		}
		a.JSON = true
	}
	if err := a.findHosts(); err != nil {
		return err
	}
	if len(a.hosts) > 1 {
		return cmdline.Errorf("nous doctor is for one host: give --host once")
	}
	h := a.hosts[0]
	h.SSH.Ask, h.SSH.Show = true, a.shows()
	h.Link = ssh.New(h.SSH)
	all, err := h.Examine(ctx)
	if err != nil {
		return err
	}
	failed := 0
	for _, f := range all {
		a.printFinding(f)
		if f.Status == "FAIL" {
			failed++
		}
	}
	if failed > 0 {
		return &quietExit{exitFailed}
	}
	return nil
}

func (a *app) printFinding(f machine.Finding) {
	if a.JSON {
		if line, err := json.Marshal(f); err == nil {
			a.JSONLine(line)
		}
		return
	}
	look := map[string]string{"FAIL": plain.Red, "ok": plain.Dim}[f.Status]
	a.Spans(plain.Span{Text: fmt.Sprintf("%-4s  %-8s  %s", f.Status, f.Area, plain.Cell(f.What)), Look: look})
	if f.Fix != "" {
		a.Println("      " + plain.Cell(f.Fix))
	}
}

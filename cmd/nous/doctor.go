package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client/machine"
	"noused/internal/client/plain"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/start"
)

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
		a.json = slices.Contains(args, "--json")
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
				a.complain("noused does what was asked for: " + err.Error())
				return &quietExit{exitNoDaemon}
			}
			child := exec.CommandContext(cmd.Context(), program, slices.Concat(does, args)...)
			child.Stdin, child.Stdout, child.Stderr = a.in, a.out.W, a.err
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
		a.json = true
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
	if a.json {
		if line, err := json.Marshal(f); err == nil {
			a.printJSON(line)
		}
		return
	}
	look := map[string]string{"FAIL": plain.Red, "ok": plain.Dim}[f.Status]
	a.printSpans(plain.Span{Text: fmt.Sprintf("%-4s  %-8s  %s", f.Status, f.Area, plain.Cell(f.What)), Look: look})
	if f.Fix != "" {
		a.println("      " + plain.Cell(f.Fix))
	}
}

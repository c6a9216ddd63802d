package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
whether the clocks agree.`
	cmd.Example = "  nous doctor\n  nous doctor --host box"
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
			child.Stdin, child.Stdout, child.Stderr = a.in, a.out.w, a.err
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

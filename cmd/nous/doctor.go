package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// doctorCommand is `nous doctor`: the daemon's own program has the code, so it
// does the work. All flags are handed on as they are.
func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "doctor [flags]",
		Short:              "Check the installation and say what to do: noused doctor",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := findDaemon()
			if err != nil {
				a.complain(err.Error())
				return &quietExit{exitNoDaemon}
			}
			child := exec.CommandContext(cmd.Context(), program, append([]string{"doctor"}, args...)...)
			child.Stdin, child.Stdout, child.Stderr = a.in, a.out.w, a.err
			err = child.Run()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
				return &quietExit{exit.ExitCode()}
			}
			if err != nil {
				return fmt.Errorf("%s doctor: %w", program, err)
			}
			return nil
		},
	}
}

// findDaemon returns the path of noused: beside this program, or else where
// PATH has it.
func findDaemon() (string, error) {
	const name = "noused"
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return beside, nil
		}
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no %s beside this program or in PATH; doctor is a part of it", name)
	}
	return program, nil
}

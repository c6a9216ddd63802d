// Command noused is the agent daemon: what tmux is to terminals, it is to AI
// agents. It owns the runs; clients attach over a Unix socket.
//
// This package is the only place where things are wired together: the
// configuration, the sockets, the hub, the model, the tools and the log.
//
// It refuses to decide anything about a run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/cmdline"
	"noused/internal/detach"
	"noused/internal/lock"
	"noused/internal/plaintext"
	"noused/internal/proc"
)

// init has main be on the main thread where hosted agents were left: that becomes the parent of
// all children (proc.ServeMain).
func init() {
	if leftAgents() {
		runtime.LockOSThread()
	}
}

func main() {
	// The hidden sub-commands guardian and exec-sandboxed come before everything
	// else: they start with every tool, and have nothing to clean up.
	if status, ok := proc.Helper(os.Args); ok {
		syscall.Exit(status)
	}
	sayReady, inherited, owner = detach.Ready(), inherit(), detach.Owned()
	_ = program()
	run := func() { os.Exit(execute(os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }
	if inherited[agentsFile] == nil {
		run()
	}
	takenOver = readHandover(inherited[agentsFile])
	go run()
	proc.ServeMain()
}

// execute runs the command line and returns the exit status: 0 after a clean
// stop, 1 for a start that failed, with one line on stderr that says why, 2 for
// a command line that is wrong and for a tool that could not be checked, 75 where
// another daemon has the files.
func execute(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "noused",
		Short: "Run the agent daemon",
		Long: `noused owns the runs of AI agents. Clients speak NDJSON over two Unix sockets:
commands at the socket's path, events at the path with ".events" behind it.
Every flag is also an environment variable (NOUSED_SOCKET for --socket) and a
key of the configuration file. A flag comes before the environment, and the
environment before the file.`,
		Example:       "  noused --workdir ~/project --model openai/gpt-5",
		Args:          cmdline.Wants(0, 0, ""),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			read := func() (Config, error) {
				cfg, err := readSettings(cmd.Flags(), getenv)
				if owner != nil { // nobody looks for a private daemon
					cfg.Fleet, cfg.DebugSocket = fleetSettings{}, ""
				}
				return cfg, err
			}
			cfg, err := read()
			if err != nil {
				return err
			}
			defer func() { _ = owner.Clean() }() // the owner does it where this fails
			d, err := New(cfg, read, newLogger(os.Stderr, cfg.LogDir, cfg.LogLevel))
			if err != nil {
				return err
			}
			defer d.Close()
			return d.Run(cmd.Context())
		},
	}
	cmdline.Version(root, func() string { return buildinfo.Line("noused") })
	root.AddCommand(extensionCommand(), doctorCommand(getenv), mcpCommand(getenv), manPagesCommand(), tryCommand(getenv))
	registerFlags(root.Flags())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(cmdline.FlagError)
	root.SetHelpCommand(cmdline.Help("  noused help doctor\n  noused help extension check"))
	cmdline.Completion(root)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var anew *restartError
	if errors.As(err, &anew) && owner == nil {
		err = anew.exec()
	}
	fmt.Fprintf(stderr, "noused: %s\n", plaintext.Clean(err.Error()))
	var (
		wrong *cmdline.Error
		no    *impossible
	)
	if errors.As(err, &wrong) {
		fmt.Fprintln(stderr, cmdline.Hint(cmd))
	}
	switch {
	case wrong != nil || errors.As(err, &no):
		return 2
	case errors.As(err, new(*lock.HeldError)):
		return detach.HeldStatus
	}
	return 1
}

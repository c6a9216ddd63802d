package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/cmdline"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/check"
)

// impossible says that nothing could be checked.
type impossible struct{ error }

func (e *impossible) Unwrap() error { return e.error }

// checkCommand is `noused extension check FILE`: it tells the author of a tool
// what the tool does wrong, one line for each clause of its protocol.
func checkCommand() *cobra.Command {
	var options check.Options
	var args, workdir, conformance string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a tool against the specification of its protocol",
		Long: `check runs the program of a tool descriptor as the daemon does, and prints one
line for each clause of its protocol: ok, FAIL or skip, the clause, and what it
asks for. Below a failure it shows what was seen and what to do about it.

A call may have effects, so check makes none unless you ask for it. Without a
call it checks the start, the description, requests that the tool must refuse,
and the end. A Narratoria tool can only be called, so nothing is checked without.

Each operation that you ask for is called twice with the same arguments. A
gevals extension gets a third call that it must refuse: a required argument is
missing. Try it in a folder where nothing can be lost.

A module over http must be running already.

With --mcp-conformance it plays a scenario of the official conformance suite for
MCP clients instead, with the daemon's own code: see docs/mcp.md.

The exit status is 0 if no clause was broken, 1 if one was, and 2 if nothing
could be checked: the descriptor is wrong, or the program cannot be started.`,
		Example: `  noused extension check examples/tools/notes.json
  noused extension check examples/tools/torch.json --operation light --args '{"where":"hall"}'
  noused extension check examples/tools/torch.json --all --workdir /tmp/try`,
		Args: func(cmd *cobra.Command, files []string) error {
			if conformance != "" {
				return cmdline.Wants(0, 0, "")(cmd, files)
			}
			return cmdline.Wants(1, 1, "FILE, the descriptor of a tool")(cmd, files)
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			if conformance != "" {
				return runConformance(cmd.Context(), conformance, cmd.OutOrStdout())
			}
			if options.All && options.Operation != "" {
				return cmdline.Errorf("--all and --operation exclude each other")
			}
			options.Args = jsontext.Value(args)
			if args == "" {
				options.Args = nil
			}
			failed, err := runCheck(cmd, files[0], workdir, options)
			if err != nil {
				return &impossible{err}
			}
			if failed > 0 {
				return fmt.Errorf("%s: %d of the clauses are broken", files[0], failed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&options.Operation, "operation", "", "call the operation of this `name`")
	cmd.Flags().StringVar(&args, "args", "", "its arguments, a `JSON` object (default: made up from its schema)")
	cmd.Flags().BoolVar(&options.All, "all", false, "call every operation, with arguments that are made up")
	cmd.Flags().StringVar(&conformance, "mcp-conformance", "",
		"play a scenario of the conformance suite with the server at this `URL`")
	cmd.Flags().StringVar(&workdir, "workdir", ".", "`folder` that the tool works in, unless its descriptor names one")
	return cmd
}

// runCheck returns the number of broken clauses. An error says why nothing could
// be checked.
func runCheck(cmd *cobra.Command, file, workdir string, o check.Options) (failed int, err error) {
	if o.Args != nil && (o.Operation == "" || jsontext.Value(o.Args).Kind() != '{' || !jsontext.Value(o.Args).IsValid()) {
		return 0, cmdline.Errorf("--args: want a JSON object, and --operation with it")
	}
	if workdir, err = filepath.Abs(workdir); err != nil {
		return 0, err
	}
	d, err := tool.LoadDescriptor(file, workdir, os.Environ())
	if err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	supervisor := proc.NewSupervisor(selfPath, zap.NewNop())
	defer supervisor.Close()
	supervisor.StartIn(neutralFolder((&resolver{getenv: os.Getenv}).defaultStateDir(), os.Getenv))
	findings, err := check.Run(ctx, d, supervisor, o)
	if err != nil {
		return 0, fmt.Errorf("check %s: %w", file, err)
	}
	for _, what := range d.Ignored {
		fmt.Fprintf(cmd.OutOrStdout(), "%-4s  %-30s  %s\n", "warn", "descriptor", what)
	}
	return printFindings(cmd.OutOrStdout(), findings), nil
}

// printFindings prints a line for each finding and their sum, and returns the
// number of failures.
func printFindings(w io.Writer, findings []check.Finding) int {
	count := make(map[check.Status]int)
	for _, f := range findings {
		count[f.Status]++
		what := f.What
		if f.Operation != "" {
			what = f.Operation + ": " + what
		}
		switch f.Status {
		case check.Skip:
			fmt.Fprintf(w, "%-4s  %-30s  %s (%s)\n", f.Status, f.Clause, what, f.Seen)
		default:
			fmt.Fprintf(w, "%-4s  %-30s  %s\n", f.Status, f.Clause, what)
		}
		if f.Status == check.Fail {
			fmt.Fprintf(w, "      seen: %s\n      fix:  %s\n", f.Seen, f.Fix)
		}
	}
	fmt.Fprintf(w, "%d ok, %d failed, %d skipped\n", count[check.OK], count[check.Fail], count[check.Skip])
	return count[check.Fail]
}

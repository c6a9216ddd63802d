package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client/servers"
	"noused/internal/cmdline"
	"noused/internal/jsonschema"
	"noused/internal/mcpfile"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/start"
)

// scriptFlags are the flags of nous prompt that are meant for scripts and pipelines.
type scriptFlags struct {
	model       string
	maxCost     float64
	maxTurns    int
	timeout     time.Duration
	schemaFile  string
	mcpConfig   string
	lastMessage string
	ephemeral   bool
	keep        string

	given func(flag string) bool
}

func (f *scriptFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "choose the `model` of the session first, as set-model does")
	flags.Float64Var(&f.maxCost, "max-cost", 0,
		"end the run when it has cost so many US `dollars`, as far as prices are known")
	flags.IntVar(&f.maxTurns, "max-turns", 0, "end the run before it calls the model more than `n` times")
	flags.DurationVar(&f.timeout, "timeout", 0, "abort the run after a `time`, as in 90s or 10m")
	flags.StringVar(&f.schemaFile, "output-schema", "",
		"print nothing but JSON that fits the JSON Schema in this `file`;\nthe model is asked for it three times at most")
	flags.StringVar(&f.mcpConfig, "mcp-config", "",
		"in a new session that has the MCP servers of this `file`, as mcp.json names them, for itself")
	flags.StringVar(&f.lastMessage, "last-message", "", "write the run's last answer to a `file`, too")
	flags.BoolVar(&f.ephemeral, "ephemeral", false,
		"in a private daemon that ends with nous, and whose sessions go away with it")
	flags.StringVar(&f.keep, "keep", "", "with --ephemeral: keep its sessions in this `folder`, which is new or empty")
	f.given = flags.Changed
}

// allowAll is the --approvals that has nous itself say yes.
const allowAll = "allow"

// checkScript refuses flags that do not go together.
func (a *app) checkScript(f promptFlags) error {
	s := f.script
	switch {
	case s.given("max-cost") && !(s.maxCost > 0):
		return cmdline.Errorf("--max-cost %v: want US dollars, more than 0", s.maxCost)
	case s.given("max-turns") && s.maxTurns < 1:
		return cmdline.Errorf("--max-turns %d: want 1 or more", s.maxTurns)
	case s.given("timeout") && s.timeout <= 0:
		return cmdline.Errorf("--timeout %s: want more than nothing", s.timeout)
	case s.given("keep") && !s.ephemeral:
		return cmdline.Errorf("--keep goes with --ephemeral")
	case s.ephemeral && (a.far != nil || a.socketGiven || a.session != "" || a.active || f.leaf != "" || f.idem != ""):
		return cmdline.Errorf("--ephemeral has a daemon and a session of its own: leave --host, --socket, --session, " +
			"--active, --leaf and --key out")
	case s.ephemeral && f.detach:
		return cmdline.Errorf("--ephemeral and --detach-on-interrupt exclude each other: its run ends with nous")
	case s.mcpConfig != "" && (a.session != "" || a.active || f.leaf != ""):
		return cmdline.Errorf("--mcp-config is of a new session: leave --session, --active and --leaf out")
	}
	if !f.async && !f.daemonWaits(a) {
		return nil
	}
	how := "--async"
	if !f.async {
		how = "--wait with --json"
	}
	for flag, set := range map[string]bool{
		"--timeout": s.timeout > 0, "--last-message": s.lastMessage != "", "--approvals allow": f.approvals == allowAll,
		"--json=result": a.result, "--detach-on-interrupt": f.detach, "--ephemeral": s.ephemeral && f.async,
	} {
		if set {
			return cmdline.Errorf("%s and %s exclude each other: nous has to follow the run for it", how, flag)
		}
	}
	return nil
}

// fileError is what is wrong with a file that a flag names.
func fileError(flag, path string, err error) error {
	if wrong := (*fs.PathError)(nil); errors.As(err, &wrong) {
		err = wrong.Err
	}
	return cmdline.Errorf("--%s %s: %v", flag, path, err)
}

// schema is the schema of the answer, nil where there is none.
func (f *scriptFlags) schema() ([]byte, error) {
	if !f.given("output-schema") {
		return nil, nil
	}
	text, err := regular.Read(f.schemaFile, protocol.MaxOutputSchema)
	if err != nil {
		return nil, fileError("output-schema", f.schemaFile, err)
	}
	_, err = jsonschema.Compile(text)
	if err == nil { // a member's name twice, which cannot be sent
		err = json.Unmarshal(text, new(jsontext.Value))
	}
	if err != nil {
		return nil, cmdline.Errorf("--output-schema %s: no JSON Schema: %v", f.schemaFile, err)
	}
	return text, nil
}

// servers are the MCP servers of the new session, nil where it has none of its own.
func (f *scriptFlags) servers() ([]protocol.MCPServer, error) {
	const maxFile = 1 << 20
	if !f.given("mcp-config") {
		return nil, nil
	}
	text, err := regular.Settings(f.mcpConfig, maxFile)
	if err != nil {
		return nil, fileError("mcp-config", f.mcpConfig, err)
	}
	file, err := mcpfile.Parse(f.mcpConfig, text)
	if err == nil && len(file.Errors) > 0 {
		err = file.Errors[0]
	}
	if err != nil {
		return nil, cmdline.Errorf("--mcp-config: %v", err)
	}
	list, err := servers.OfSession(file, os.LookupEnv)
	if err != nil {
		return nil, cmdline.Errorf("--mcp-config: %v", err)
	}
	return list, nil
}

// chooseModel gives the session the model of --model, if any.
func (a *app) chooseModel(ctx context.Context, scope protocol.Scope, name string) error {
	if name == "" {
		return nil
	}
	_, err := request(ctx, a, protocol.SetModel, protocol.SetModelParams{Scope: scope, Model: name})
	if err != nil {
		return &modelError{err}
	}
	return nil
}

// modelError says that --model names none that can be asked.
type modelError struct{ error }

func (e *modelError) Unwrap() error { return e.error }

// startPrivate has the command go on with a daemon of its own.
func (a *app) startPrivate(ctx context.Context, keep string) (*start.Private, error) {
	if keep != "" {
		path, err := filepath.Abs(keep)
		if err != nil {
			return nil, fileError("keep", keep, err)
		}
		there, err := os.ReadDir(path)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fileError("keep", keep, err)
		case len(there) > 0:
			return nil, cmdline.Errorf("--keep %s: the folder is not empty: name one that is new or empty", keep)
		}
		keep = path
	}
	o := a.starting()
	private, err := start.StartPrivate(ctx, o, keep)
	if err == nil {
		a.socket, a.socketGiven, a.noStart = private.Socket, true, true
		a.patience = 0 // nobody starts it again
	}
	return private, err
}

// jsonFlag is the flag --json of all commands.
type jsonFlag app

// Set takes true, false or result.
func (f *jsonFlag) Set(value string) error {
	if f.result = value == "result"; f.result {
		f.JSON = true
		return nil
	}
	on, err := strconv.ParseBool(value)
	f.JSON = on
	return err
}

func (f *jsonFlag) String() string { return strconv.FormatBool(f.JSON) }

// Values is what errors say that it takes.
func (f *jsonFlag) Values() string { return "true, false or, with prompt, result" }

// Type has help show it as a switch.
func (f *jsonFlag) Type() string { return "bool" }

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/agent"
	"noused/internal/buildinfo"
	"noused/internal/cmdline"
	"noused/internal/doctor"
	"noused/internal/fleet"
	"noused/internal/format"
	"noused/internal/mcpfile"
	modelwire "noused/internal/model/wire"
	"noused/internal/plaintext"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/tool"
	"noused/internal/tool/builtin"
	"noused/internal/xdg"
)

// doctorCommand is `noused doctor`: what a daemon with the same flags would
// find, told without one. getenv is the daemon's environment.
func doctorCommand(getenv func(string) string) *cobra.Command {
	var fix, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check configuration, sockets, sessions, tools, model and service",
		Long: `doctor checks everything that a daemon with the same flags, environment and
configuration file uses. It prints one line for each check: ok, warn or FAIL,
the area, and what was found. Below a warning or a failure it says what to do.

It can be run at any time. It asks a running daemon only whether it answers and
which model it has, the model's server only for the list of its models, and the
server of its fleet only whether it lets the daemon in. It starts no tools, has
the agents that the configuration names say what they are, and writes nothing.

With --fix it repairs what is safe to repair, and says what it did:

  - it removes socket files that nobody listens on, and what a crash left of
    unfinished sessions
  - it makes your files and folders private where others may read them
  - it cuts off the torn last line of a journal, and keeps it in FILE.damaged

The state directory is repaired only if no daemon uses it. No daemon can start
in it meanwhile.

The exit status is 1 if a check FAILs, else 0.`,
		Example: "  noused doctor --fix",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			r := &report{out: cmd.OutOrStdout(), json: asJSON}
			failed, err := examine(ctx, cmd, getenv, fix, r.printFinding)
			if err == nil {
				err = r.end()
			}
			if err == nil && failed > 0 {
				err = fmt.Errorf("%d of %d checks failed", failed, r.told)
			}
			return err
		},
	}
	registerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what is safe to mend")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// examine puts together what the daemon would be started with and has it looked
// at. A configuration that is wrong is the only finding then: nobody knows what
// the rest would be.
func examine(ctx context.Context, cmd *cobra.Command, getenv func(string) string, fix bool, tell func(doctor.Finding)) (
	failed int, err error,
) {
	cfg, err := readSettings(cmd.Flags(), getenv)
	if err != nil {
		tell(doctor.Finding{
			Status: doctor.Fail, Area: doctor.Configuration, What: err.Error(),
			Fix: "correct it and run doctor again; all other checks depend on it",
		})
		return 1, nil
	}
	for _, problem := range cfg.Problems {
		failed++
		tell(doctor.Finding{
			Status: doctor.Fail, Area: doctor.Model, What: problem.Error(),
			Fix: "mend the file, and have the daemon read it: nous tools reload",
		})
	}
	r := &resolver{flags: cmd.Flags(), getenv: getenv}
	r.readFile()
	rules, err := loadRules(cfg.Policy)
	if err != nil {
		return 0, err
	}
	supervisor := proc.NewSupervisor(selfPath, zap.NewNop())
	supervisor.Hide(hidden(cfg))
	if !cfg.Sandbox.Network {
		supervisor.CloseNetwork()
	}
	defer supervisor.Close()
	ask := &ownModel{made: newModels(cfg.vendors(getenv), nil)}
	defer ask.made.Close()
	o := doctor.Options{
		Config: r.file.path, Socket: cfg.Socket, DefaultSocket: protocol.DefaultSocket(getenv), StateDir: cfg.StateDir,
		Workdir: cfg.Workdir, ToolsDirs: cfg.ToolsDirs, ServersFile: filepath.Join(cfg.ConfigDir, mcpfile.Name),
		Provider: cfg.Model.Provider, ModelName: cfg.Model.Name,
		KeyVariable: cfg.vendors(getenv).config(cfg.Model.Provider, true).APIKeyEnv,
		Models:      ask.models, Window: ask.window, Fallbacks: ask.fallbacks(), Folders: projectsOf(cfg.Workdir),
		Agents:  r.agentsToTry(cfg, supervisor),
		Environ: os.Environ(), Home: r.home(), RuntimeDir: getenv("XDG_RUNTIME_DIR"),
		UnitDirs: []string{
			filepath.Join(xdg.Config(getenv), "systemd/user"), "/etc/systemd/user",
			filepath.Join(xdg.Data(getenv), "systemd/user"), "/usr/local/lib/systemd/user",
			"/usr/lib/systemd/user",
		},
		Linger:      lingerFile(),
		ServicePath: servicePath,
		Version:     buildinfo.Version(),
		Sandbox:     func(d *tool.Descriptor) error { _, err := d.Confine(supervisor); return err },
		Confinement: supervisor.Confinement,
		Policy:      rules,
		Hidden:      hidden(cfg).Paths, Dots: hidden(cfg).Dots, Offline: !cfg.Sandbox.Network,
		Fix: fix,
	}
	if cfg.BuiltinTools {
		files, err := builtin.Descriptor(selfPath, cfg.Workdir, o.Environ)
		if err != nil {
			return 0, err
		}
		o.Builtin = append(o.Builtin, files)
	}
	if f := cfg.Fleet; len(f.URLs) > 0 {
		o.FleetServer, o.Fleet = strings.Join(f.URLs, ", "), f.lookedAt
	}
	more, err := doctor.Run(ctx, o, tell)
	return failed + more, err
}

// lookedAt tells whether the daemon could join its fleet's server.
func (f fleetSettings) lookedAt(ctx context.Context) (away bool, err error) {
	conn, err := f.Connect.Dial(ctx, "noused doctor of "+f.Name)
	if err != nil {
		return fleet.Away(err), err
	}
	conn.Close()
	return false, nil
}

// lingerFile is there where the user's services outlast a logout.
func lingerFile() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return filepath.Join("/var/lib/systemd/linger", u.Username)
}

// ownModel is the daemon's model and what its server says.
type ownModel struct{ made *models }

// models are those that the server lists.
func (a *ownModel) models(ctx context.Context) ([]string, error) {
	s, err := a.made.at(a.made.choice())
	if err != nil {
		return nil, err
	}
	listed, err := askServer(ctx, s, knownPatience)
	if err == nil {
		a.made.heard(a.made.choice(), modelwire.WindowOf(listed, s.Model))
	}
	return modelwire.NamesOf(listed), err
}

// agentTime is how long an agent has to say what it is.
const agentTime = 10 * time.Second

// agentsToTry are the agents that the configuration names.
func (r *resolver) agentsToTry(cfg Config, supervisor *proc.Supervisor) (list []doctor.Agent) {
	agents := agent.New(agent.Options{
		Specs: cfg.Agents, Version: buildinfo.Version(),
		Start: func(ctx context.Context, s agent.Spec, c proc.Command) (agent.Process, error) {
			c.Env = tool.EnvironWith(os.Environ(), s.Env)
			if !s.Sandbox {
				return supervisor.Start(ctx, c)
			}
			box, err := supervisor.Sandboxed(proc.Sandbox{Name: s.Name, Workdir: c.Dir, Write: s.Writable})
			if err != nil {
				return nil, err
			}
			return box.Start(ctx, c)
		},
	})
	v, from := r.file.find("agent")
	named := r.asTable(v, from)
	for _, s := range agents.List() {
		if _, has := named[s.Name]; !has && s.Name != cfg.DefaultAgent {
			continue
		}
		one := doctor.Agent{Name: s.Name, Try: func(ctx context.Context) (string, error) {
			return agents.Try(ctx, s.Name, cfg.Workdir, agentTime)
		}}
		path, missing := s.Path()
		if _, own := s.Env["PATH"]; !own && missing == nil {
			one.Needs = lookedUp(s.Command[0], path)
		}
		if yes, known := s.SignedIn(tool.EnvironWith(os.Environ(), s.Env)); missing == nil && known && !yes {
			one.SignIn = s.SignIn
		}
		list = append(list, one)
	}
	return list
}

// lookedUp are the programs that are looked up in PATH to start a command, which is at a path:
// the command itself, and what its first line has env find.
func lookedUp(command, path string) (names []string) {
	if !strings.Contains(command, "/") {
		names = append(names, command)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return names
	}
	f, err := regular.Open(real, os.O_RDONLY)
	if err != nil {
		return names
	}
	defer f.Close()
	begin, _ := io.ReadAll(io.LimitReader(f, 256))
	line, _, _ := strings.Cut(string(begin), "\n")
	if words, ok := strings.CutPrefix(line, "#!/usr/bin/env "); ok {
		for _, word := range strings.Fields(words) {
			if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
				return append(names, word)
			}
		}
	}
	return names
}

// servicePath is the PATH that the user's systemd gives to what it starts.
func servicePath(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "--user", "--no-pager", "show-environment")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if path, ok := strings.CutPrefix(line, "PATH="); ok && !strings.HasPrefix(path, "$") { // else it is quoted
			return strings.TrimSpace(path)
		}
	}
	return ""
}

// fallbacks are the models that answer while another cannot. A module is not started to see
// whether it could.
func (a *ownModel) fallbacks() (list []doctor.Fallback) {
	for _, c := range a.made.Fallbacks() {
		f := doctor.Fallback{Model: c.Provider + "/" + c.Name}
		if c.Provider != "module" {
			_, f.Err = a.made.Model(c)
		}
		if f.Err != nil {
			f.Err = errors.New(strings.TrimPrefix(f.Err.Error(), f.Model+": "))
		}
		if variable := a.made.config(c.Provider, false).APIKeyEnv; variable != "" && a.made.key(c.Provider, variable) == "" {
			f.Provider = c.Provider
		}
		list = append(list, f)
	}
	return list
}

// projectsOf are the folders whose hooks a person means who asks: the one that doctor was
// started in, and the daemon's.
func projectsOf(workdir string) (folders []string) {
	here, _ := os.Getwd()
	for _, dir := range []string{here, workdir} {
		if real, err := filepath.EvalSymlinks(dir); dir != "" && err == nil {
			folders = append(folders, real)
		}
	}
	return folders
}

// window is how many tokens the model can read, and who says so.
func (a *ownModel) window() (int64, string) { return a.made.window(a.made.choice()) }

// report prints findings as they come.
type report struct {
	out  io.Writer
	json bool

	told  int
	count [3]int // ok, warnings, failed
	err   error  // the first of writing
}

func (r *report) printFinding(f doctor.Finding) {
	r.told++
	var text []byte
	switch f.Status {
	case doctor.OK:
		r.count[0]++
	case doctor.Warn:
		r.count[1]++
	case doctor.Fail:
		r.count[2]++
	}
	if r.json {
		line, err := json.Marshal(f, jsontext.AllowInvalidUTF8(true))
		r.err = errors.Join(r.err, err)
		text = append(plaintext.JSON(line), '\n')
	} else {
		status := string(f.Status)
		if f.Status == doctor.Fail {
			status = "FAIL"
		}
		text = fmt.Appendf(text, "%-4s  %-13s  %s\n", status, f.Area, printable(f.What))
		if f.Fix != "" {
			text = fmt.Appendf(text, "      fix:  %s\n", printable(f.Fix))
		}
		if f.Done != "" {
			text = fmt.Appendf(text, "      done: %s\n", printable(f.Done))
		}
	}
	if r.err == nil {
		_, r.err = r.out.Write(text)
	}
}

// end prints the sum and returns why something could not be printed.
func (r *report) end() error {
	if !r.json && r.err == nil {
		_, r.err = fmt.Fprintf(r.out, "%d ok, %s, %d failed\n", r.count[0], format.Count(r.count[1], "warning"), r.count[2])
	}
	return r.err
}

// printable keeps what is in files' names, and line ends, from the terminal.
func printable(text string) string { return strings.ReplaceAll(plaintext.Clean(text), "\n", " ") }

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/uuid"
	"github.com/oklog/run"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/agent"
	"noused/internal/audit"
	"noused/internal/budget"
	"noused/internal/buildinfo"
	"noused/internal/event"
	"noused/internal/fleet/host"
	"noused/internal/hook"
	"noused/internal/idlemem"
	"noused/internal/instructions"
	"noused/internal/lock"
	"noused/internal/model"
	"noused/internal/notify"
	"noused/internal/oauth"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/server"
	"noused/internal/session"
	"noused/internal/tool"
	"noused/internal/tool/amplifier"
	"noused/internal/tool/builtin"
	"noused/internal/tool/gevals"
	"noused/internal/tool/mcp"
	"noused/internal/tool/narratoria"
	"noused/internal/tool/registry"
	"noused/internal/trust"
	"noused/internal/worktree"
)

// newID makes an id that is unique for ever: a UUIDv7 behind a short prefix.
func newID(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }

// shared is the memory, in bytes, that all clients have together beside the
// longest line.
const shared = 8 << 20

// selfPath is this program as it runs, though another may have been installed
// since.
const selfPath = "/proc/self/exe"

// leaveNoCores has neither this process nor anything that it starts leave its memory
// in a file, no matter who tries to raise the limit later. 1 byte is too little for a file,
// and the one limit that keeps the kernel from handing a core to a program, too: with 0
// it does (core(5), core_pattern).
func leaveNoCores() error {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		return fmt.Errorf("the limit of core files: %w", err)
	}
	own.Max = min(own.Max, 1)
	own.Cur = own.Max
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &own); err != nil {
		return fmt.Errorf("the limit of core files: %w", err)
	}
	return nil
}

// Daemon is one daemon, wired together.
type Daemon struct {
	cfg  Config
	read func() (Config, error) // reads it again

	reloading sync.Mutex // held by reload
	out       *logOutput
	log       *zap.Logger // out's
	info      protocol.DaemonInfo

	levels, stops, hangups chan os.Signal

	store     *session.Store
	sockets   *server.Sockets
	forAgents *server.Sockets // nil: hosted agents get none of our tools
	tokens    tokens
	debug     *debugging // nil: none
	audit     *audit.Log
	rules     *rules
	events    *event.Log
	tools     *registry.Registry
	models    *liveModels
	agents    *agent.Agents
	kept      []agent.Left // for the next program
	hooks     *hook.Hooks
	hub       *runloop.Hub
	mux       *protocol.Mux
	agentMux  *protocol.Mux // of forAgents
	fleet     *host.Host    // nil: none

	held     *budget.Budget // memory, of all clients
	readers  *server.Readers
	rest     *idlemem.Rest
	status   *statusLine // nil: nobody listens
	notifier *notify.Notifier
	pruning  *pruner
	leaving  *shutdown

	closers []func() // of what is open, the last opened last
}

// New opens the daemon's files and sockets, and wires its parts. After an error
// nothing is left open. read reads the configuration again.
func New(cfg Config, read func() (Config, error), out *logOutput) (*Daemon, error) {
	d := &Daemon{
		cfg: cfg, read: read, out: out, log: out.Logger, mux: new(protocol.Mux), agentMux: new(protocol.Mux),
		levels: make(chan os.Signal, 4), stops: make(chan os.Signal, 1), hangups: make(chan os.Signal, 1),
		held: budget.New(cfg.MaxLine + shared), readers: new(server.Readers),
		info: protocol.DaemonInfo{
			Version: buildinfo.Version(), Epoch: newID("ep-"), PID: os.Getpid(),
			StartedAt: time.Now().UTC(), Log: out.to,
		},
	}
	d.atClose(func() { _ = d.log.Sync() })
	for _, step := range []func() error{d.open, d.load, d.wire, d.bind} {
		if err := step(); err != nil {
			d.Close()
			return nil, err
		}
	}
	d.rest.Worked()
	return d, nil
}

// Close releases what New has opened, the last first.
func (d *Daemon) Close() {
	for _, release := range slices.Backward(d.closers) {
		release()
	}
}

func (d *Daemon) atClose(release func()) { d.closers = append(d.closers, release) }

// open prepares the process, and opens what only one daemon can have.
func (d *Daemon) open() (err error) {
	signal.Notify(d.levels, levelSignals...) // from here on they end nothing
	d.atClose(func() { signal.Stop(d.levels) })
	// A tool that is the user's own, and in no sandbox, could else read the keys in
	// this process's environment. Programs that it executes are as ever. It hides
	// the daemon's open files and program from the user, too: a user who needs to know
	// about the daemon asks it.
	if err := proc.Conceal(); err != nil {
		d.log.Warn("the environment cannot be hidden from tools", zap.Error(err))
	}
	if err := leaveNoCores(); err != nil {
		return err
	}
	boundMemory()
	if d.store, err = openStore(d.cfg.StateDir); err != nil {
		return running(err)
	}
	d.atClose(func() { _ = d.store.Close() })
	if d.sockets, err = openSockets(d.cfg.Socket); err != nil {
		return running(err)
	}
	d.atClose(d.sockets.Close)
	if d.tokens, err = openTokens(d.cfg.StateDir); err != nil {
		return running(err)
	}
	d.openAgentSockets()
	if d.debug, err = openDebug(d.cfg.DebugSocket, d.log); err != nil {
		return running(err)
	}
	d.atClose(d.debug.close)
	return nil
}

// load reads the rules and the tools.
func (d *Daemon) load() (err error) {
	d.audit, err = audit.Open(filepath.Join(d.cfg.StateDir, "audit.jsonl"), d.cfg.Retention.AuditLarger,
		d.log.Named("audit"))
	if err != nil {
		return err
	}
	d.atClose(d.audit.Close)
	if d.rules, err = openRules(d.cfg.Policy); err != nil {
		return err
	}
	d.events = event.New(d.info.Epoch, d.cfg.EventBuffer, time.Now)
	if d.tools, err = d.openTools(); err != nil {
		return err
	}
	d.atClose(func() { d.tools.Close(context.Background()) }) // for a second time where Run has ended
	d.agents = d.openAgents()
	d.atClose(d.agents.Close)
	d.takeOver()
	d.openHooks()
	return nil
}

// wire makes the hub, and what it works with.
func (d *Daemon) wire() error {
	models := newModels(d.cfg.vendors(os.Getenv), d.tools)
	if err := models.keepSpending(d.cfg, d.log); err != nil {
		return err
	}
	d.models = &liveModels{}
	d.models.now.Store(models)
	d.atClose(d.models.Close)
	for _, err := range append(d.cfg.Problems, d.models.problem()) {
		if err != nil {
			d.log.Error("model", zap.Error(err))
		}
	}
	told, err := openInstructions(d.cfg)
	if err != nil {
		return err
	}
	d.status = newStatusLine(d.store.IDs)
	d.rest = idlemem.New(func() bool { running, _, _ := d.hub.Load(); return running == 0 })
	d.atClose(d.rest.Stop)
	disk := newDiskUse(d.cfg.StateDir)
	d.atClose(disk.close)
	word := d.cfg.Notify
	word.Session = func(id string) (protocol.SessionInfo, bool) { return d.hub.Known(id) }
	word.Start, word.Log, word.Environ = d.tools.Start, d.log.Named("notify"), notifyEnviron()
	d.notifier = notify.New(word)
	d.atClose(d.notifier.Close)
	d.hub = runloop.NewHub(runloop.Options{
		Store: d.store, Models: d.models, MaxSteps: d.cfg.Model.MaxSteps, Limits: d.cfg.Limits, Spent: d.models.today,
		Instructions: instructionsAdapter{told, d.models}, Tools: d.tools, Modules: modules{d.tools, d.hooks},
		Agents: hostedAgents{d.agents}, Token: d.tokens.is,
		Changes:         d.openChanges(),
		Children:        d.cfg.Children,
		Worktrees:       childTrees{confinedGit(d.tools), worktree.Home(os.Getenv)},
		Policy:          judge{d.tools, d.rules, d.hooks},
		ApprovalTimeout: d.cfg.Policy.ApprovalTimeout,
		Events:          loggedEvents{d.events, d.out, d.notifier, d.status, d.rest}, Daemon: d.info, Workdir: d.cfg.Workdir,
		Now: time.Now, NewID: newID,
		Health: health{
			d.events, d.readers, disk, d.out.errors, func() *protocol.FleetState { return d.fleet.State() },
		}.report,
		Held: d.held, Audit: func(ev model.AuditEvent) {
			d.audit.Record(ev)
			if ev.Component == "session" { // one may have come or gone
				d.status.nudge()
			}
		},
		Fault: func(sessionID string, err error) {
			d.log.Error("session", zap.String("session_id", sessionID), zap.Error(err))
		},
	})
	d.tools.TellJobEnds(d.hub.JobEnded)
	protocol.Handle(d.mux, protocol.ListModels,
		func(ctx context.Context, p protocol.ListModelsParams) (protocol.Answer[protocol.Models], error) {
			own := catalog{d.models.now.Load().vendors, d.tools.Providers, localServers}
			if p.SessionID == "" {
				return own.handle(ctx, p)
			}
			return d.modelsOf(ctx, own, p)
		})
	protocol.HandleFunc(d.mux, protocol.ListAgents,
		func(context.Context, protocol.ListAgentsParams) (protocol.Agents, error) {
			return listAgents(d.agents), nil
		})
	protocol.Handle(d.mux, protocol.ListSkills, skills{told, d.hub.Workdir}.handle)
	return nil
}

// bind gives every command its handler, and joins the fleet.
func (d *Daemon) bind() (err error) {
	d.hub.Bind(d.mux)
	d.hub.BindAgents(d.agentMux)
	for _, mux := range []*protocol.Mux{d.mux, d.agentMux} {
		protocol.HandleFunc(mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
			return protocol.Pong{Message: "pong", Version: d.info.Version, PID: d.info.PID}, nil
		})
	}
	d.leaving = &shutdown{
		cfg: d.cfg, store: d.store, sockets: d.sockets, forAgents: d.forAgents, asked: make(chan struct{}),
	}
	protocol.HandleFunc(d.mux, protocol.Shutdown, d.leaving.shutdown)
	protocol.HandleFunc(d.mux, protocol.ReloadTools,
		func(context.Context, protocol.ReloadToolsParams) (protocol.ToolsReloaded, error) {
			return d.reload(), nil
		})
	d.pruning = newPruner(d.cfg, d.hub, d.tools, d.audit, d.log)
	protocol.Handle(d.mux, protocol.Prune, d.pruning.handle)
	if missing := d.mux.Missing(); missing != nil {
		return fmt.Errorf("commands without a handler: %v", missing)
	}
	d.fleet, err = d.openFleet()
	return err
}

// running says in the user's words that a lock of the daemon's is held.
func running(err error) error {
	var held *lock.HeldError
	if !errors.As(err, &held) {
		return err
	}
	who := "another process"
	if held.PID != 0 {
		who = fmt.Sprintf("process %d", held.PID)
	}
	return fmt.Errorf("a daemon runs already as %s; a second one needs a --state-dir and a --socket of its own (%w)", who,
		err)
}

// openTools loads the tools, the built-in ones first, and starts none.
func (d *Daemon) openTools() (*registry.Registry, error) {
	cfg := d.cfg
	trust.Writable(cfg.Workdir, worktree.Home(os.Getenv))
	o := registry.Options{
		Dirs: cfg.ToolsDirs, ConfigDir: cfg.ConfigDir, Workdir: cfg.Workdir, WorkdirNamed: cfg.WorkdirNamed,
		Neutral: neutralFolder(cfg.StateDir, os.Getenv), OutputDir: outputDir(cfg), CacheDir: cfg.CacheDir, Logger: d.log,
		Hidden: hidden(cfg), Offline: !cfg.Sandbox.Network,
		Dialects: map[string]tool.Dialect{
			tool.Narratoria: narratoria.Dialect, tool.Gevals: gevals.Dialect, tool.Amplifier: amplifier.Dialect,
			tool.MCP: mcp.Dialect(mcp.Options{
				Version: buildinfo.Version(), OutputDir: outputDir(cfg),
				CacheDir: filepath.Join(cfg.StateDir, "mcp"), Logins: loginsOf(cfg),
			}),
		},
		Policy: d.rules.Set, Audit: d.audit, Helper: selfPath, Left: takenOver.processes(),
		Changed: func(server string) {
			d.events.Append(protocol.Status{
				Code:    protocol.StatusToolsChanged,
				Message: fmt.Sprintf("the MCP server %s has other tools now", server),
			})
		},
	}
	if cfg.BuiltinTools {
		files, err := builtin.Descriptor(selfPath, cfg.Workdir, os.Environ())
		if err != nil {
			return nil, err
		}
		o.Descriptors = append(o.Descriptors, files)
	}
	for _, dir := range cfg.ToolsDirs {
		if _, err := os.Stat(dir); err != nil {
			d.log.Info("no tools directory", zap.String("path", dir))
		}
	}
	if cfg.BuiltinTools {
		for _, path := range exposed(cfg) {
			d.log.Warn("the working directory holds files of the daemon, which the built-in tools can change; choose a "+
				"workdir that does not hold them",
				zap.String("workdir", cfg.Workdir), zap.String("inside", path))
		}
	}
	tools := registry.New(o)
	for _, err := range tools.Errors() {
		d.log.Error("tool not loaded", zap.Error(err))
	}
	return tools, nil
}

// outputDir has what was too long for a model.
func outputDir(cfg Config) string { return filepath.Join(cfg.StateDir, "tool-output") }

// loginsOf is what people were granted at MCP servers.
func loginsOf(cfg Config) *oauth.Store {
	return oauth.Open(filepath.Join(cfg.StateDir, "mcp", "logins"))
}

// exposed are those of the daemon's files that tools of the working directory can
// change. In folders that are hidden from them they cannot, so that the home folder, where a
// service works, is none to warn of.
func exposed(cfg Config) (paths []string) {
	in := func(dir, path string) bool {
		rel, err := filepath.Rel(dir, path)
		return err == nil && filepath.IsLocal(rel)
	}
	for _, path := range append([]string{cfg.Socket, cfg.DebugSocket}, cfg.ToolsDirs...) {
		private := slices.ContainsFunc(cfg.Private, func(dir string) bool { return in(dir, path) && dir != cfg.Workdir })
		if path != "" && in(cfg.Workdir, path) && !private {
			paths = append(paths, path)
		}
	}
	return paths
}

// hidden is what sandboxed tools must not read: what is the daemon's own, and what of
// the user's home [sandbox] says. Tools are programs to be read, and so are the user's
// instructions and skills.
func hidden(cfg Config) proc.Hidden {
	h := cfg.Sandbox.Hidden
	h.Paths = slices.Concat(cfg.Private, []string{cfg.LogDir, cfg.CacheDir}, h.Paths)
	h.Except = slices.Clip(h.Except)
	for _, path := range append([]string{
		instructions.AgentsFile(cfg.ConfigDir), instructions.SkillsDir(cfg.ConfigDir),
	}, cfg.ToolsDirs...) {
		h.Except = append(h.Except, proc.Resolve(path))
	}
	return h
}

// Run serves until it is told to stop, and returns nil then, or a *restartError where
// the daemon is to start anew.
//
// A group of actors has no order of its own, so the order of the stop is carried by
// data: the signal ends the hub's context; the hub drains its runs while commands are
// still answered, and closes the event log; event connections end when they have
// drained that; only then do the command connections end.
func (d *Daemon) Run(ctx context.Context) error {
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	drained, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	self := newRoundTrip(func(ctx context.Context) error { return unlessStopping(ctx, stopping, d.hub.Ping) }, d.sockets)
	ignored := make(chan os.Signal, 1)
	signal.Notify(d.stops, unix.SIGINT, unix.SIGTERM)
	signal.Notify(d.hangups, unix.SIGHUP)
	// What reads its log may end. Not signal.Ignore: children would inherit that.
	signal.Notify(ignored, unix.SIGPIPE)
	defer signal.Stop(d.hangups) // while it stops, these end nothing either
	defer signal.Stop(ignored)
	if owner != nil {
		go func() { // ends with the owner, or with this process
			owner.Wait()
			_ = unix.Kill(unix.Getpid(), unix.SIGTERM)
		}()
	}
	var g run.Group
	add := func(actor func() error) { g.Add(actor, func(error) { stop() }) }
	add(func() error {
		d.obey(stopping, drained, stop)
		return nil
	})
	add(func() error {
		err := d.hub.Run(stopping)
		d.drain()
		d.events.Close()
		d.fleet.Close()
		d.notifier.Close()
		d.leaveAgents()
		d.tools.Close(context.WithoutCancel(ctx))
		finish()
		return err
	})
	lines := server.Lines{Max: d.cfg.MaxLine, Held: d.held}
	add(func() error {
		return server.ServeCommands(drained, d.sockets.Commands, d.mux, lines, d.log)
	})
	add(func() error {
		return server.ServeEvents(drained, d.sockets.Events, d.events, d.readers, lines, d.log)
	})
	theirs := server.Lines{Max: d.cfg.MaxLine, Held: budget.New(d.cfg.MaxLine + shared)} // nothing of what people have
	d.serveAgents(drained, add, theirs)
	add(func() error { return d.debug.serve(drained) })
	add(func() error { return d.pruning.run(stopping) })
	// a restart may drain for longer than systemd waits
	add(func() error { return watchdog(drained, d.log, self.answers) })
	add(func() error {
		if self.answers(stopping) == nil {
			d.log.Info("ready", zap.String("socket", d.cfg.Socket), zap.String("state_dir", d.cfg.StateDir),
				zap.String("version", buildinfo.Version()))
			sayReady()
			d.status.keep(stopping, func(state string) { sdNotify(d.log, state) })
		}
		return nil
	})
	d.fleet.Start()
	var warming sync.WaitGroup
	warming.Go(d.warm) // ends by itself
	err := g.Run()
	warming.Wait()
	signal.Stop(d.stops) // from here on it has its effect at once
	select {
	case s := <-d.stops:
		d.halt(s)
	default:
	}
	defer d.log.Info("stopped")
	if err != nil && !errors.Is(err, context.Canceled) {
		d.tools.EndKept()
		return err
	}
	return d.ending()
}

// obey does what signals and clients ask, and returns when the daemon is to stop. A
// restart waits for the runs to end: a signal until then counts for more.
func (d *Daemon) obey(stopping, drained context.Context, stop func()) {
	for waiting := true; waiting; {
		select {
		case <-d.hangups: // also the terminal it was started from has closed
			reloading(d.log)
			d.reload()
			sdNotify(d.log, sd.SdNotifyReady)
		case s := <-d.levels:
			d.out.turn(s)
		case s := <-d.stops:
			d.halt(s)
			waiting = false
		case <-d.leaving.asked:
			d.log.Info("stopping", zap.Bool("restart", d.leaving.end() != nil))
			waiting = false
			stop()
		case <-stopping.Done():
			waiting = false
		}
	}
	if d.leaving.end() != nil {
		select {
		case s := <-d.stops:
			d.halt(s)
		case <-drained.Done():
		}
	}
	if d.leaving.end() == nil {
		signal.Stop(d.stops)
		sdNotify(d.log, sd.SdNotifyStopping+"\nSTATUS=stopping")
	}
}

// halt has the daemon stop, as a signal says; another one ends it at once.
func (d *Daemon) halt(s os.Signal) {
	signal.Stop(d.stops)
	d.log.Info("stopping", zap.Stringer("signal", s))
	d.leaving.halt()
}

// loggedEvents tells the log what a person reading it wants to know of the
// runs: a line for each start and end, warning and error, none for a delta.
type loggedEvents struct {
	*event.Log
	log    *logOutput
	word   *notify.Notifier
	status *statusLine
	rest   *idlemem.Rest
}

// notifyEnviron is the daemon's environment for a program of the user's, without
// what is between the daemon and systemd.
func notifyEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_") ||
			proc.Reserved(name)
	})
}

// Append publishes the events.
func (l loggedEvents) Append(events ...protocol.Event) [][]byte {
	for _, ev := range events { // anyone who hears of it finds it in the state
		if end, ok := ev.(protocol.AgentEnd); ok && end.Error != nil {
			l.log.errors.add(protocol.LoggedError{At: time.Now().UTC(), Message: fmt.Sprintf("a run has failed: %s: %s",
				end.Error.Code, end.Error.Message), SessionID: end.SessionID})
		}
	}
	lines := l.Log.Append(events...)
	for _, ev := range events {
		l.word.Tell(ev)
		l.status.saw(ev)
		ref := ev.Where()
		fields := []zap.Field{zap.String("run_id", ref.RunID), zap.String("session_id", ref.SessionID)}
		switch ev := ev.(type) {
		case protocol.AgentStart:
			l.log.Info("run started", fields...)
		case protocol.AgentEnd:
			l.rest.Worked()
			fields = append(fields, zap.String("stop_reason", string(ev.StopReason)), zap.Int("turns", ev.Turns))
			if ev.Error != nil {
				fields = append(fields, zap.String("code", string(ev.Error.Code)), zap.String("error", ev.Error.Message))
			}
			l.log.Info("run ended", fields...)
		case protocol.Status:
			if ev.Code == protocol.StatusRunResumed {
				l.log.Info("run resumed", fields...)
			}
		case protocol.Warning:
			l.log.Warn(ev.Message, append(fields, zap.String("code", string(ev.Code)))...)
		case protocol.ErrorEvent:
			l.log.Error(ev.Message, append(fields, zap.String("code", string(ev.Code)), zap.String("cause", ev.Cause))...)
		}
	}
	return lines
}

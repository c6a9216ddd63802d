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

	"noused/internal/audit"
	"noused/internal/budget"
	"noused/internal/buildinfo"
	"noused/internal/event"
	"noused/internal/fleet/host"
	"noused/internal/idlemem"
	"noused/internal/instructions"
	"noused/internal/lock"
	"noused/internal/mcpfile"
	"noused/internal/model"
	"noused/internal/notify"
	"noused/internal/oauth"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/server"
	"noused/internal/tool"
	"noused/internal/tool/amplifier"
	"noused/internal/tool/builtin"
	"noused/internal/tool/gevals"
	"noused/internal/tool/mcp"
	"noused/internal/tool/narratoria"
	"noused/internal/tool/registry"
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
// in a file, whoever tries to raise the limit later. 1 byte is too little for a file,
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

// serve runs the daemon until it is told to stop. An error means that it could
// not start.
func serve(ctx context.Context, cfg Config, out *logOutput) error {
	log := out.Logger
	defer func() { _ = log.Sync() }()
	levels := make(chan os.Signal, 4)
	signal.Notify(levels, levelSignals...) // from here on they end nothing
	defer signal.Stop(levels)
	// A tool that is the user's own, and in no sandbox, could else read the keys in
	// this process's environment. Programs that it executes are as ever. It hides
	// the daemon's open files and program from the user, too: whoever needs to know
	// about the daemon asks it.
	if err := proc.Conceal(); err != nil {
		log.Warn("the environment cannot be hidden from tools", zap.Error(err))
	}
	if err := leaveNoCores(); err != nil {
		return err
	}
	boundMemory()
	store, err := openStore(cfg.StateDir)
	if err != nil {
		return running(err)
	}
	defer func() { _ = store.Close() }()
	sockets, err := openSockets(cfg.Socket)
	if err != nil {
		return running(err)
	}
	defer sockets.Close()
	debug, err := openDebug(cfg.DebugSocket, log)
	if err != nil {
		return running(err)
	}
	defer debug.close()

	journal, err := audit.Open(filepath.Join(cfg.StateDir, "audit.jsonl"), cfg.Retention.AuditLarger, log.Named("audit"))
	if err != nil {
		return err
	}
	defer journal.Close()
	allowed, err := openRules(cfg.Policy)
	if err != nil {
		return err
	}
	info := protocol.DaemonInfo{Version: buildinfo.Version(), Epoch: newID("ep-"), PID: os.Getpid(), StartedAt: time.Now().UTC(), Log: out.to}
	events := event.New(info.Epoch, cfg.EventBuffer, time.Now)
	tools, err := openTools(cfg, allowed, journal, events, log)
	if err != nil {
		return err
	}
	models := newModels(cfg.vendors(os.Getenv), tools)
	defer models.Close()
	own := models.choice()
	answering, err := models.Model(own)
	if err != nil {
		tools.Close(ctx)
		return fmt.Errorf("model %w", err)
	}
	if err := models.keepSpending(cfg, log); err != nil {
		tools.Close(ctx)
		return err
	}
	told, err := openInstructions(cfg)
	if err != nil {
		tools.Close(ctx)
		return err
	}
	held := budget.New(cfg.MaxLine + shared)
	status := newStatusLine(store.IDs)
	var hub *runloop.Hub
	rest := idlemem.New(func() bool { running, _, _ := hub.Load(); return running == 0 })
	defer rest.Stop()
	readers, disk := new(server.Readers), newDiskUse(cfg.StateDir)
	defer disk.close()
	var joined *host.Host
	word := cfg.Notify
	word.Session = func(id string) (protocol.SessionInfo, bool) { return hub.Known(id) }
	word.Start, word.Log, word.Environ = tools.Start, log.Named("notify"), notifyEnviron()
	notifier := notify.New(word)
	defer notifier.Close()
	hub = runloop.NewHub(runloop.Options{
		Store: store, Model: answering, ModelInfo: own, Models: models, MaxSteps: cfg.Model.MaxSteps, Limits: cfg.Limits, Spent: models.today,
		Instructions: surroundings{told}, Tools: tools, Modules: tools, Policy: judge{tools, allowed}, ApprovalTimeout: cfg.Policy.ApprovalTimeout, Events: loggedEvents{events, out, notifier, status, rest}, Daemon: info, Workdir: cfg.Workdir, Now: time.Now, NewID: newID,
		Health: health{events, readers, disk, out.errors, func() *protocol.FleetState { return joined.State() }}.tell,
		Held:   held, Audit: func(ev model.AuditEvent) {
			journal.Record(ev)
			if ev.Component == "session" { // one may have come or gone
				status.nudge()
			}
		},
		Fault: func(sessionID string, err error) {
			log.Error("session", zap.String("session_id", sessionID), zap.Error(err))
		},
	})
	tools.TellJobEnds(hub.JobEnded)
	mux := new(protocol.Mux)
	hub.Bind(mux)
	protocol.HandleFunc(mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
		return protocol.Pong{Message: "pong", Version: info.Version, PID: info.PID}, nil
	})
	leaving := &departure{cfg: cfg, store: store, sockets: sockets, asked: make(chan struct{})}
	protocol.HandleFunc(mux, protocol.Shutdown, leaving.shutdown)
	protocol.HandleFunc(mux, protocol.ReloadTools, func(context.Context, protocol.ReloadToolsParams) (protocol.ToolsReloaded, error) {
		return reload(tools, allowed, events, log), nil
	})
	protocol.Handle(mux, protocol.ListModels, catalog{models.vendors, tools.Providers, localServers}.handle)
	protocol.Handle(mux, protocol.ListSkills, skills{told, hub.Workdir}.handle)
	pruning := newPruner(cfg, hub, tools, journal, log)
	protocol.Handle(mux, protocol.Prune, pruning.handle)
	if missing := mux.Missing(); missing != nil {
		return fmt.Errorf("commands without a handler: %v", missing)
	}
	if joined, err = openFleet(cfg, info.Epoch, mux, hub, events, held, tools, journal, log); err != nil {
		tools.Close(ctx)
		return err
	}
	rest.Worked()
	return runGroup(ctx, cfg, out, levels, sockets, debug, mux, events, readers, hub, tools, allowed, held, notifier, pruning, status, leaving, joined)
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
	return fmt.Errorf("a daemon runs already as %s; a second one needs a --state-dir and a --socket of its own (%w)", who, err)
}

// openTools loads the tools, the built-in ones first, and starts none.
func openTools(cfg Config, allowed *rules, journal *audit.Log, events *event.Log, log *zap.Logger) (*registry.Registry, error) {
	o := registry.Options{
		Dirs: cfg.ToolsDirs, ConfigDir: cfg.ConfigDir, Workdir: cfg.Workdir, WorkdirNamed: cfg.WorkdirNamed, Neutral: neutralFolder(cfg.StateDir, os.Getenv), OutputDir: outputDir(cfg), CacheDir: cfg.CacheDir, Logger: log,
		Hidden: hidden(cfg), Offline: !cfg.Sandbox.Network,
		Dialects: map[string]tool.Dialect{
			tool.Narratoria: narratoria.Dialect, tool.Gevals: gevals.Dialect, tool.Amplifier: amplifier.Dialect,
			tool.MCP: mcp.Dialect(mcp.Options{Version: buildinfo.Version(), OutputDir: outputDir(cfg), CacheDir: filepath.Join(cfg.StateDir, "mcp"), Logins: loginsOf(cfg)}),
		},
		Policy: allowed.Set, Audit: journal, Helper: selfPath,
		Changed: func(server string) {
			events.Append(protocol.Status{Code: protocol.StatusToolsChanged, Message: fmt.Sprintf("the MCP server %s has other tools now", server)})
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
			log.Info("no tools directory", zap.String("path", dir))
		}
	}
	if cfg.BuiltinTools {
		for _, path := range exposed(cfg) {
			log.Warn("the working directory holds files of the daemon, which the built-in tools can change; choose a workdir that does not hold them",
				zap.String("workdir", cfg.Workdir), zap.String("inside", path))
		}
	}
	tools := registry.New(o)
	for _, err := range tools.Errors() {
		log.Error("tool not loaded", zap.Error(err))
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

// warm has the user's MCP servers read, and tells what is wrong with them.
func warm(cfg Config, tools *registry.Registry, events *event.Log, log *zap.Logger) {
	tools.Warm()
	unused(tools, events, log)
	for _, err := range tools.Errors() {
		if strings.Contains(err.Error(), filepath.Join(cfg.ConfigDir, mcpfile.Name)) { // the others were told
			log.Error("MCP server not loaded", zap.Error(err))
		}
	}
}

// unused warns of what the policy says and nothing fits: it may be misspelt.
func unused(tools *registry.Registry, events *event.Log, log *zap.Logger) {
	for _, rule := range tools.Unused() {
		events.Append(protocol.Warning{Code: protocol.WarningRuleUnused, Message: fmt.Sprintf("the pattern %q of the policy, %s, fits no tool", rule.Tool, rule.Place)})
		log.Warn("a pattern of the policy fits no tool", zap.String("pattern", rule.Tool), zap.Stringer("at", rule.Place))
	}
}

// reload reads the rules and the tool descriptors again.
func reload(tools *registry.Registry, allowed *rules, events *event.Log, log *zap.Logger) protocol.ToolsReloaded {
	bad := allowed.Reload()
	c := tools.Reload()
	unused(tools, events, log)
	log.Info("tools reloaded", zap.Strings("added", c.Added), zap.Strings("changed", c.Changed), zap.Strings("removed", c.Removed))
	r := protocol.ToolsReloaded{
		Added: append([]string{}, c.Added...), Changed: append([]string{}, c.Changed...), Removed: append([]string{}, c.Removed...),
		Errors: []string{},
	}
	if bad != nil {
		log.Error("rules not loaded; those from before hold", zap.Error(bad))
		r.Errors = append(r.Errors, bad.Error())
	}
	for _, err := range c.Errors {
		log.Error("tool not loaded", zap.Error(err))
		r.Errors = append(r.Errors, err.Error())
	}
	return r
}

// runGroup runs the actors. A group has no order of its own, so the order of
// the stop is carried by data: the signal ends the hub's context; the hub
// drains its runs while commands are still answered, and closes the event log;
// event connections end when they have drained that; only then do the command
// connections end.
func runGroup(ctx context.Context, cfg Config, out *logOutput, levels <-chan os.Signal, sockets *server.Sockets, debug *debugging, mux *protocol.Mux,
	events *event.Log, readers *server.Readers, hub *runloop.Hub, tools *registry.Registry, allowed *rules, held *budget.Budget, notifier *notify.Notifier, pruning *pruner, status *statusLine, leaving *departure, joined *host.Host,
) error {
	log := out.Logger
	var g run.Group
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	drained, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	self := newRoundTrip(func(ctx context.Context) error { return unlessStopping(ctx, stopping, hub.Ping) }, sockets)
	signals := make(chan os.Signal, 1)
	halted := func(s os.Signal) { // another one ends it at once
		signal.Stop(signals)
		log.Info("stopping", zap.Stringer("signal", s))
		leaving.halt()
	}
	{
		hangups, ignored := make(chan os.Signal, 1), make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
		signal.Notify(hangups, unix.SIGHUP)
		// What reads its log may end. Not signal.Ignore: children would inherit that.
		signal.Notify(ignored, unix.SIGPIPE)
		defer signal.Stop(hangups) // while it stops, these end nothing either
		defer signal.Stop(ignored)
		g.Add(func() error {
			for waiting := true; waiting; {
				select {
				case <-hangups: // also the terminal it was started from has closed
					reloading(log)
					reload(tools, allowed, events, log)
					sdNotify(log, sd.SdNotifyReady)
				case s := <-levels:
					out.turn(s)
				case s := <-signals:
					halted(s)
					waiting = false
				case <-leaving.asked:
					log.Info("stopping", zap.Bool("restart", leaving.end() != nil))
					waiting = false
					stop()
				case <-stopping.Done():
					waiting = false
				}
			}
			if leaving.end() != nil { // a signal counts for more than a restart
				select {
				case s := <-signals:
					halted(s)
				case <-drained.Done():
				}
			}
			if leaving.end() == nil {
				signal.Stop(signals)
				sdNotify(log, sd.SdNotifyStopping+"\nSTATUS=stopping")
			}
			return nil
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			err := hub.Run(stopping)
			hub.Drain(cfg.DrainTimeout)
			events.Close()
			joined.Close()
			notifier.Close()
			tools.Close(context.WithoutCancel(ctx))
			finish()
			return err
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return server.ServeCommands(drained, sockets.Commands, mux, cfg.MaxLine, held, log)
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return server.ServeEvents(drained, sockets.Events, events, readers, cfg.MaxLine, held, log)
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return debug.serve(drained)
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return pruning.run(stopping)
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return watchdog(drained, log, self.answers) // a restart may drain for longer than systemd waits
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			if self.answers(stopping) == nil {
				log.Info("ready", zap.String("socket", cfg.Socket), zap.String("state_dir", cfg.StateDir), zap.String("version", buildinfo.Version()))
				sayReady()
				status.keep(stopping, func(state string) { sdNotify(log, state) })
			}
			return nil
		}, func(error) { stop() })
	}
	joined.Start()
	var warming sync.WaitGroup
	warming.Go(func() { warm(cfg, tools, events, log) }) // ends by itself
	err := g.Run()
	warming.Wait()
	signal.Stop(signals) // from here on it has its effect at once
	select {
	case s := <-signals:
		halted(s)
	default:
	}
	log.Info("stopped")
	if err == nil || errors.Is(err, context.Canceled) {
		return leaving.end()
	}
	return err
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
		return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_") || proc.Reserved(name)
	})
}

// Append publishes the events.
func (l loggedEvents) Append(events ...protocol.Event) [][]byte {
	for _, ev := range events { // whoever hears of it finds it in the state
		if end, ok := ev.(protocol.AgentEnd); ok && end.Error != nil {
			l.log.errors.add(protocol.LoggedError{At: time.Now().UTC(), Message: fmt.Sprintf("a run has failed: %s: %s", end.Error.Code, end.Error.Message), SessionID: end.SessionID})
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

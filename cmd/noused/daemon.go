package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/uuid"
	"github.com/oklog/run"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/event"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/server"
	"noused/internal/session"
	"noused/internal/tool"
	"noused/internal/tool/gevals"
	"noused/internal/tool/narratoria"
)

// newID makes an id that is unique for ever: a UUIDv7 behind a short prefix.
func newID(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }

// serve runs the daemon until it is told to stop. An error means that it could
// not start.
func serve(ctx context.Context, cfg Config, log *zap.Logger) error {
	defer func() { _ = log.Sync() }()
	store, err := session.Open(cfg.StateDir)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	sockets, err := server.Listen(cfg.Socket)
	if err != nil {
		return err
	}
	defer sockets.Close()

	tools := tool.New(tool.Options{
		Dirs: cfg.ToolsDirs, Workdir: cfg.Workdir, OutputDir: filepath.Join(cfg.StateDir, "tool-output"), Logger: log,
		Dialects: map[string]tool.Dialect{"narratoria": narratoria.Dialect, "gevals": gevals.Dialect},
	})
	for _, err := range tools.Errors() {
		log.Error("tool not loaded", zap.Error(err))
	}
	info := protocol.DaemonInfo{Version: version(), Epoch: newID("ep-"), PID: os.Getpid(), StartedAt: time.Now().UTC()}
	events := event.New(info.Epoch, cfg.EventBuffer, time.Now)
	hub := runloop.NewHub(runloop.Options{
		Store: store, Model: offline.Model{Delay: cfg.Model.Delay},
		ModelInfo: protocol.ModelInfo{Provider: cfg.Model.Provider, Name: offline.Name},
		Tools:     tools, Events: loggedEvents{events, log}, Daemon: info, Now: time.Now, NewID: newID,
		Fault: func(sessionID string, err error) {
			log.Error("session", zap.String("session_id", sessionID), zap.Error(err))
		},
	})
	mux := new(protocol.Mux)
	hub.Bind(mux)
	protocol.HandleFunc(mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
		return protocol.Pong{Message: "pong"}, nil
	})
	if missing := mux.Missing(); missing != nil {
		return fmt.Errorf("commands without a handler: %v", missing)
	}
	return runGroup(ctx, cfg, log, sockets, mux, events, hub, tools)
}

// runGroup runs the actors. A group has no order of its own, so the order of
// the stop is carried by data: the signal ends the hub's context; the hub
// drains its runs while commands are still answered, and closes the event log;
// event connections end when they have drained that; only then do the command
// connections end.
func runGroup(ctx context.Context, cfg Config, log *zap.Logger, sockets *server.Sockets, mux *protocol.Mux,
	events *event.Log, hub *runloop.Hub, tools *tool.Registry,
) error {
	var g run.Group
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	drained, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	{
		signals, ignored := make(chan os.Signal, 1), make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
		// The terminal it was started from may close, and what reads its log may
		// end. Not signal.Ignore: children would inherit that.
		signal.Notify(ignored, unix.SIGHUP, unix.SIGPIPE)
		g.Add(func() error {
			defer signal.Stop(signals)
			defer signal.Stop(ignored)
			select {
			case s := <-signals:
				log.Info("stopping", zap.Stringer("signal", s))
			case <-stopping.Done():
			}
			notify(log, sd.SdNotifyStopping)
			return nil
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			err := hub.Run(stopping)
			hub.Drain(cfg.DrainTimeout)
			events.Close()
			tools.Close(context.WithoutCancel(ctx))
			finish()
			return err
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return server.ServeCommands(drained, sockets.Commands, mux, cfg.MaxLine, log)
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return server.ServeEvents(drained, sockets.Events, events, cfg.MaxLine, log)
		}, func(error) { stop() })
	}
	{
		g.Add(func() error {
			return watchdog(drained, log, hub.Ping)
		}, func(error) { stop() })
	}
	log.Info("ready", zap.String("socket", cfg.Socket), zap.String("state_dir", cfg.StateDir), zap.String("version", version()))
	notify(log, sd.SdNotifyReady)
	err := g.Run()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// loggedEvents tells the log what a person reading it wants to know of the
// runs: a line for each start and end, warning and error, none for a delta.
type loggedEvents struct {
	*event.Log
	log *zap.Logger
}

// Append publishes the events.
func (l loggedEvents) Append(events ...protocol.Event) [][]byte {
	lines := l.Log.Append(events...)
	for _, ev := range events {
		ref := ev.Where()
		fields := []zap.Field{zap.String("run_id", ref.RunID), zap.String("session_id", ref.SessionID)}
		switch ev := ev.(type) {
		case protocol.AgentStart:
			l.log.Info("run started", fields...)
		case protocol.AgentEnd:
			fields = append(fields, zap.String("stop_reason", ev.StopReason), zap.Int("turns", ev.Turns))
			if ev.Error != nil {
				fields = append(fields, zap.String("code", ev.Error.Code), zap.String("error", ev.Error.Message))
			}
			l.log.Info("run ended", fields...)
		case protocol.Status:
			if ev.Code == "run_resumed" {
				l.log.Info("run resumed", fields...)
			}
		case protocol.Warning:
			l.log.Warn(ev.Message, append(fields, zap.String("code", ev.Code))...)
		case protocol.ErrorEvent:
			l.log.Error(ev.Message, append(fields, zap.String("code", ev.Code), zap.String("cause", ev.Cause))...)
		}
	}
	return lines
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/detach"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/server"
)

// sayReady tells the process that has started the daemon, and waits, that both sockets answer.
// main sets it.
var sayReady = func() {}

// owner is the process that a private daemon ends with, nil of any other. main sets it.
var owner *detach.Owner

// sdNotify tells systemd a state; without systemd it does nothing.
func sdNotify(log *zap.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		level := zap.WarnLevel
		if strings.HasPrefix(state, statusWord) { // nothing depends on it
			level = zap.DebugLevel
		}
		log.Log(level, "systemd could not be notified", zap.String("state", state), zap.Error(err))
	}
}

// reloading tells systemd that what was configured is being read again, until it
// is told READY=1: Type=notify-reload wants to know since when.
func reloading(log *zap.Logger) {
	sdNotify(log, sd.SdNotifyReloading+"\n"+strings.TrimSpace(sd.SdNotifyMonotonicUsec()))
}

// watchdog tells systemd that the daemon is alive as long as answers makes its
// round trip, until ctx ends. Without a watchdog it only waits.
func watchdog(ctx context.Context, log *zap.Logger, answers func(context.Context) error) error {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd watchdog: %w", err)
	}
	if interval == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, interval/3)
		err := answers(within)
		cancel()
		if err == nil {
			sdNotify(log, sd.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Error("the daemon does not answer itself; systemd will restart it", zap.Error(err))
		}
	}
}

// crowdPause is how long the daemon waits before it tries again to connect to
// itself, where very many others do at that moment.
const crowdPause = 50 * time.Millisecond

// roundTrip is the way that clients go: the hub, the command socket and the event
// socket.
type roundTrip struct {
	hub              func(context.Context) error
	commands, events string
}

func newRoundTrip(hub func(context.Context) error, s *server.Sockets) roundTrip {
	return roundTrip{hub, s.Commands.Addr().String(), s.Events.Addr().String()}
}

// answers blocks until each part has answered, or returns ctx's error once that
// ends. A daemon that hangs up has answered, as it does where too many are
// connected. A socket that cannot be connected to for another reason, as somebody
// has removed its file, is left out: to restart the daemon would not mend it, and
// what runs would suffer.
func (r roundTrip) answers(ctx context.Context) error {
	if err := r.hub(ctx); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	for _, ask := range []func(context.Context) error{r.ping, r.subscribe} {
		if err := ask(ctx); ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// unlessStopping asks the hub, which answers until the daemon stops.
func unlessStopping(ctx, stopping context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stopping, cancel)()
	err := ask(ctx)
	if stopping.Err() != nil {
		return nil
	}
	return err
}

func (r roundTrip) ping(ctx context.Context) error {
	conn, err := reach(ctx, r.commands)
	if err != nil {
		return fmt.Errorf("command socket: %w", err)
	}
	c := client.New(conn)
	defer func() { _ = c.Close() }()
	if _, err = client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
		return fmt.Errorf("command socket: %w", err)
	}
	return nil
}

func (r roundTrip) subscribe(ctx context.Context) error {
	conn, err := reach(ctx, r.events)
	if err != nil {
		return fmt.Errorf("event socket: %w", err)
	}
	events, err := client.SubscribeOver(ctx, conn, protocol.SubscribeParams{})
	if err != nil {
		return fmt.Errorf("event socket: %w", err)
	}
	return events.Close()
}

// reach connects to a socket, and waits where its queue is full.
func reach(ctx context.Context, path string) (net.Conn, error) {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", path)
		if !errors.Is(err, unix.EAGAIN) {
			return conn, err
		}
		select {
		case <-time.After(crowdPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// statusPause is how long systemd's status line stands at least before the next.
const statusPause = time.Second

// statusWord is before a status line that systemd is told.
const statusWord = "STATUS="

// statusLine is what `systemctl status` shows of the daemon. Its methods may be
// called by any goroutine; a nil one does nothing.
type statusLine struct {
	sessions func() ([]string, error) // that are kept
	changed  chan struct{}            // holds one

	mu   sync.Mutex
	runs map[string]struct{} // that go on
}

// newStatusLine returns nil where nobody listens.
func newStatusLine(sessions func() ([]string, error)) *statusLine {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	return &statusLine{sessions: sessions, changed: make(chan struct{}, 1), runs: map[string]struct{}{}}
}

// saw takes note of an event. It does not block.
func (s *statusLine) saw(ev protocol.Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev := ev.(type) {
	case protocol.AgentEnd:
		delete(s.runs, ev.RunID)
	default: // that of a hosted agent may go on without having started here
		id := ev.Where().RunID
		if _, known := s.runs[id]; known || id == "" {
			return
		}
		s.runs[id] = struct{}{}
	}
	s.nudge()
}

// nudge has the line written anew. It does not block.
func (s *statusLine) nudge() {
	if s == nil {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// text is one line, such as "2 runs, 14 sessions".
func (s *statusLine) text() string {
	s.mu.Lock()
	runs := len(s.runs)
	s.mu.Unlock()
	ids, err := s.sessions()
	if err != nil {
		return counted(runs, "run") + "; the sessions cannot be listed: " + err.Error()
	}
	return counted(runs, "run") + ", " + counted(len(ids), "session")
}

func counted(n int, what string) string {
	if n == 0 {
		return "no " + what + "s"
	}
	return format.Count(n, what)
}

// keep tells that the daemon is ready, and then the line whenever it changes, until
// ctx ends. It has a timer only after a change.
func (s *statusLine) keep(ctx context.Context, tell func(state string)) {
	if s == nil {
		<-ctx.Done()
		return
	}
	told := s.text()
	tell(sd.SdNotifyReady + "\n" + statusWord + told)
	for {
		select {
		case <-time.After(statusPause):
		case <-ctx.Done():
			return
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return
		}
		if now := s.text(); now != told {
			told = now
			tell(statusWord + told)
		}
	}
}

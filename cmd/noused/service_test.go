package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
)

// The first client starts the daemon, which is ready when both sockets answer; the
// sockets outlast it.
func TestTheFirstClientStartsTheServiceAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.enable()
	if got := m.show("noused.service", "ActiveState"); got != "inactive" {
		t.Fatalf("before the first client the service is %s", got)
	}
	c := m.dial(m.socket())
	if _, err := client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	m.until("noused.service", "StatusText", func(s string) bool { return s == "no runs, 1 session" })
	if got := m.show("noused.service", "ActiveState"); got != "active" {
		t.Errorf("the service is %s, want it active", got)
	}
	m.systemctl("stop", "noused.service")
	if got := m.systemctl("is-active", "noused.socket", "noused-events.socket"); strings.Count(got, "active") != 2 ||
		strings.Contains(got, "inactive") {
		t.Errorf("after the service's end the sockets are %q", got)
	}
	if _, err := client.Call(t.Context(), m.dial(m.socket()), protocol.Ping, protocol.PingParams{}); err != nil {
		t.Errorf("the next client: %v", err)
	}
}

// waitTool's program waits for a line of its fifo, once it has said that it runs.
const waitTool = `{"name":"wait","kind":"tool","protocol":"narratoria","capabilities":[],"timeout":"10m",
"transport":{"type":"stdio","command":["./wait.sh"]},"operations":{"here":{"description":"waits","params":{"type":"object"}}}}`

const waitScript = `#!/bin/sh
cat >/dev/null
echo $$ >"$HOME/pids"
read line <"$HOME/go"
echo '{"version":"0","type":"done","ok":true,"summary":"waited"}'
`

// waiting gives a daemon the tool, in its configuration folder. release lets one call
// end, and pids has a line for each that has begun.
func (m *manager) waiting(folder string) {
	m.t.Helper()
	m.write(folder+"/tools.d/wait.json", waitTool)
	m.write(folder+"/tools.d/wait.sh", waitScript)
	if err := os.Chmod(filepath.Join(m.home, folder, "tools.d/wait.sh"), 0o700); err != nil {
		m.t.Fatal(err)
	}
	m.pids, m.lets = bufio.NewReader(m.fifo("pids")), m.fifo("go")
}

// fifo makes one that never ends.
func (m *manager) fifo(name string) *os.File {
	m.t.Helper()
	path := filepath.Join(m.home, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		m.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (m *manager) release() {
	m.t.Helper()
	if _, err := m.lets.WriteString("go\n"); err != nil {
		m.t.Fatal(err)
	}
}

// guestOfTheService is a client that stays, whatever happens to the daemon.
type guestOfTheService struct {
	session, run string // that it has begun

	epochs []string
	starts map[string]int
	ends   map[string]int
	calls  map[string]int // that ended well, by run
}

func newGuest() *guestOfTheService {
	return &guestOfTheService{starts: map[string]int{}, ends: map[string]int{}, calls: map[string]int{}}
}

// stay reads events, from one daemon after the other, until so many runs have
// ended; each time tool_start comes it says so.
func (g *guestOfTheService) stay(ctx context.Context, socket string, events *client.Events, runs int,
	started func(),
) error {
	for {
		g.epochs = append(g.epochs, events.Epoch())
		last := events.Last()
		for len(g.ends) < runs {
			env, _, err := events.Next(ctx)
			if err != nil {
				break
			}
			if env.Seq != last+1 {
				return fmt.Errorf("event %d of %s came after %d", env.Seq, events.Epoch(), last)
			}
			last = env.Seq
			ev, err := client.Decode(env)
			if err != nil {
				return err
			}
			switch ev := ev.(type) {
			case protocol.AgentStart:
				g.starts[ev.RunID]++
			case protocol.AgentEnd:
				g.ends[ev.RunID]++
			case protocol.ToolStart:
				started()
			case protocol.ToolEnd:
				if ev.OK && ev.Result != "" {
					g.calls[ev.RunID]++
				}
			}
		}
		_ = events.Close()
		if len(g.ends) == runs || ctx.Err() != nil {
			return ctx.Err()
		}
		for {
			next, err := client.Subscribe(ctx, socket, protocol.SubscribeParams{Epoch: events.Epoch(), After: &last})
			if err == nil {
				events = next
				break
			}
			if !errors.Is(err, client.ErrLost) { // it was the old daemon's last
				return fmt.Errorf("refused: %w", err)
			}
		}
	}
}

// newcomers connect one after the other until they are told to stop, which returns
// how many were answered. A daemon that goes may hang up, or say that it goes; what
// nobody may be is refused.
func (m *manager) newcomers(ctx context.Context) (stop func() int) {
	over, ended, answered := make(chan struct{}), make(chan struct{}), 0
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
			}
			c, err := client.Dial(ctx, m.socket())
			if err != nil {
				m.t.Errorf("refused: %v", err)
				return
			}
			if _, err = client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err == nil {
				answered++
			} else if !unheard(err) {
				m.t.Error(err)
			}
			_ = c.Close()
		}
	}()
	return func() int { close(over); <-ended; return answered }
}

// A restart in the middle of five runs, with five clients: nobody is refused, each
// sees every event, and each run ends once, with the one call that it made.
func TestRestartsUnderRunsLoseNothingAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	const clients = 5
	m.settings("Environment=NOUSED_DRAIN_TIMEOUT=25s")
	m.waiting(".config/noused")
	m.enable()
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangTime)
	defer cancel()
	var all sync.WaitGroup
	guests, began := make([]*guestOfTheService, clients), make(chan struct{}, clients*clients*2)
	for i := range guests {
		g := newGuest()
		guests[i] = g
		events, err := client.Subscribe(ctx, m.socket(), protocol.SubscribeParams{})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := g.stay(ctx, m.socket(), events, clients, func() { began <- struct{}{} }); err != nil {
				t.Errorf("client %d: %v", i, err)
				cancel()
			}
		})
	}
	c := m.dial(m.socket())
	for _, g := range guests {
		s, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: s.SessionID},
			Text:  "!wait.here\nsaid", Wait: new(bool),
		})
		if err != nil {
			t.Fatal(err)
		}
		g.session, g.run = s.SessionID, r.Accepted.RunID
	}
	for range clients * clients { // each client has seen each call begin
		select {
		case <-began:
		case <-ctx.Done():
			t.Fatal("the calls do not begin")
		}
	}
	m.until("noused.service", "StatusText", func(s string) bool { return s == "5 runs, 5 sessions" })
	first := m.show("noused.service", "MainPID")
	m.systemctl("restart", "--no-block", "noused.service")
	stop := m.newcomers(ctx)
	for _, g := range guests { // which refuses texts either way: at first since it runs, then since the daemon stops
		for err := error(nil); !unheard(err) && ctx.Err() == nil; {
			_, err = client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
				Scope: protocol.Scope{SessionID: g.session},
				Text:  "more", Wait: new(bool),
			})
		}
	}
	for range clients {
		m.release()
	}
	all.Wait()
	if n := stop(); n == 0 {
		t.Error("nobody was answered meanwhile")
	}
	if second := m.show("noused.service", "MainPID"); second == first {
		t.Errorf("the daemon is %s as before", second)
	}
	for i, g := range guests {
		if len(g.epochs) != 2 {
			t.Errorf("client %d has seen daemons %v, want two", i, g.epochs)
		}
		for _, of := range guests {
			if g.starts[of.run] != 1 || g.ends[of.run] != 1 || g.calls[of.run] != 1 {
				t.Errorf("client %d: run %s started %d times, ended %d times and had %d good calls, want one each", i, of.run,
					g.starts[of.run], g.ends[of.run], g.calls[of.run])
			}
		}
	}
}

// called starts a run with a call of the tool that waits, and returns the run, the
// events from then on, and the tool's process.
func (m *manager) called(ctx context.Context, socket string) (run string, events *client.Events, pid int) {
	m.t.Helper()
	events, err := client.Subscribe(ctx, socket, protocol.SubscribeParams{})
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := client.Call(ctx, m.dial(socket), protocol.Prompt, protocol.PromptParams{
		Text: "!wait.here\nsaid",
		Wait: new(bool),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	line, err := m.pids.ReadString('\n')
	if err != nil {
		m.t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		m.t.Fatal(err)
	}
	return r.Accepted.RunID, events, pid
}

// gone tells whether a process has ended.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// A daemon that does nothing any more is ended by systemd and started again, and
// its run goes on.
func TestTheWatchdogEndsADaemonThatHangsAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.settings("WatchdogSec=5")
	m.waiting(".config/noused")
	m.enable()
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangTime)
	defer cancel()
	run, events, tool := m.called(ctx, m.socket())
	daemon, err := strconv.Atoi(m.show("noused.service", "MainPID"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(daemon, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g := newGuest()
	if err := g.stay(ctx, m.socket(), events, 1, func() {}); err != nil {
		t.Fatal(err)
	}
	if len(g.epochs) < 2 || g.starts[run] > 1 || g.ends[run] != 1 {
		t.Errorf("daemons %v, run started %d times and ended %d times, want two daemons and one end", g.epochs, g.starts[run],
			g.ends[run])
	}
	if !gone(daemon) || !gone(tool) {
		t.Errorf("the daemon that hung has ended: %v, and its tool: %v", gone(daemon), gone(tool))
	}
}

// A daemon that cannot start is given up, and then clients learn it at once; when it
// can, two commands have it back.
func TestADaemonThatCannotStartIsGivenUpAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.settings("RestartSec=100ms")
	m.write(".config/noused/config.toml", "nonsense = 1\n")
	m.enable()
	if _, err := client.Call(t.Context(), m.dial(m.socket()), protocol.Ping, protocol.PingParams{}); !errors.Is(err,
		client.ErrLost) {
		t.Errorf("the first client: %v, want it to be lost", err)
	}
	for _, unit := range []string{"noused.service", "noused.socket", "noused-events.socket"} {
		m.until(unit, "ActiveState", func(s string) bool { return s == "failed" })
	}
	log, err := os.ReadFile(m.log)
	if n := strings.Count(string(log), "noused: "+m.home+"/.config/noused/config.toml:1: "); err != nil || n < 2 || n > 5 {
		t.Errorf("%d daemons said what is wrong, want at most 5: %v\n%s", n, err, log)
	}
	var none *client.NoDaemonError
	if _, err := client.Dial(t.Context(), m.socket()); !errors.As(err, &none) {
		t.Errorf("the next client: %v, want that there is none", err)
	}
	m.write(".config/noused/config.toml", "")
	m.systemctl("reset-failed", "noused*")
	m.systemctl("start", "noused.socket", "noused-events.socket")
	if _, err := client.Call(t.Context(), m.dial(m.socket()), protocol.Ping, protocol.PingParams{}); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
}

// A reload reads the descriptors; one that is wrong costs nothing but itself.
func TestTheServiceReadsItsToolsAgainAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.enable()
	m.systemctl("start", "noused.service")
	c := m.dial(m.socket())
	has := func() bool {
		t.Helper()
		r, err := client.Call(t.Context(), c, protocol.ListTools, protocol.ListToolsParams{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(r.Tools, func(i protocol.ToolInfo) bool { return i.Name == "wait.here" })
	}
	if has() {
		t.Fatal("the tool is there before its descriptor")
	}
	pid := m.show("noused.service", "MainPID")
	m.waiting(".config/noused")
	m.write(".config/noused/tools.d/bad.json", "{")
	m.systemctl("reload", "noused.service")
	for deadline := time.Now().Add(hangTime); !has(); {
		if time.Now().After(deadline) {
			t.Fatal("after a reload the tool is not there")
		}
	}
	m.until("noused.service", "ActiveState", func(s string) bool { return s == "active" })
	if now := m.show("noused.service", "MainPID"); now != pid {
		t.Errorf("the daemon is %s, before the reload it was %s", now, pid)
	}
	if log, err := os.ReadFile(m.log); err != nil || !strings.Contains(string(log), "bad.json") {
		t.Errorf("the log says nothing of the descriptor that is wrong: %v\n%s", err, log)
	}
}

// Nothing that a tool has started outlasts the service, wherever it went.
func TestNothingOutlastsTheServiceAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.waiting(".config/noused")
	m.settings("Environment=NOUSED_DRAIN_TIMEOUT=100ms")
	m.write(".config/noused/tools.d/wait.sh", "#!/bin/sh\n"+
		`env -i setsid sh -c 'echo $$ >'"$HOME/pids"'; trap "" TERM; sleep 1000; sleep 1000' >/dev/null 2>&1 &`+
		"\ncat <$HOME/go\n")
	m.enable()
	_, _, left := m.called(t.Context(), m.socket())
	if gone(left) {
		t.Fatal("the tool has started nothing")
	}
	if m.systemctl("stop", "noused.service"); !gone(left) {
		t.Error("what a tool has started has outlasted the service")
	}
}

// A second daemon has its own sockets, state and configuration, and neither knows
// of the other.
func TestTwoInstancesAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.write(".config/noused/instances/work/environment", "NOUSED_MODEL=offline\n")
	m.waiting(".config/noused/instances/work")
	m.enable()
	m.systemctl("enable", "--now", "noused@work.socket", "noused-events@work.socket")
	work := filepath.Join(m.run, "noused/instances/work.sock")
	run, events, _ := m.called(t.Context(), work)
	first := m.dial(m.socket())
	if _, err := client.Call(t.Context(), first, protocol.Prompt, protocol.PromptParams{Text: "!wait.here"}); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]int{m.socket(): 0, work: 1} {
		r, err := client.Call(t.Context(), m.dial(socket), protocol.ListTools, protocol.ListToolsParams{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, tool := range r.Tools {
			if tool.Name == "wait.here" {
				n++
			}
		}
		sessions, err := client.Call(t.Context(), m.dial(socket), protocol.ListSessions, protocol.ListSessionsParams{})
		if err != nil || n != want || len(sessions.Sessions) != 1 {
			t.Errorf("at %s: the tool is there %d times, %d sessions, %v; want %d and one", socket, n, len(sessions.Sessions),
				err, want)
		}
	}
	for _, folder := range []string{"noused/sessions", "noused/instances/work/sessions"} {
		if found, err := filepath.Glob(filepath.Join(m.home, ".local/state", folder, "*.jsonl")); err != nil ||
			len(found) != 1 {
			t.Errorf("%s has %v, %v, want one session", folder, found, err)
		}
	}
	if one, other := m.show("noused.service", "MainPID"), m.show("noused@work.service", "MainPID"); one == other ||
		one == "0" || other == "0" {
		t.Errorf("the daemons are %s and %s, want two", one, other)
	}
	m.systemctl("stop", "noused.service")
	m.release()
	await(t, events, endOf(run))
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/start"
)

// starter is a folder where nous starts daemons by itself, and the environment for it.
// None is left behind.
func starter(t *testing.T) (*daemontest.Daemon, []string) {
	t.Helper()
	d := daemontest.New(t, "", "") // its folder only
	t.Cleanup(func() { noneLeft(d.Socket) })
	return d, d.Env("PATH="+filepath.Dir(program(t, "noused"))+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+
		filepath.Join(d.Dir, "fresh"))
}

// Twenty clients at once, where no daemon runs, start one, and all are served.
func TestManyClientsStartOneDaemon(t *testing.T) {
	d, env := starter(t)
	var all sync.WaitGroup
	said := make([]string, 20)
	for i := range said {
		all.Go(func() {
			cmd := exec.Command("nous", "--json", "ping")
			cmd.Dir, cmd.Env = d.Dir, env
			out, err := cmd.CombinedOutput()
			said[i] = strings.TrimSpace(string(out))
			if err != nil {
				t.Errorf("client %d: %v: %s", i, err, out)
			}
		})
	}
	all.Wait()
	slices.Sort(said)
	if one := slices.Compact(slices.Clone(said)); len(one) != 1 || !strings.Contains(one[0], `"pid":`) {
		t.Errorf("they were answered by %q, want one daemon", one)
	}
	logs, _ := filepath.Glob(filepath.Join(d.Dir, "xdgstate/noused/log/*"))
	if len(logs) != 1 {
		t.Fatalf("got logs %q, want one", logs)
	}
	text, err := os.ReadFile(logs[0])
	if n := bytes.Count(text, []byte(`"msg":"ready"`)); err != nil || n != 1 ||
		bytes.Contains(text, []byte("runs already")) {
		t.Errorf("got %v, %d daemons that were ready:\n%s", err, n, text)
	}
}

// A daemon that was killed takes a connection before the system has taken it apart, and never
// answers. The command starts the next one, as it does where there is none.
func TestADaemonThatDiesBeforeItAnswersIsFollowedByTheNext(t *testing.T) {
	d, env := starter(t)
	dying, err := net.Listen("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	dying.(*net.UnixListener).SetUnlinkOnClose(false)
	cmd := exec.Command("nous", "--json", "ping")
	cmd.Dir, cmd.Env = d.Dir, env
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := dying.Accept()
	if err != nil {
		t.Fatal(err)
	}
	dying.Close() // before the connection: nobody listens there once it is lost
	conn.Close()
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), `"pid":`) {
		t.Errorf("%v: got %s, %s", err, &out, &said)
	}
}

// A daemon that was told to stop, and still leads a run to its boundary, takes no clients:
// who comes then waits until it has ended, and has one of his own.
func TestADaemonThatStopsIsFollowedByTheNext(t *testing.T) {
	d := newDaemon(t, "drain_timeout = \"1s\"\n"+wordSlowly)
	d.Start()
	t.Cleanup(func() { noneLeft(d.Socket) })
	for _, v := range d.Env("PATH=" + filepath.Dir(program(t, "noused")) + ":" + os.Getenv("PATH")) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	no := false
	old := state(t, d.Socket).Daemon
	session := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session},
		Text:  strings.Repeat("word ", 300), Wait: &no,
	})
	if err := syscall.Kill(old.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := client.Dial(t.Context(), d.Socket)
		if errors.As(err, new(*client.NoDaemonError)) {
			break
		}
		if err == nil {
			_ = c.Close()
		}
	}
	s, err := start.Daemon(t.Context(), start.Options{
		Socket: d.Socket, Named: true, Within: 2 * time.Minute,
		Getenv: os.Getenv,
	})
	if err != nil {
		var failed *start.Error
		errors.As(err, &failed)
		t.Fatalf("%v: %+v", err, failed)
	}
	if is := state(t, d.Socket).Daemon; is.Epoch == old.Epoch || is.PID != s.PID {
		t.Errorf("got %+v after %+v, want the process that was started: %+v", is, old, s)
	}
}

// Stopping a daemon that somebody else stops just now is no failure.
func TestTwoMayStopOneDaemon(t *testing.T) {
	d := newDaemon(t, "drain_timeout = \"300ms\"\n"+wordSlowly)
	d.Start()
	no := false
	session := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session},
		Text:  strings.Repeat("word ", 300), Wait: &no,
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if s, err := start.Stop(t.Context(), start.Options{Socket: d.Socket, Named: true, Getenv: os.Getenv}); err != nil {
				t.Errorf("%+v: %v", s, err)
			}
		})
	}
	all.Wait()
	if c, err := client.Dial(t.Context(), d.Socket); err == nil {
		_ = c.Close()
		t.Error("a daemon runs, want none")
	}
}

// A shell's lock, on a descriptor that nous inherits, is not held by the daemon.
func TestTheDaemonInheritsNoDescriptors(t *testing.T) {
	d, env := starter(t)
	cmd := exec.Command("sh", "-c",
		`exec 9>shut; flock 9; nous ping; exec 9>&-; exec 8>shut; flock --nonblock 8 && echo free`)
	cmd.Dir, cmd.Env = d.Dir, env
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("flock is not installed")
	}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "pong\nfree\n" {
		t.Errorf("got %v: %s", err, out)
	}
}

// attached is one client that follows all events.
type attached struct {
	epochs map[string][]uint64       // the numbers seen of each start of the daemon
	starts map[string]int            // by run
	ends   map[string]int            // by run
	said   map[string]map[string]int // how often a message ended, by session
	words  map[string]bool           // the epochs and runs that were heard of
}

func newAttached() *attached {
	return &attached{
		map[string][]uint64{},
		map[string]int{},
		map[string]int{},
		map[string]map[string]int{},
		map[string]bool{},
	}
}

func (c *attached) record(epoch string, line follow.Line) {
	c.epochs[epoch] = append(c.epochs[epoch], line.Seq)
	ref := line.Where()
	switch ev := line.Event.Event.(type) {
	case protocol.AgentStart:
		c.starts[ref.RunID]++
	case protocol.AgentEnd:
		c.ends[ref.RunID]++
	case protocol.MessageUpdate:
		c.words[epoch+" "+ref.RunID] = true
	case protocol.MessageEnd:
		if c.said[ref.SessionID] == nil {
			c.said[ref.SessionID] = map[string]int{}
		}
		c.said[ref.SessionID][ev.MessageID]++
	}
}

// A restart during runs, with five clients attached: nobody is refused, each is told
// every event once, and each run ends once, with what the journal has.
func TestARestartLosesNothing(t *testing.T) {
	const clients, runs, restarts = 5, 3, 2
	d := newDaemon(t, "drain_timeout = \"50ms\"\n"+wordSlowly) // an answer is cut off
	d.Start()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	type seen struct {
		who   int
		epoch string
		line  follow.Line
	}
	events, ready := make(chan seen), make(chan struct{}, clients)
	for who := range clients {
		all.Go(func() {
			s := follow.NewStream(follow.Socket(d.Socket), follow.Options{})
			defer s.Close()
			for first := true; ; {
				h, err := s.Next(ctx)
				if err != nil {
					return
				}
				switch h := h.(type) {
				case follow.Connected:
					if first {
						ready <- struct{}{}
					}
					first = false
				case follow.Disconnected:
					if h.NoDaemon {
						t.Errorf("client %d was refused: %v", who, h.Err)
					}
				case follow.Line:
					select {
					case events <- seen{who, s.Epoch(), h}:
					case <-ctx.Done():
						return
					}
				case follow.Gap:
					t.Errorf("client %d: %s", who, h.Message)
				}
			}
		})
	}
	for range clients {
		<-ready
	}
	all.Go(func() { // who comes anew is never refused
		for ctx.Err() == nil {
			c, err := client.Dial(ctx, d.Socket)
			if errors.As(err, new(*client.NoDaemonError)) {
				t.Errorf("refused: %v", err)
				return
			}
			if err == nil {
				_, _ = client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
				_ = c.Close()
			}
		}
	})

	began := map[string]string{} // run → session
	for i := range runs {
		session := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
		no := false
		text := strings.Repeat(fmt.Sprintf("word%d ", i), 200)
		r := call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: session}, Text: text,
			Wait: &no,
		})
		began[r.Accepted.RunID] = session
	}
	told := make([]*attached, clients)
	for i := range told {
		told[i] = newAttached()
	}
	until := func(done func() bool) {
		for !done() {
			select {
			case s := <-events:
				told[s.who].record(s.epoch, s.line)
			case <-time.After(2 * time.Minute):
				t.Fatal("nothing happens any more")
			}
		}
	}
	everyRun := func(epoch string, in func(c *attached, epoch, run string) bool) bool {
		for _, c := range told {
			for run := range began {
				if !in(c, epoch, run) {
					return false
				}
			}
		}
		return true
	}
	speaks := func(c *attached, epoch, run string) bool { return c.words[epoch+" "+run] }
	for range restarts {
		epoch := state(t, d.Socket).Daemon.Epoch
		until(func() bool { return everyRun(epoch, speaks) })
		done := make(chan error, 1)
		go func() { // ends with the command
			cmd := exec.Command("nous", "restart")
			cmd.Env = d.Env()
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			done <- err
		}()
		for over := false; !over; {
			select {
			case s := <-events:
				told[s.who].record(s.epoch, s.line)
			case err := <-done:
				if over = true; err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	until(func() bool {
		return everyRun("", func(c *attached, _, run string) bool { return c.ends[run] > 0 })
	})
	for i, c := range told {
		if len(c.epochs) != restarts+1 {
			t.Errorf("client %d was at %d starts of the daemon, want %d", i, len(c.epochs), restarts+1)
		}
		for epoch, seqs := range c.epochs {
			for n, seq := range seqs {
				if seq != seqs[0]+uint64(n) {
					t.Fatalf("client %d, %s: event %d stands behind %d", i, epoch, seq, seqs[n-1])
				}
			}
		}
		for run, session := range began {
			if c.starts[run] != 1 || c.ends[run] != 1 {
				t.Errorf("client %d: %s began %d times and ended %d times", i, run, c.starts[run], c.ends[run])
			}
			if diff := cmp.Diff(journaled(t, d.Socket, session), c.said[session]); diff != "" {
				t.Errorf("client %d, messages (-journal +told):\n%s", i, diff)
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(told[0].epochs)), slices.Sorted(maps.Keys(c.epochs))); diff != "" {
			t.Errorf("client %d saw other starts than the first (-first +this):\n%s", i, diff)
		}
	}
}

// journaled are the messages that a session has, each once.
func journaled(t *testing.T, socket, session string) map[string]int {
	t.Helper()
	ids := map[string]int{}
	for _, raw := range call1(t, socket, protocol.GetMessages,
		protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: session}}).Messages {
		var m protocol.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		ids[m.ID]++
	}
	return ids
}

// call1 sends one command on a connection of its own.
func call1[P protocol.Params, R protocol.Reply](t *testing.T, socket string, def protocol.Def[P, R], p P) R {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := client.Call(t.Context(), c, def, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

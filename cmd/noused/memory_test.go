package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// floods are tools that say much: many lines, and long ones.
var floods = map[string]string{
	"many": `yes '{"version":"0","type":"log","level":"info","message":"a line as tools write them, one of very many"}' | head -n $LINES`,
	"long": `line=$(head -c 1000000 /dev/zero | tr '\0' x)
		while [ $LINES -gt 0 ]; do LINES=$((LINES-1)); echo '{"version":"0","type":"log","level":"info","message":"'"$line"'"}'; done`,
}

// swamp is a daemon with tools that flood, and the memory that it had before.
type swamp struct {
	*daemon
	idle int // KiB
}

// newSwamp starts a daemon that is built without the race detector, which has a
// memory of its own.
func newSwamp(t *testing.T, program string, lines map[string]int) *swamp {
	t.Helper()
	dir := t.TempDir()
	for name, script := range floods {
		script = fmt.Sprintf("#!/bin/sh\nLINES=%d\n%s\necho '{\"version\":\"0\",\"type\":\"done\",\"ok\":true}'\n",
			lines[name], script)
		descriptor := fmt.Sprintf(`{"name":%q,"kind":"tool","protocol":"narratoria","capabilities":[],"timeout":"10m",
			"transport":{"type":"stdio","command":["./%[1]s.sh"]},"operations":{"run":{}}}`, name)
		for file, text := range map[string]string{name + ".sh": script, name + ".json": descriptor} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &swamp{daemon: newDaemonOf(t, program, "--tools-dir", dir)}
	if r := s.commands().request(`{"v":"1","id":"p","type":"prompt","payload":{"text":"hello"}}`); !r.OK {
		t.Fatalf("got %+v", r)
	}
	s.idle = s.footprint().now
	return s
}

// plainDaemon is the program as it is built for users: the tests' own binary has more, and
// the race detector takes memory, too.
func plainDaemon(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long")
	}
	path, err := builtPlain()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// builtPlain builds it once; it goes with the tests' home.
var builtPlain = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.Getenv("HOME"), "bin", "noused")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return path, err
})

// resident is the memory that the daemon has now, and had at most, in KiB.
func (s *swamp) resident() (now, most int) {
	f := s.footprint()
	return f.now, f.most
}

// check says how much the daemon grew.
func (s *swamp) check() {
	s.t.Helper()
	now, most := s.resident()
	s.t.Logf("idle %d KiB, at most %d KiB more, now %d KiB more", s.idle, most-s.idle, now-s.idle)
	if most-s.idle > maxGrowth {
		s.t.Errorf("the daemon grew by %d KiB, want at most %d", most-s.idle, maxGrowth)
	}
}

// rests waits until the daemon has given back what it no longer needs.
func (s *swamp) rests() {
	s.t.Helper()
	w := s.commands()
	for deadline := time.Now().Add(hangTime); ; {
		now, _ := s.resident()
		if now-s.idle < maxGrowth/2 {
			s.t.Logf("afterwards %d KiB more", now-s.idle)
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("it keeps %d KiB more than before", now-s.idle)
		}
		w.request(`{"v":"1","id":"p","type":"ping"}`)
	}
}

// session makes one.
func (s *swamp) session(w *wire) string {
	s.t.Helper()
	return into[protocol.Session](s.t, w.request(`{"v":"1","id":"n","type":"new_session","payload":{}}`)).SessionID
}

// ends waits until so many runs have ended. On a busy machine even who reads at once may
// be told that events were dropped, ends among them: then the daemon is asked.
func (s *swamp) ends(events *client.Events, runs int) {
	s.t.Helper()
	for ; runs > 0; runs-- {
		ev := await(s.t, events, func(ev protocol.Event) bool {
			warning, warned := ev.(protocol.Warning)
			_, ended := ev.(protocol.AgentEnd)
			return ended || warned && warning.Code == protocol.WarningEventsDropped
		})
		if _, dropped := ev.(protocol.Warning); dropped {
			break
		}
	}
	running := func(s protocol.SessionInfo) bool { return s.RunState != protocol.StateIdle }
	for w := s.commands(); runs > 0; {
		list := into[protocol.Sessions](s.t, w.request(`{"v":"1","id":"l","type":"list_sessions","payload":{}}`))
		if !slices.ContainsFunc(list.Sessions, running) {
			return
		}
	}
}

func TestAFloodOfAToolIsBounded(t *testing.T) {
	program := plainDaemon(t)
	for _, c := range []struct {
		tool            string
		lines, sessions int
		waiting         int  // prompts that wait, of as many sessions
		stalled         int  // event readers that do not read
		every           bool // day, else in full only
	}{
		{"many", 40_000, 4, 0, 0, false},
		{"many", 40_000, 4, 1, 0, false},
		{"many", 12_000, 20, 20, 0, false},
		{"many", 30_000, 4, 1, 100, true},
		{"long", 25, 4, 0, 0, false},
		{"long", 25, 4, 1, 0, false},
		{"long", 8, 20, 20, 0, true},
		{"long", 25, 4, 1, 50, true},
	} {
		if !c.every && !fullMemory {
			continue
		}
		t.Run(fmt.Sprintf("%s lines of %d tools, %d waiting, %d stalled", c.tool, c.sessions, c.waiting, c.stalled),
			func(t *testing.T) {
				s := newSwamp(t, program, map[string]int{c.tool: c.lines})
				events := s.events(protocol.SubscribeParams{Types: []string{protocol.AgentEnd{}.Type()}})
				for range c.stalled {
					w := dialWire(t, protocol.EventSocket(s.Socket))
					if r := w.request(`{"v":"1","id":"s","type":"subscribe","payload":{}}`); !r.OK {
						t.Fatalf("got %+v", r)
					}
				}
				var waiting []*wire
				for i := range c.sessions {
					w := s.commands()
					prompt := fmt.Sprintf(
						`{"v":"1","id":"p","type":"prompt","payload":{"text":"!%s.run {}","session_id":%q,"wait":%t}}`,
						c.tool, s.session(w), i < c.waiting)
					if i < c.waiting {
						w.send(prompt)
						waiting = append(waiting, w)
					} else if r := w.request(prompt); !r.OK {
						t.Fatalf("got %+v", r)
					}
				}
				s.ends(events, c.sessions)
				for _, w := range waiting {
					got := into[protocol.PromptResult](t, w.recv())
					if got.Output == "" || len(got.Events) == 0 || !got.EventsTruncated {
						t.Errorf("got output %.80q and %d events, truncated %t", got.Output, len(got.Events), got.EventsTruncated)
					}
				}
				s.check()
			})
	}
}

func TestLinesWithoutAnEndAreBoundedTogether(t *testing.T) {
	s := newSwamp(t, plainDaemon(t), nil)
	half := `{"v":"1","id":"h","type":"prompt","payload":{"text":"` + strings.Repeat("x", 15<<20)
	var all []*wire
	for range sized(20, 60) {
		w := s.commands()
		if _, err := io.WriteString(w, half); err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	if r := s.commands().request(`{"v":"1","id":"p","type":"ping"}`); !r.OK {
		t.Errorf("a ping beside them gets %+v", r)
	}
	s.check()
	refused := 0
	for _, w := range all {
		w.send("") // the end of its line
		if strings.Contains(w.recv().Error.Message, string(protocol.TooManyPending)) {
			refused++
		}
	}
	if refused < len(all)-2 {
		t.Errorf("%d of %d lines were refused", refused, len(all))
	}
	for _, w := range all {
		_ = w.Close()
	}
	s.rests()
}

func TestRepliesThatNobodyReadsAreBoundedTogether(t *testing.T) {
	program := plainDaemon(t)
	s := newSwamp(t, program, nil)
	w := s.commands()
	text := strings.Repeat("x", 512<<10)
	for range 8 {
		if r := w.request(fmt.Sprintf(`{"v":"1","id":"p","type":"prompt","payload":{"text":%q}}`, text)); !r.OK {
			t.Fatalf("got %+v", r.Error)
		}
	}
	s.idle = s.footprint().now
	for range sized(25, 100) {
		w := s.commands()
		w.send(strings.Repeat(`{"v":"1","id":"m","type":"get_messages"}`+"\n"+`{"v":"1","id":"t","type":"get_tree"}`+"\n",
			20))
		if _, err := w.Read(make([]byte, 1)); err != nil { // it has begun to answer
			t.Fatal(err)
		}
	}
	s.check()
	s.rests()
}

func TestALineAsLongAsAllowedIsTaken(t *testing.T) {
	s := newSwamp(t, plainDaemon(t), nil)
	events := s.events(protocol.SubscribeParams{Types: []string{protocol.AgentEnd{}.Type()}})
	for _, wait := range []bool{false, true} { // the reply, which has the answer, is as long
		head, tail := `{"v":"1","id":"p","type":"prompt","payload":{"text":"`, fmt.Sprintf(`","wait":%t}}`, wait)
		text := strings.Repeat("x", protocol.DefaultMaxLine-len(head)-len(tail))
		r := s.commands().request(head + text + tail)
		if !r.OK || wait && into[protocol.PromptResult](t, r).Output != text {
			t.Fatalf("wait %t: got %+v", wait, r.Error)
		}
		s.ends(events, 1)
	}
	now, most := s.resident()
	t.Logf("idle %d KiB, at most %d KiB more, now %d KiB more", s.idle, most-s.idle, now-s.idle)
}

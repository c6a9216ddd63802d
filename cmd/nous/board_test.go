package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// nous board begins with the board; Enter shows a session, F4 the board again.
func TestBoardIsTheFirstScreen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	off := false
	for _, title := range []string{"One", "Two"} {
		id := askDaemon(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Title: title, Activate: &off}).SessionID
		askDaemon(t, d.Socket, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: id},
			Text:  "words for " + title,
		})
	}
	s := startScreen(t, d, look{args: []string{"board"}})
	s.Wait("Board", "2 done, unread", "words for One", "words for Two")
	s.Type("two")
	s.WaitGone("words for One")
	s.Press("enter")
	s.Wait("words for Two", "connected")
	s.WaitGone("Board")
	s.Type("\x1bOS") // F4
	s.Wait("1 done, unread")
	s.Press("esc")
	s.Wait("connected")
}

// An older core lists no sessions: the board says so, and shows that one.
func TestBoardOfAnOlderCore(t *testing.T) {
	t.Parallel()
	old := tuitest.StartOldCore(t, tuitest.Habits{})
	d := newDaemon(t, "")
	s := startScreen(t, d, look{socket: old.Socket, args: []string{"board"}})
	s.Wait("older core lists no sessions", "1 idle")
	s.Press("esc")
	s.Wait("connected")
	s.say("hold it")
	s.Wait("running")
	s.Type("\x1bOS") // F4
	s.Wait("older core lists no sessions", "working")
}

// What is told to a terminal that nobody looks at, byte for byte; its title is
// kept aside, and given back.
func TestTheTerminalIsRungAndItsTitleGivenBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	dir := filepath.Join(d.Dir, "config", "nous")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.Write("config/nous/config.toml", "[notify]\nafter = \"0s\"\n")
	p := tuitest.NewProxy(t, d.Socket)
	s := openScreen(t, d, look{socket: p.Socket})
	s.WaitFor("connection for all sessions", func(string) bool { return p.Heard() == 2 })
	if !s.Mode(1004) {
		t.Error("the terminal is not asked to report its focus")
	}
	s.Type("\x1b[O") // the user looks elsewhere
	s.say("what a day")
	const rung = "\x1b]9;nous: what a day: done\x1b\\\x1b]777;notify;nous;what a day: done\x1b\\\a"
	s.WaitFor("ring", func(string) bool { return strings.Contains(s.Output(), rung) })
	s.Type("\x1b[I") // and back
	s.WaitFor("title", func(string) bool { return strings.HasSuffix(titles(s.Output()), "nous: what a day") })
	s.Press("ctrl+d")
	s.Exit()
	out := s.Output()
	if n := strings.Count(out, "\x1b]9;"); n != 1 {
		t.Errorf("rung %d times, want once", n)
	}
	if !strings.Contains(titles(out), "● what a day: done") {
		t.Errorf("got the titles %q", titles(out))
	}
	if push, pop := strings.Index(out, "\x1b[22;2t"), strings.LastIndex(out, "\x1b[23;2t"); push < 0 ||
		pop < strings.LastIndex(out, "\x1b]2;") {
		t.Errorf("the title is kept at %d and given back at %d of %d bytes", push, pop, len(out))
	}
}

// titles are all that the terminal was called, one after the other.
func titles(out string) (all string) {
	for _, part := range strings.Split(out, "\x1b]2;")[1:] {
		title, _, _ := strings.Cut(strings.ReplaceAll(part, "\x1b\\", "\a"), "\a")
		if title != "" {
			all += "\n" + title
		}
	}
	return all
}

// crowded is a daemon with a thousand sessions, and a nous in a terminal of 120
// by 40.
func crowded(b *testing.B) *tuitest.Terminal {
	d := daemontest.New(b, program(b, "noused"), "")
	d.Start()
	c, err := client.Dial(b.Context(), d.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	off := false
	for i := range 1000 {
		if _, err := client.Call(b.Context(), c, protocol.NewSession,
			protocol.NewSessionParams{Title: fmt.Sprint("Session ", i), Activate: &off}); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.Command(program(b, "nous"))
	cmd.Dir, cmd.Env = d.Dir, d.Env("COLORTERM=truecolor")
	s := tuitest.Start(b, cmd, 120, 40, false)
	s.Wait("connected", "idle")
	return s
}

// From the key to the painted board of 1,000 sessions.
func BenchmarkBoardOf1000Sessions(b *testing.B) {
	s := crowded(b)
	for b.Loop() {
		s.Type("\x1bOS") // F4
		s.Wait("Board · 100")
		b.StopTimer()
		s.Press("esc")
		s.Wait("connected")
		b.StartTimer()
	}
}

// What nous costs when nothing happens: with a conversation, and with the board
// of 1,000 sessions.
func BenchmarkIdle(b *testing.B) {
	const wall = 35 * time.Second
	s := crowded(b)
	share := func(b *testing.B) {
		before := cpuOf(b, s.PID())
		for b.Loop() {
			time.Sleep(wall) // it is measured what happens meanwhile
		}
		b.ReportMetric(100*(cpuOf(b, s.PID())-before).Seconds()/(float64(b.N)*wall.Seconds()), "%core")
	}
	b.Run("conversation", share)
	s.Type("\x1bOS") // F4
	s.Wait("Board · 100")
	b.Run("board", share)
}

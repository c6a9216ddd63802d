package tui

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noused/internal/protocol"
	"noused/internal/tui/slash"
	"noused/internal/tui/tuitest"
)

// A line for the shell runs in the session's folder, and what it says is in the
// conversation, on every screen and after a restart; two marks keep it out.
func TestShellLinesJoinTheConversationOrStayOut(t *testing.T) {
	d := startNoused(t, "")
	h, other := useDaemon(t, d.Socket), useDaemon(t, d.Socket)
	said := func() string {
		t.Helper()
		params := protocol.GetMessagesParams{Scope: h.place().Scope()}
		r, err := slash.Ask(t.Context(), h.place(), protocol.GetMessages, params)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, m := range r.Messages {
			all.Write(m)
		}
		return all.String()
	}
	d.Write("here", "")
	h.write("!!ls; echo beside it")
	h.press("enter")
	h.sees("$ ls; echo beside it", "here", "beside it")
	if got := said(); got != "" {
		t.Errorf("it is in the conversation: %s", got)
	}
	h.write("!echo in the $((40+2)); exit 3")
	h.press("enter")
	h.sees("I ran this in the shell", "in the 42")
	other.sees("I ran this in the shell", "in the 42")
	if got := said(); !strings.Contains(got, "in the 42") || !strings.Contains(got, "$ echo in the $((40+2)); exit 3") ||
		!strings.Contains(got, `"role":"user"`) {
		t.Errorf("the conversation has %s", got)
	}
	if h.state.Usage.OutputTokens > 0 || h.running() {
		t.Error("the model was asked")
	}
	d.Kill()
	d.Start()
	h.sees("the daemon was restarted", "in the 42")
	h.write(" !text for the model")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
	h.sees("!text for the model")
}

func TestShellLinesAndRuns(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	d.Fifo("begun")
	h.write("!!echo > begun; sleep 1000")
	h.press("enter")
	h.sees("/bash-aside")
	if _, err := os.ReadFile(filepath.Join(d.Dir, "begun")); err != nil {
		t.Fatal(err)
	}
	h.press("esc")
	h.reads("sleep 1000: stopped")
	h.until("nothing at work", func() bool { return len(h.working) == 0 })
	release := h.held(d.Dir)
	h.write("!echo no")
	h.press("enter")
	h.reads("a run is active, and its order would break: !!COMMAND runs beside it")
	h.write("!!echo besi''des")
	h.press("enter")
	h.sees("besides")
	release()
	h.until("end of the run", func() bool { return !h.running() })
	h.write("!")
	h.press("enter")
	h.sees("want /bash COMMAND")
}

// opened is a pipe with a name once somebody writes to it; meanwhile the screen goes on.
func (h *hand) opened(path string) (pipe *os.File) {
	h.t.Helper()
	opened := make(chan *os.File, 1)
	go func() { // ends with the writer, or with the test
		f, err := os.Open(path)
		if err != nil {
			h.t.Error(err)
		}
		opened <- f
	}()
	h.t.Cleanup(func() {
		if pipe == nil { // nobody has written: let go of it
			if f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		}
	})
	h.until("somebody writes to "+path, func() bool {
		select {
		case pipe = <-opened:
			return true
		default:
			return false
		}
	})
	return pipe
}

// Esc ends all processes of a line for the shell: the pipe that they hold is at
// its end when none is left.
func TestEscEndsTheProcessesOfAShellLine(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	for _, marks := range []string{"!", "!!"} {
		name := fmt.Sprintf("held-%d", len(marks))
		d.Fifo(name)
		h.write(marks + "exec >" + name + "; echo begun; sleep 1000 & (sleep 1000; true)")
		h.press("enter")
		held := h.opened(filepath.Join(d.Dir, name))
		defer held.Close()
		if _, err := io.ReadFull(held, make([]byte, len("begun\n"))); err != nil {
			t.Fatal(err)
		}
		h.until("the line at work", func() bool { return len(h.working) > 0 })
		h.press("esc")
		h.until("nothing at work", func() bool { return len(h.working) == 0 })
		if rest, err := io.ReadAll(held); err != nil || len(rest) > 0 {
			t.Errorf("%s: got %q, %v", marks, rest, err)
		}
	}
}

func TestAnOlderCoreKeepsNoShellLine(t *testing.T) {
	h := useDaemon(t, tuitest.StartOldCore(t, tuitest.Habits{}).Socket)
	h.write("!look")
	h.press("enter")
	h.until("how it ended", func() bool {
		screen := unwrapped(h.screen())
		return strings.Contains(screen, unwrapped("does not join the conversation")) ||
			strings.Contains(screen, unwrapped("has no tool bash"))
	})
}

// A line for the shell stands where it was typed: at once, and with its output although
// something else was said meanwhile.
func TestAShellLineStandsWhereItWasTyped(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	d.Fifo("gate")
	h.write("!!cat gate; echo after $((40+2))")
	h.press("enter")
	h.sees("$ cat gate; echo after")
	h.write("said beside it")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
	d.Write("gate", "let through\n")
	h.sees("let through", "after 42")
	screen := h.screen()
	if line, said := strings.Index(screen, "after 42"), strings.Index(screen, "said beside it"); line > said {
		t.Errorf("the line stands after what was said later:\n%s", screen)
	}
	if n := strings.Count(screen, "$ cat gate"); n != 1 {
		t.Errorf("the line stands there %d times:\n%s", n, screen)
	}
}

// What a line for the shell says is on the screen as it arrives, where the line was typed.
func TestAShellLineIsSeenWhileItRuns(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.write("hello")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
	for _, marks := range []string{"!", "!!"} {
		gate := fmt.Sprintf("gate-%d", len(marks))
		d.Fifo(gate)
		h.write(marks + "echo first $((40+1)); cat " + gate + "; echo last $((40+2))" + marks)
		h.press("enter")
		h.sees("first 41")
		if screen := h.screen(); strings.Contains(screen, "last 42"+marks) {
			t.Errorf("the line has ended:\n%s", screen)
		}
		d.Write(gate, "let through\n")
		h.sees("let through", "last 42"+marks)
		h.until("the end of the line", func() bool { return len(h.working) == 0 })
	}
	screen := h.screen()
	if n := strings.Count(screen, "let through"); n != 2 {
		t.Errorf("the output stands there %d times, want once for each line:\n%s", n, screen)
	}
}

// A shell line that joined the conversation stands below the end of the run before it, also
// when the conversation is read again.
func TestAShellLineStandsBelowTheRunBeforeIt(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.write("hello")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
	h.write("!echo typed $((40+2))")
	h.press("enter")
	h.sees("I ran this in the shell", "typed 42")
	for _, screen := range []string{h.screen(), useDaemon(t, d.Socket).screen()} {
		if end, line := strings.Index(screen, " in · "), strings.Index(screen, "I ran this"); end < 0 || end > line {
			t.Errorf("want the run's end above the line:\n%s", screen)
		}
	}
}

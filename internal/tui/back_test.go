package tui

import (
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// Up in an empty input takes back what was sent last, and then what was sent
// before it; the run goes on.
func TestUpTakesTheNewestQueuedTextBack(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	release := h.held(d.Dir)
	h.write("after that")
	h.press("tab")
	h.write("first of all")
	h.press("enter")
	h.until("both in the queue, and known to be its own", func() bool {
		strange := func(in protocol.QueuedInput) bool { return !slices.Contains(h.ours, in.InputID) }
		return len(h.state.Queued.Inputs) == 2 && !slices.ContainsFunc(h.state.Queued.Inputs, strange)
	})
	h.sees("Up takes the newest back")
	h.press("up", "up")
	h.until("the steer in the input", func() bool {
		return h.input.Text() == "first of all" && len(h.state.Queued.Inputs) == 1
	})
	h.press("ctrl+c", "up")
	h.until("the follow-up in the input", func() bool {
		return h.input.Text() == "after that" && len(h.state.Queued.Inputs) == 0
	})
	release()
	h.until("end of the run", func() bool { return !h.running() })
	if n := strings.Count(h.screen(), "first of all"); n != 0 {
		t.Errorf("what was taken back is said all the same:\n%s", h.screen())
	}
	h.press("ctrl+c", "up")
	if got := h.input.Text(); got != "after that" {
		t.Errorf("Up brings %q, want the history where nothing waits", got)
	}
}

func TestAnOlderCoreGivesNoQueuedTextBack(t *testing.T) {
	h := useDaemon(t, tuitest.StartOldCore(t, tuitest.Habits{}).Socket)
	h.write("hold on")
	h.press("enter")
	h.until("run", h.running)
	h.state.PendingCounts.Steer = 1 // for a moment only, as such a core delivers at once
	h.press("up")
	h.sees("does not know how to take a queued text back")
	if got := h.input.Text(); got != "hold on" {
		t.Errorf("Up brings %q, want the history", got)
	}
}

// Esc twice puts the last message into the input. A branch from before it is made when that
// is sent, and called by it; the session that it was said in stays as it is.
func TestEscTwiceEditsTheLastMessage(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	first := h.state.SessionID
	for _, text := range []string{"alpha", "beta"} {
		h.write(text)
		h.press("enter")
		h.until("answer", func() bool { return !h.running() && len(h.unsent) == 0 && strings.Count(h.screen(), text) >= 2 })
	}
	h.press("esc")
	h.sees("Esc again edits the last message")
	h.write("x")
	h.press("ctrl+c", "esc")
	if h.state.SessionID != first {
		t.Fatal("a key came between the two")
	}
	h.press("esc")
	h.until("the text in the input", func() bool { return h.input.Text() == "beta" && len(h.working) == 0 })
	h.sees("sends this in a branch from before the last message")
	sessions := func() int {
		return len(beside(h, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions)
	}
	if n := sessions(); n != 1 || h.state.SessionID != first {
		t.Fatalf("%d sessions though nothing was sent", n)
	}
	h.press("esc")
	if h.rewrite != nil || !h.input.Empty() || sessions() != 1 {
		t.Fatal("Esc is to leave all as it is")
	}
	h.press("esc", "esc")
	h.until("the text in the input again", func() bool { return h.input.Text() == "beta" && len(h.working) == 0 })
	h.write("s are better")
	h.press("enter")
	h.until("the answer in the branch", func() bool {
		return h.state.SessionID != first && h.goal == nil && !h.running() && len(h.unsent) == 0 &&
			strings.Count(h.screen(), "betas are better") >= 2 && strings.Contains(h.screen(), "alpha")
	})
	h.until("its title", func() bool { return h.state.Title == "betas are better" })
	h.press("ctrl+c")
	h.write("/switch " + first)
	h.press("enter")
	h.until("the first session", func() bool {
		return h.state.SessionID == first && strings.Count(h.screen(), "beta") >= 2
	})
}

func TestThePaletteFindsCommandsByWhatTheyDo(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.press("ctrl+p")
	h.sees("Commands", "/new")
	h.write("stees one")
	h.press("ctrl+c", "ctrl+p")
	h.write("steers")
	h.sees("F2", "deliver steers one at a time")
	h.press("enter")
	h.sees("steering: all")
	h.press("ctrl+p")
	h.write("summarise")
	h.sees("/compact")
	h.press("enter")
	if got := h.input.Text(); h.over != nil || got != "/compact " {
		t.Errorf("got %q in the input, want the command that takes an argument", got)
	}
	h.press("ctrl+c")
	h.send(tea.KeyPressMsg{Code: '?', Text: "?"})
	h.sees("the path of a file")
}

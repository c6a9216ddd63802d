package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"
)

func TestMenuCompletesCommandsAndTheirArguments(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("/mo")
	h.sees("/model", "/mode ", "/mouse")
	h.press("down", "tab")
	if got := h.input.Text(); got != "/mode " {
		t.Fatalf("got %q, want the second candidate and a space", got)
	}
	h.sees("steering")
	h.press("tab")
	h.write(" a")
	h.press("tab", "enter")
	h.sees("steering: all")
	h.write("/tools ba")
	h.until("a tool offered", h.input.Menu.Open)
	h.press("tab")
	if got := h.input.Text(); got != "/tools bash" {
		t.Errorf("got %q", got)
	}
	h.press("ctrl+c")
	h.write("/he")
	h.press("esc")
	if h.input.Menu.Open() || h.input.Text() != "/he" {
		t.Errorf("Esc left the menu open, or the text %q", h.input.Text())
	}
}

func TestUpAndDownAreHistoryAtTheEdgesOnly(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("sent")
	h.press("enter")
	h.write("a")
	h.press("alt+enter")
	h.write("b")
	h.press("up")
	if got := h.input.Text(); got != "a\nb" {
		t.Fatalf("got %q: Up within a text is no history", got)
	}
	h.press("up")
	if got := h.input.Text(); got != "sent" {
		t.Fatalf("got %q, want what was sent", got)
	}
	h.press("down")
	if got := h.input.Text(); got != "a\nb" {
		t.Errorf("got %q, want the draft", got)
	}
}

func TestPasteOfManyLinesIsNotSent(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.send(tea.PasteMsg{Content: "/quit\n/quit\n"})
	if len(h.unsent) > 0 || h.quit() || h.input.Text() != "/quit\n/quit\n" {
		t.Errorf("got %q in the input, want the paste", h.input.Text())
	}
}

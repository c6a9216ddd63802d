package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"
)

// A terminal that says nothing of its focus counts as looked at, and one that
// was just continued in is.
func TestFocusIsWhatTheTerminalSaid(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	want := func(focused bool, after string) {
		t.Helper()
		if h.focused != focused {
			t.Errorf("%s: got focused %t", after, h.focused)
		}
	}
	want(true, "at the start")
	h.send(tea.BlurMsg{})
	want(false, "when the user looks elsewhere")
	h.send(tea.FocusMsg{})
	want(true, "when the user is back")
	h.send(tea.BlurMsg{})
	h.send(tea.ResumeMsg{})
	want(true, "after fg")
}

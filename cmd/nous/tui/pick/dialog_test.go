package pick

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/cmd/nous/tui/cell"
)

func TestConfirm(t *testing.T) {
	yes, no := Choice{Action: Choose}, Choice{Action: Leave}
	for _, c := range []struct {
		keys string
		want Choice
	}{
		{"y", yes},
		{"Y", yes},
		{"n", no},
		{"N", no},
		{"esc", no},
		{"ctrl+c", no},
		{"enter", no}, // by habit
		{"left enter", yes},
		{"tab right enter", no},
		{"x down enter", yes},
	} {
		o := NewConfirm("Start a daemon?", "", Look{})
		names := strings.Fields(c.keys)
		keys(t, o, names[:len(names)-1]...)
		chooses(t, o, names[len(names)-1], c.want, true)
	}
	o := NewConfirm("Start a daemon?", "No daemon listens at\n/run/user/1000/noused.sock.\x1b[2J", Look{})
	for _, size := range sizes {
		golden(t, o, "confirm", size[0], size[1])
	}
	golden(t, o, "confirm", 10, 3)
	o.SetLook(Look{Plain: true})
	golden(t, o, "confirm-plain", 80, 24)
	// However little room there is, the answers are shown.
	if view := o.View(12, 1); !strings.Contains(view, "yes") || !strings.Contains(view, "no") {
		t.Errorf("no answers in %q", view)
	}
}

func TestInput(t *testing.T) {
	o := NewInput("New session", "Title, or nothing:", "Untitled", Look{})
	for _, size := range sizes {
		golden(t, o, "input", size[0], size[1])
	}
	golden(t, o, "input", 10, 3)
	keys(t, o, "ctrl+u")
	typed(t, o, "日本 qx")
	keys(t, o, "backspace")
	o.Update(tea.PasteMsg{Content: "-a\nb"})
	chooses(t, o, "enter", Choice{Action: Choose, Text: "日本 q-a b"}, true)
	chooses(t, o, "esc", Choice{Action: Leave}, true)
	o.View(12, 2)
	if x, _, ok := o.Cursor(); !ok || x != 11 {
		t.Errorf("the cursor of a line that is too long is at %d (%v), want the last cell, 11", x, ok)
	}
}

func TestHelp(t *testing.T) {
	o := NewHelp("Keys", []Binding{
		{"enter", "Send the text; while a run goes on: steer it", "Writing"},
		{"alt+enter", "A new line", "Writing"},
		{"esc", "Abort the run", "Runs"},
		{"ctrl+r", "The sessions: to look at another one, to begin a new one, to delete one of them for good", "Views"},
		{"ctrl+t", "The tree of this session", "Views"},
		{"alt+enter, shift+enter, ctrl+j", "Keys that are too long for their column", "Writing"},
		{"tab", "Complete a command or the path of a file", "Writing"},
	}, Look{})
	for _, size := range sizes {
		golden(t, o, "help", size[0], size[1])
	}
	golden(t, o, "help", 10, 3)
	shows := func(want string) {
		t.Helper()
		if view := cell.Sanitize(o.View(80, 6)); !strings.Contains(view, want) {
			t.Errorf("no %q in\n%s", want, view)
		}
	}
	shows("A new line")
	keys(t, o, "end")
	shows("The tree of this session")
	keys(t, o, "pgup", "pgup", "pgup", "up")
	shows("Send the text")
	keys(t, o, "space", "down", "down")
	shows("Abort the run")
	for _, key := range []string{"esc", "q", "?", "enter"} {
		chooses(t, o, key, Choice{Action: Leave}, true)
	}
}

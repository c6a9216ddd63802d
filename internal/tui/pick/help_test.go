package pick

import (
	"strings"
	"testing"

	"noused/internal/tui/cell"
)

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
		if view := cell.Sanitize(o.View(60, 6)); !strings.Contains(view, want) {
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

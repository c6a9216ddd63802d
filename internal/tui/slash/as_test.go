package slash

import (
	"testing"

	"noused/internal/protocol"
)

// A text for a named agent comes back as the command that sends it, never as one with all tools.
func TestTextsForNamedAgentsComeBackAsCommands(t *testing.T) {
	for _, one := range []struct {
		want  string
		texts []Unsent
	}{
		{"", []Unsent{{Text: "all tools"}}},
		{"/plan a", []Unsent{UnsentAs(Plan, "a")}},
		{"/as explore //a", []Unsent{UnsentAs("explore", "//a")}},
		{"/plan /skill:x a", []Unsent{UnsentAs(Plan, "/skill:x a")}},
		{"/plan a\n\nb", []Unsent{{Text: "a"}, UnsentAs(Plan, "b")}},
	} {
		if got := AsWritten(one.texts); got != one.want {
			t.Errorf("got %q, want %q", got, one.want)
		}
	}
	if TakesNamed(Place{State: protocol.State{Agent: "codex"}}) == nil {
		t.Error("a session of a hosted agent takes a text for a named one")
	}
}

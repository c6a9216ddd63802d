package main

import (
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/tui/slash"
)

// A word that is a command of nous and of the screen means one thing: a new one is looked at
// before it joins this list. Of model it is not true yet: /model is nous set-model.
func TestOneWordMeansOneThing(t *testing.T) {
	var both []string
	for _, cmd := range newApp(nil, io.Discard, io.Discard).root().Commands() {
		if slices.ContainsFunc(slash.Commands, func(c slash.Command) bool { return c.Name == cmd.Name() }) {
			both = append(both, cmd.Name())
		}
	}
	slices.Sort(both)
	want := []string{
		"abort", "approvals", "approve", "board", "branch", "compact", "deny", "diff", "export", "follow-up", "model",
		"new", "options", "rewind", "search", "set-approval-mode", "setup", "state", "switch", "tools", "tree",
	}
	if diff := cmp.Diff(want, both); diff != "" {
		t.Errorf("words of both (-want +got):\n%s", diff)
	}
}

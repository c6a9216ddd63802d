package main

import (
	"strings"
	"testing"

	"noused/internal/protocol"
)

// twoChildren has the offline model call two child sessions at once: one that holds, and one that says
// something.
const twoChildren = ` !agent {"description":"Run the tests","prompt":"!hold.run {}"}
!agent {"description":"Read the manual","prompt":"the manual has four parts"}`

// focus goes to the block before until that is the one with a text.
func (s *screen) focus(text string) {
	s.t.Helper()
	for range 6 {
		s.Press("alt+up")
		for line := range strings.SplitSeq(s.Screen(), "\n") {
			if strings.HasPrefix(line, "▎") && strings.Contains(line, text) {
				return
			}
		}
	}
	s.t.Fatalf("no block of %q comes into focus:\n%s", text, s.Screen())
}

// Each call of the tool agent is a block that tells what the child does, also of one whose turn to be told
// has not come; Enter goes into the child, Esc back.
func TestChildrenOnTheScreen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{})
	s.Paste(twoChildren)
	s.Press("enter")
	s.Wait("Run the tests", "hold", "Read the manual")
	s.WaitFor("what the second child used", func(screen string) bool {
		return strings.Contains(lineWith(screen, "agent  Read the manual"), " out")
	})
	s.focus("agent  Run the tests")
	s.Wait("into the child session")
	s.Press("enter")
	s.Wait("holding on", "to the parent", "› Run the tests")
	s.Press("esc")
	s.Wait("agent  Read the manual", "connected")
	if state := state(t, d.Socket); state.RunState == protocol.StateIdle {
		t.Error("Esc has ended a run")
	}
	d.Write("go", "go\n")
	s.Wait("idle")
	s.WaitFor("the end of both", func(screen string) bool {
		return strings.HasPrefix(strings.TrimSpace(lineWith(screen, "agent  Run the tests")), "✓") &&
			strings.HasPrefix(strings.TrimSpace(lineWith(screen, "agent  Read the manual")), "✓")
	})
}

func lineWith(screen, text string) string {
	for line := range strings.SplitSeq(screen, "\n") {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

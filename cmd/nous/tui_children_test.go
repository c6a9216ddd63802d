package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"noused/internal/protocol"
)

// twoChildren has the offline model call two child sessions at once: one that holds, and one that says
// something.
const twoChildren = ` !agent {"description":"Run the tests","prompt":"!hold.run {}"}
!agent {"description":"Read the manual","prompt":"the manual has four parts"}`

// focus goes so many blocks up, to the one with a text.
func (s *screen) focus(up int, text string) {
	s.t.Helper()
	for range up {
		s.Press("alt+up")
	}
	s.WaitFor("focus on "+text, func(screen string) bool { return strings.HasPrefix(lineWith(screen, text), "▎") })
}

// Each call of the tool agent is a block that tells what the child does, also of one whose turn to be told
// has not come; Enter goes into the child, Esc back.
func TestChildrenOnTheScreen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{})
	s.newSession("Fix the login")
	s.Paste(twoChildren)
	s.Press("enter")
	s.Wait("Run the tests", "hold", "Read the manual")
	s.WaitFor("what the second child used", func(screen string) bool {
		return strings.Contains(lineWith(screen, "agent  Read the manual"), " out")
	})
	s.focus(2, "agent  Run the tests")
	s.Wait("into the child session")
	s.Press("enter")
	s.Wait("holding on", "to the parent", "Fix the login › Run the tests")
	s.Press("esc")
	s.Wait("agent  Read the manual", "connected")
	s.WaitFor("the focus where it was", func(screen string) bool {
		return strings.HasPrefix(lineWith(screen, "agent  Run the tests"), "▎")
	})
	s.Type(keyF4)
	s.Wait("● Fix the login", "● ├ Run the tests", "└ Read the manual")
	s.Press("esc")
	s.WaitGone("├ Run the tests")
	row := slices.IndexFunc(strings.Split(s.Screen(), "\n"), func(line string) bool {
		return strings.Contains(line, "agent  Run the tests")
	})
	click := fmt.Sprintf("\x1b[<0;5;%dM", row+1)
	s.Type("half")
	s.Type(click) // goes nowhere while something is typed
	s.Type(" a text")
	s.Wait("half a text", "agent  Read the manual")
	s.Press("ctrl+u")
	s.Type(click)
	s.Wait("holding on", "Fix the login › Run the tests")
	s.Press("esc")
	s.Wait("agent  Read the manual")
	d.Write("go", "go\n")
	s.Wait("idle", "✓ agent  Run the tests", "✓ agent  Read the manual")
	child := s.childOf("Read the manual")
	askDaemon(t, d.Socket, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: child})
	s.Wait("deleted")
	s.Press("alt+down", "enter")
	s.Wait("this child session was deleted")
	s.Press("alt+up", "enter")
	s.Wait("let go", "idle") // one that has ended
	d.Kill()
	d.Start()
	s.Wait("connected", "let go", "to the parent")
	s.Press("esc")
	s.Wait("agent  Read the manual", "deleted")
}

// childOf is the session of that title.
func (s *screen) childOf(title string) string {
	s.t.Helper()
	list := askDaemon(s.t, s.d.Socket, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions
	i := slices.IndexFunc(list, func(i protocol.SessionInfo) bool { return i.Title == title })
	return list[i].SessionID
}

func lineWith(screen, text string) string {
	for line := range strings.SplitSeq(screen, "\n") {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

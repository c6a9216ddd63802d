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

// A child in the background is there also where the children before it are known: the screen said that it was deleted
// (found by a trial).
func TestAChildInTheBackgroundBehindOthers(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{})
	s.newSession("Fix the login")
	s.Paste(` !agent {"description":"Read the manual","prompt":"the manual has four parts"}`)
	s.Press("enter")
	s.Wait("✓ agent  Read the manual", "idle")
	s.WaitFor("what the first child used", func(screen string) bool {
		return strings.Contains(lineWith(screen, "agent  Read the manual"), " out")
	})
	s.Paste(` !agent {"description":"Run the tests","prompt":"!hold.run {}","background":true}`)
	s.Press("enter")
	s.Wait("agent  Run the tests", "hold.run")
	d.Write("go", "go\n")
	s.WaitFor("what the second child used", func(screen string) bool {
		line := lineWith(screen, "agent  Run the tests")
		return strings.Contains(line, " out") && !strings.Contains(line, "deleted")
	})
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

// A session that is deleted while it is shown makes room for what nous opens there: for a child its parent, else the
// session of the folder that was used last, else a new one in the folder.
func TestTheShownSessionIsDeleted(t *testing.T) {
	t.Parallel()
	d, dir := startDaemon(t, ""), t.TempDir()
	s := openScreen(t, d, look{args: []string{"--workdir", dir}})
	first := askDaemon(t, d.Socket, protocol.ListSessions, protocol.ListSessionsParams{Workdir: dir}).Sessions[0].SessionID
	s.newSession("The older one")
	s.say("hello")
	s.Wait("hello", "idle")
	s.newSession("The newer one")
	s.Paste(` !agent {"description":"Look around","prompt":"there is nothing"}`)
	s.Press("enter")
	s.Wait("✓ agent  Look around", "idle")
	s.focus(2, "agent  Look around")
	s.Press("enter")
	s.Wait("The newer one › Look around")
	child := s.childOf("Look around")
	del := func(p protocol.DeleteSessionParams) { askDaemon(t, d.Socket, protocol.DeleteSession, p) }
	parent := s.childOf("The newer one")
	del(protocol.DeleteSessionParams{SessionID: first})
	del(protocol.DeleteSessionParams{SessionID: child})
	s.Wait("the session shown before was deleted", "✓ agent  Look around")
	del(protocol.DeleteSessionParams{SessionID: parent})
	s.Wait("the session shown before was deleted", "The older one")
	del(protocol.DeleteSessionParams{SessionID: s.childOf("The older one")})
	s.WaitGone("The older one")
	s.Wait("the session shown before was deleted", "connected")
	s.say("where are we")
	s.WaitFor("the answer", func(screen string) bool {
		return strings.Count(screen, "where are we") == 2 && strings.Contains(screen, "(1 model call)")
	})
	list := askDaemon(t, d.Socket, protocol.ListSessions, protocol.ListSessionsParams{Workdir: dir}).Sessions
	if len(list) != 1 || list[0].Blank() {
		t.Errorf("the folder has the sessions %+v, want the one that is shown", list)
	}
}

// The screen says that NOUSED_MODEL is not what the running daemon was started with.
func TestTheScreenNamesAnotherModel(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := startScreen(t, d, look{env: []string{"NOUSED_MODEL=openai/gpt-5"}})
	s.Wait("NOUSED_MODEL is openai/gpt-5 here, but the running daemon was started with offline/script", "connected")
	s = startScreen(t, d, look{env: []string{"NOUSED_MODEL=offline"}})
	s.Wait("connected", "idle")
	if strings.Contains(s.Screen(), "NOUSED_MODEL") {
		t.Errorf("the model is the daemon's, and the screen says:\n%s", s.Screen())
	}
}

// A child that is deleted is marked also where none has worked since the parent was opened.
func TestADeletedChildIsMarked(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{})
	s.newSession("Fix the login")
	s.say(` !agent {"description":"Look around","prompt":"there is nothing"}`)
	s.Wait("✓ agent  Look around", "idle")
	late := openScreen(t, d, look{args: []string{"--session", "Fix the login"}})
	late.WaitFor("what the child used", func(screen string) bool {
		return strings.Contains(lineWith(screen, "agent  Look around"), " out")
	})
	askDaemon(t, d.Socket, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: s.childOf("Look around")})
	deleted := func(screen string) bool { return strings.Contains(lineWith(screen, "agent  Look around"), "deleted") }
	late.WaitFor("the deleted child", deleted)
	s.WaitFor("the deleted child", deleted)
}

package tui

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

var (
	keyF7    = tea.KeyPressMsg{Code: tea.KeyF7}
	keyAltUp = tea.KeyPressMsg{Code: tea.KeyUp, Mod: tea.ModAlt}
)

// changes has a run write a file, in a session with a folder of its own, and waits until the last
// line says so.
func changes(t *testing.T) (h *hand, d *daemontest.Daemon, file string) {
	t.Helper()
	d = startNoused(t, "")
	h = useDaemon(t, d.Socket)
	folder := filepath.Join(d.Dir, "work")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	id := beside(h, protocol.NewSession, protocol.NewSessionParams{Workdir: folder}).SessionID
	h.follow(id)
	h.until("the session", func() bool { return h.state.SessionID == id && h.goal == nil })
	h.write("Begin.")
	h.press("alt+enter")
	h.write(`!write {"path":"made.txt","content":"a\nb\n"}`)
	h.press("enter")
	h.until("end of the run", func() bool { return !h.running() && h.state.LastRun != nil && len(h.unsent) == 0 })
	all := beside(h, protocol.GetChanges, protocol.GetChangesParams{Scope: protocol.Scope{SessionID: id}})
	if len(all.Missing) > 0 {
		testenv.Unrecorded(t, all.Missing[0].Why)
	}
	if len(all.Files) != 1 {
		t.Fatalf("changes: %+v", all)
	}
	h.sees("1 file +2 −0 · /diff")
	return h, d, filepath.Join(folder, "made.txt")
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return "none"
	}
	return string(text)
}

// Comments that are sent while a run is active steer it, and those that were left are kept.
func TestCommentsOnChangesSteerTheRun(t *testing.T) {
	h, d, _ := changes(t)
	h.send(keyF7)
	h.sees("made.txt", "+b")
	h.press("down", "down")
	h.write("cCapital letters.")
	h.press("ctrl+c")
	h.sees("1 comment unsent", "/diff shows and sends them")
	release := h.held(d.Dir)
	if h.lastLine != "" {
		t.Errorf("the last line still says %q", h.lastLine)
	}
	h.write("/diff")
	h.press("enter")
	h.sees("> Capital letters.")
	h.press("enter")
	h.write("s")
	h.until("a steer", func() bool { return len(h.state.Queued.Steer) == 1 })
	if got, want := h.state.Queued.Steer[0], "made.txt:1\n> +a\nCapital letters."; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	if h.over != nil || h.unsentComments() != 0 {
		t.Errorf("%d comments are there still:\n%s", h.unsentComments(), h.screen())
	}
	h.write("/rewind")
	h.press("enter")
	h.sees("a run is active: rewind when it has ended")
	release()
	h.until("end of the run", func() bool { return !h.running() })
}

// Esc twice on a message, or on what came of it, offers to rewind to before it; a conflict has to be marked, and
// what was done can be undone.
func TestEscTwiceOnAMessageRewinds(t *testing.T) {
	h, _, file := changes(t)
	h.send(keyAltUp) // the answer to it
	if err := os.WriteFile(file, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.press("esc")
	h.sees("Esc again offers to rewind to before your message")
	h.press("esc")
	h.sees("Rewind to before", "[ ] made.txt: ", "1 in conflict")
	h.press("down", "down", "enter")
	h.sees("nothing is done while there are conflicts")
	if got := content(t, file); got != "mine\n" {
		t.Fatalf("the file has %q", got)
	}
	h.press("down")
	h.write(" ")
	h.press("up", "enter")
	h.sees("conversation and 1 file taken back · /rewind undo")
	h.until("the text in the input", func() bool { return strings.HasPrefix(h.input.Text(), "Begin.\n") && h.goal == nil })
	if got := content(t, file); got != "none" {
		t.Errorf("the file has %q", got)
	}
	h.press("ctrl+c")
	h.write("/rewind undo")
	h.press("enter")
	h.sees("the rewind is undone: 1 file put back", "Begin.")
	if got := content(t, file); got != "mine\n" {
		t.Errorf("the file has %q", got)
	}
}

// The changes of a session name its child sessions that have changed files, and lead to theirs; Esc leads back.
func TestTheChangesOfAChildAreNextToItsParents(t *testing.T) {
	h, _, _ := changes(t)
	h.write(` !agent {"description":"Write the list","prompt":"!write {\"path\":\"list.txt\",\"content\":\"one\\n\"}"}`)
	h.press("enter")
	h.sees("✓ agent  Write the list")
	h.until("end of the run", func() bool { return !h.running() && len(h.unsent) == 0 })
	parent := h.state.SessionID
	list := beside(h, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions
	child := slices.IndexFunc(list, func(i protocol.SessionInfo) bool { return i.Title == "Write the list" })
	scope := protocol.Scope{SessionID: list[child].SessionID}
	if its := beside(h, protocol.GetChanges, protocol.GetChangesParams{Scope: scope}); len(its.Missing) > 0 {
		testenv.Unrecorded(t, its.Missing[0].Why)
	}
	h.send(keyF7)
	h.sees("A made.txt", "child sessions have changed files, too:", "→ Write the list", "1 file")
	h.press("end")
	h.sees("❯ → Write the list", "enter its changes")
	h.press("enter")
	h.sees("Changes", "A list.txt", "+one", "1 file +1 −0")
	if h.state.SessionID != scope.SessionID || strings.Contains(h.screen(), "made.txt") {
		t.Errorf("%s is shown:\n%s", h.state.SessionID, h.screen())
	}
	h.press("esc", "esc")
	h.until("the parent", func() bool { return h.state.SessionID == parent && h.goal == nil && h.over == nil })
	h.write("/rewind")
	h.press("enter")
	h.sees("Rewind to before which message?")
	h.press("enter")
	h.sees("Not taken back: changes of 1 child session.")
}

package tui

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

func init() { named["f4"] = tea.KeyPressMsg{Code: tea.KeyF4} }

// beside sends a command on the screen's connection.
func beside[P protocol.Params, R protocol.Reply](h *hand, def protocol.Def[P, R], p P) R {
	h.t.Helper()
	r, err := follow.Do(context.Background(), h.link, def, p)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// The board shows what happens in every session while it is open, and the answer
// to a session goes to it without leaving the board.
func TestTheBoardIsLive(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	first := h.state.SessionID
	off := false
	other := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "The other one", Activate: &off}).SessionID
	h.press("f4")
	h.sees("1 idle", "The other one") // and not the one in which nothing was said
	beside(h, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: other}, Text: "words for the other"})
	h.sees("1 done, unread", "words for the other")
	h.write("other")
	h.until("the other alone", func() bool { i, ok := h.board.Selected(); return ok && i.SessionID == other })
	h.press("tab")
	h.sees("say to The other one")
	h.write("said from the board")
	h.press("enter")
	h.sees("sent", "said from the board")
	if h.state.SessionID != first {
		t.Errorf("got %s on the screen, want the session that was there", h.state.SessionID)
	}
	// A session that another client makes comes with what happens in it.
	third := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "The other third", Activate: &off}).SessionID
	beside(h, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: third}, Text: "hello"})
	h.sees("The other third")
	// The command of another client that has seen it.
	beside(h, protocol.MarkRead, protocol.MarkReadParams{Scope: protocol.Scope{SessionID: third}})
	h.until("one unread", func() bool { return strings.Contains(h.screen(), "1 done, unread") })
}

func TestASessionIsOpenedFromTheBoard(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	off := false
	other := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "The other one", Activate: &off}).SessionID
	active := h.state.SessionID
	h.write("/board")
	h.press("enter")
	h.sees("The other one")
	h.write("the other")
	h.press("enter")
	h.until("the other one", func() bool { return h.state.SessionID == other && h.over == nil })
	if h.board != nil {
		t.Error("the board goes on behind the conversation")
	}
	if s := beside(h, protocol.GetState, protocol.GetStateParams{}); s.SessionID != active {
		t.Errorf("got %s for the active session: looking at another has moved it", s.SessionID)
	}
	h.press("f4")
	h.sees("The other one")
	h.press("esc")
	if h.over != nil {
		t.Error("Esc did not go back")
	}
}

func TestSessionsAreRenamedAbortedAndDeletedOnTheBoard(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.held(d.Dir)
	h.press("f4")
	h.sees("1 working", "bash")
	h.send(tea.KeyPressMsg{Code: tea.KeyF2})
	h.send(tea.KeyPressMsg{Code: 'u', Mod: tea.ModCtrl})
	h.write("A name for it")
	h.press("enter")
	h.sees("renamed", "A name for it")
	h.send(tea.KeyPressMsg{Code: 'x', Mod: tea.ModCtrl})
	h.sees("aborted", "1 done, unread")
	id := h.state.SessionID
	h.press("ctrl+d")
	h.sees("delete A name for it for good?")
	h.press("enter") // is no yes
	h.until("no approval", func() bool { return !strings.Contains(h.screen(), "for good?") })
	h.press("ctrl+d")
	h.write("y")
	h.until("another session", func() bool { return h.state.SessionID != id })
}

// Texts that an abort on the board hands back can be said again, or copied from
// the conversation.
func TestAnAbortOnTheBoardHandsTextsBack(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	off := false
	other := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "The other one", Activate: &off}).SessionID
	scope := protocol.Scope{SessionID: other}
	beside(h, protocol.Prompt, protocol.PromptParams{
		Scope: scope, Wait: &off,
		Text: `!bash {"command":"until [ -e go ]; do sleep 0.05; done"}`,
	})
	h.press("f4")
	h.sees("The other one", "1 working", "bash")
	beside(h, protocol.FollowUp, protocol.FollowUpParams{Scope: scope, Text: "and mind the tests"})
	beside(h, protocol.FollowUp, protocol.FollowUpParams{Scope: scope, Text: "then the docs"})
	h.write("other")
	h.until("the other alone", func() bool { i, ok := h.board.Selected(); return ok && i.SessionID == other })
	h.send(tea.KeyPressMsg{Code: 'x', Mod: tea.ModCtrl})
	h.sees("say to The other one", "and mind the tests", "then the docs")
	h.press("enter")
	h.sees("sent")
	h.sees("› and mind the tests")
}

// Where the board was left meanwhile they are in the history of the input.
func TestAnAbortOnABoardThatWasLeftKeepsTheTexts(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	made := there(t, d, protocol.NewSession, protocol.NewSessionParams{Title: "The other one", Activate: new(bool)})
	other := made.SessionID
	scope := protocol.Scope{SessionID: other}
	there(t, d, protocol.Prompt, protocol.PromptParams{
		Scope: scope, Wait: new(bool),
		Text: `!bash {"command":"until [ -e go ]; do sleep 0.05; done"}`,
	})
	there(t, d, protocol.FollowUp, protocol.FollowUpParams{Scope: scope, Text: "and mind the tests"})
	h.press("f4")
	h.sees("The other one", "1 working")
	h.write("other")
	h.until("the other alone", func() bool { i, ok := h.board.Selected(); return ok && i.SessionID == other })
	h.send(tea.KeyPressMsg{Code: 'x', Mod: tea.ModCtrl})
	h.press("esc", "esc") // the filter, and the board
	h.until("the text in the history", func() bool { return h.remembered("and mind the tests") })
}

// A session whose folder is gone looks so.
func TestTheBoardTellsThatAFolderIsGone(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	dir := filepath.Join(d.Dir, "swept")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "In a folder", Workdir: dir, Activate: new(bool)})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	h.press("f4")
	h.sees("In a folder", "swept (gone)")
}

// After a loss of the connection, and of the daemon, the board is right again by
// itself.
func TestTheBoardAfterTheDaemonCameBack(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	off := false
	beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "Made before", Activate: &off})
	h.press("f4")
	h.sees("1 idle")
	d.Kill()
	h.sees("reconnecting")
	d.Start()
	h.until("the connection", func() bool { return h.offline == nil })
	beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "Made after", Activate: &off})
	id := beside(h, protocol.ListSessions, protocol.ListSessionsParams{Limit: new(1)}).Sessions[0].SessionID
	beside(h, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: id}, Text: "hello"})
	h.sees("Made after", "1 done, unread")
}

// says writes to the session under the board's cursor.
func (h *hand) says(text string) {
	h.t.Helper()
	h.press("tab")
	h.sees("say to ")
	h.write(text)
	h.press("enter")
}

// remembered tells whether a text is the newest in the history of the input.
func (h *hand) remembered(text string) bool {
	all := h.input.History.Texts
	return len(all) > 0 && all[len(all)-1] == text
}

// A text of the board that the daemon has not taken is in its line again, with the reason; where it cannot be, as
// the board was left, or another text is written there, or the session is no more, it is in the history of the input.
func TestATextOfTheBoardThatIsNotSentIsKept(t *testing.T) {
	d := startNoused(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	h := useDaemon(t, p.Socket)
	begun(t, d, "The other one")
	gone := begun(t, d, "Deleted soon")
	h.press("f4")
	h.sees("The other one", "Deleted soon")
	h.write("soon")
	h.until("one row", func() bool { i, ok := h.board.Selected(); return ok && i.SessionID == gone })
	there(t, d, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: gone})
	h.says("for the deleted one") // before the board has heard of it
	h.sees("the session was deleted elsewhere")
	if !h.remembered("for the deleted one") {
		t.Errorf("got the history %q", h.input.History.Texts)
	}
	h.press("esc")
	h.write("other")
	h.sees("The other one")
	p.Cut(true)
	h.until("word of the loss", func() bool { return h.offline != nil })

	h.says("in its line")
	h.sees("not connected to the daemon", "say to The other one: in its line")
	h.press("enter")
	h.press("tab") // before it was refused
	h.write("written meanwhile")
	h.sees("not connected to the daemon")
	if !h.remembered("in its line") || !strings.Contains(h.screen(), "written meanwhile") {
		t.Errorf("got the history %q; the screen is\n%s", h.input.History.Texts, h.screen())
	}
	h.press("esc")
	h.says("left behind")
	h.press("esc", "esc") // the filter, and the board
	if h.over != nil {
		t.Fatal("the board was not left")
	}
	h.until("the text in the history", func() bool { return h.remembered("left behind") })
	h.reads("not connected to the daemon; the text is in the history of the input")
}

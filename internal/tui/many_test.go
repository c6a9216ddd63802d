package tui

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/clienttest"
	"noused/internal/client/follow"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// atHost is a daemon that stands for one of another machine.
func atHost(name, socket string) Site {
	s := siteAt(socket)
	s.Host, s.Flags = name, " --host "+name
	return s
}

// useMany opens the screen of several daemons, as if each were on a machine of its own.
// The first one has a session.
func useMany(t *testing.T, first Site, others ...slash.Site) *hand {
	t.Helper()
	h := useSites(t, nil, first, others...)
	h.until("the session", func() bool { return h.known })
	return h
}

// there sends a command to a daemon on a connection of its own.
func there[P protocol.Params, R protocol.Reply](t *testing.T, d *daemontest.Daemon, def protocol.Def[P, R], p P) R {
	t.Helper()
	r, err := follow.Once(context.Background(), follow.Socket(d.Socket), def, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// begun makes a session at a daemon, in which something was said.
func begun(t *testing.T, d *daemontest.Daemon, title string) (id string) {
	t.Helper()
	id = there(t, d, protocol.NewSession, protocol.NewSessionParams{Title: title, Activate: new(bool)}).SessionID
	there(t, d, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: id}, Text: "words for " + title})
	return id
}

// waits has a session ask whether a command may run.
func waits(t *testing.T, d *daemontest.Daemon, session, command string) {
	t.Helper()
	there(t, d, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session},
		Text:  outside(t, command), Wait: new(bool),
	})
}

// before tells whether all of these are on the screen, in this order.
func (h *hand) before(texts ...string) bool {
	screen := h.screen()
	for _, text := range texts {
		i := strings.Index(screen, text)
		if i < 0 {
			return false
		}
		screen = screen[i+len(text):]
	}
	return true
}

// The list of sessions is that of all hosts, those that wait first. One of another host
// is shown, and what is written then goes there.
func TestSessionsOfAllHostsAreListed(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	begun(t, gpu, "Train it")
	asks := begun(t, gpu, "Ask for it")
	waits(t, gpu, asks, "touch "+filepath.Join(gpu.Dir, "made"))
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", gpu.Socket))
	h.send(tea.WindowSizeMsg{Width: 120, Height: 30})
	h.sees("● box", "1 approval elsewhere")
	h.write("half a sent")
	h.press("ctrl+r")
	h.until("all sessions, the one that waits first", func() bool {
		return h.before("Ask for it", "needs you", "gpu", "(no session yet)", "box", "Train it", "gpu")
	})
	h.write("train")
	h.until("that alone", func() bool { return !h.before("Ask for it") })
	h.press("enter")
	h.sees("● gpu", "words for Train it", "> half a sent")
	h.write("ence")
	h.press("enter")
	h.until("the answer", func() bool { return strings.Count(h.screen(), "half a sentence") == 2 && !h.running() })
	if got := h.farewell(); !strings.Contains(got, " --host gpu") {
		t.Errorf("got the farewell %q, want the host", got)
	}
	h.press("f6") // the session that asks, of the same host now
	h.sees("Allow bash to run OUTSIDE")
	h.press("ctrl+r")
	h.sees("(no session yet)")
	h.write("box")
	h.sees("1 of 3")
	h.press("enter")
	h.sees("● box", "1 approval elsewhere")
	h.press("f6")
	h.sees("● gpu", "Allow bash to run OUTSIDE")
}

// Approvals of a host that was left before it had said anything are still reported.
func TestAHostThatIsLeftAtOnceKeepsItsApprovals(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	asks := begun(t, gpu, "Ask for it")
	waits(t, gpu, asks, "touch "+filepath.Join(gpu.Dir, "made"))
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", gpu.Socket))
	h.sees("1 approval elsewhere")
	h.move(h.sites[1], asks)
	h.move(h.sites[0], "")
	h.sees("● box", "1 approval elsewhere")
	for range 2 { // and for good
		h.until("box's session", func() bool { return h.goal == nil })
		h.sees("1 approval elsewhere")
	}
}

// That a host is asked again, as it has not answered, does not make it one that can be reached.
func TestAHostThatIsAwayStaysAway(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", gpu.Socket))
	s := h.sites[1]
	h.send(away{s, errors.New("no route")})
	h.send(unanswered{s})
	if s.away == nil {
		t.Error("a timer has brought the host back")
	}
	h.send(unheard{s})
	if s.away != nil {
		t.Errorf("it is connected, and still away: %v", s.away)
	}
}

// A host that cannot be reached has a line in the list, says why, and keeps nobody else.
// It comes back by itself.
func TestAHostThatIsAwayHasALine(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	begun(t, gpu, "Train it")
	p := tuitest.NewProxy(t, gpu.Socket)
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", p.Socket))
	h.press("ctrl+r")
	h.sees("Train it")
	p.Cut(true)
	h.until("word of it", func() bool { return h.before("away", "gpu") || h.before("gpu", "away") })
	h.until("the others", func() bool { return h.before("(no session yet)") })
	h.write("gpu")
	h.press("enter") // nothing can be chosen there, but what was listed
	p.Cut(false)
	h.press("esc", "ctrl+r")
	h.until("its sessions", func() bool { return h.before("Train it") && !h.before("away") })
}

// What was not sent to a host is back in the input when another one is shown. What is on
// its way is not said there.
func TestWhatWaitsForAHostIsGivenBack(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	begun(t, gpu, "Train it")
	p := tuitest.NewProxy(t, box.Socket)
	h := useMany(t, atHost("box", p.Socket), atHost("gpu", gpu.Socket))
	p.Cut(true)
	h.until("word of the loss", func() bool { return h.offline != nil })
	h.write("said on the way")
	h.press("enter")
	h.sees("unsent said on the way")
	key := h.unsent[0].Key
	h.press("ctrl+r")
	h.sees("Train it")
	h.write("train")
	h.press("enter")
	h.sees("● gpu", "> said on the way", "what was not sent to box is in the input")
	if len(h.unsent) > 0 || h.sending {
		t.Errorf("got %d texts that wait, want none", len(h.unsent))
	}
	p.Cut(false)
	h.press("ctrl+r")
	h.sees("(no session yet)")
	h.write("box")
	h.sees("1 of 2")
	h.press("enter")
	h.sees("● box", "> said on the way")
	if strings.Contains(string(commandsOf(p)), "said on the way") {
		t.Error("the text was sent")
	}
	h.press("enter")
	h.until("its answer", func() bool { return len(h.unsent) == 0 })
	if !strings.Contains(string(commandsOf(p)), key) {
		t.Errorf("the text was sent as another than %s:\n%s", key, commandsOf(p))
	}
}

// A command of a host that is shown no more is done there, and says so.
func TestACommandOfAHostThatIsLeftIsDone(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	id := begun(t, gpu, "Train it")
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", gpu.Socket))
	h.write("!!until [ -e go ]; do sleep 0.05; done; echo it is done")
	h.press("enter")
	h.until("the line's run", func() bool { return len(h.working) == 1 })
	h.move(h.sites[1], id)
	h.sees("● gpu", "words for Train it")
	h.write("meanwhile")
	h.press("enter")
	h.until("the answer", func() bool { return strings.Count(h.screen(), "meanwhile") == 2 })
	box.Write("go", "")
	h.sees("box: $ until", "it is done")
	h.until("rest", func() bool { return len(h.working) == 0 })
}

// picks has one row alone on the board.
func (h *hand) picks(filter, host, session string) {
	h.t.Helper()
	h.write(filter)
	h.until("the one row", func() bool { id := h.board.SelectedID(); return id.Host == host && id.Session == session })
}

// The board has the sessions of all hosts. What is said and answered there goes to the
// host of the row, and to open one leads to its host.
func TestTheBoardOfSeveralHosts(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	train, asks := begun(t, gpu, "Train it"), begun(t, gpu, "Ask for it")
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", gpu.Socket))
	h.send(tea.WindowSizeMsg{Width: 120, Height: 40})
	there(t, box, protocol.NewSession, protocol.NewSessionParams{Title: "Begin it", Activate: new(bool)})
	h.press("f4")
	h.sees("1 idle", "2 done, unread", "done, unread · gpu · "+gpu.Dir, "idle · box · "+box.Dir)
	// What happens at either host is seen.
	waits(t, gpu, asks, "touch "+filepath.Join(gpu.Dir, "made"))
	h.sees("1 needs you", "waits for approval")
	begun(t, box, "Mend it")
	h.sees("Mend it", "words for Mend it")
	h.picks("ask gpu", "gpu", asks)
	h.sees("Allow bash to run OUTSIDE")
	h.press("f5")
	h.write("o")
	h.sees("approval: allowed")
	h.until("the file", func() bool { return exists(filepath.Join(gpu.Dir, "made")) })
	h.press("esc")
	if h.over == nil {
		t.Fatal("Esc has left the board, with a filter")
	}
	h.picks("train", "gpu", train)
	h.press("tab")
	h.write("said from the board")
	h.press("enter")
	h.sees("sent")
	h.until("the answer", func() bool {
		return strings.Count(h.screen(), "said from the board") >= 2 && h.opts.Host == "box"
	})
	h.press("enter")
	h.sees("● gpu", "said from the board")
	h.until("the session", func() bool { return h.state.SessionID == train && h.board == nil })
	h.until("a read session", func() bool {
		for _, s := range there(t, gpu, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions {
			if s.SessionID == train {
				return !s.Unread
			}
		}
		return false
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// The rows of a host that goes away say so, and keep no other. They are right when it is
// back.
func TestAHostOfTheBoardGoesAway(t *testing.T) {
	box, gpu := startNoused(t, ""), startNoused(t, "")
	train := begun(t, gpu, "Train it")
	p := tuitest.NewProxy(t, gpu.Socket)
	h := useMany(t, atHost("box", box.Socket), atHost("gpu", p.Socket))
	h.press("f4")
	h.sees("1 done, unread", "Train it")
	p.Cut(true)
	h.sees("○ Train it", "reconnecting", "gpu: ")
	begun(t, box, "Mend it")
	h.sees("Mend it")
	there(t, gpu, protocol.SetTitle, protocol.SetTitleParams{
		Scope: protocol.Scope{SessionID: train},
		Title: "Train them all",
	})
	p.Cut(false)
	h.sees("Train them all")
	h.until("all as it was", func() bool {
		return !strings.Contains(h.screen(), "reconnecting") && !strings.Contains(h.screen(), "gpu: ")
	})
}

// What a daemon that is not shown does not do, as it stops, the next one there does.
func TestACommandToAnotherDaemonOutlivesItsRestart(t *testing.T) {
	d := clienttest.Listen(t)
	played := make(chan struct{})
	go func() {
		defer close(played)
		commands := d.Commands()
		id, _ := commands.Want("set_title")
		commands.Fail(id, protocol.Rejectf(protocol.ShuttingDown, "the daemon is stopping"))
		commands.Close()
		commands = d.Commands() // is it an older core?
		id, _ = commands.Want("list_sessions")
		commands.Reply(id, "sessions", `{"sessions":[]}`)
		commands.Close()
		commands = d.Commands()
		defer commands.Close()
		id, _ = commands.Want("set_title")
		commands.Reply(id, "accepted", `{"command":"set_title","title":"a"}`)
	}()
	p := (&Options{Site: siteAt(d.Socket)}).place()
	if _, err := slash.Ask(t.Context(), p, protocol.SetTitle, protocol.SetTitleParams{Title: "a"}); err != nil {
		t.Error(err)
	}
	<-played
}

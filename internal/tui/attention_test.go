package tui

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// unread is what every client learns of a session.
func (h *hand) unread(id string) bool {
	h.t.Helper()
	for _, s := range beside(h, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions {
		if s.SessionID == id {
			return s.Unread
		}
	}
	h.t.Fatalf("there is no session %s", id)
	return false
}

// A session is read where its end is seen: not while the user looks elsewhere,
// nor while the board is over it.
func TestWhatIsSeenIsMarkedAsRead(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	id := h.state.SessionID
	run := func(text string) {
		t.Helper()
		h.write(text)
		h.press("enter")
		h.until("answer to "+text, func() bool { return strings.Count(h.screen(), text) >= 2 && !h.running() })
	}
	run("seen")
	h.until("read session", func() bool { return !h.unread(id) })
	h.send(tea.BlurMsg{})
	run("not seen")
	h.until("a run that ended while nobody looked, unread", func() bool { return h.unread(id) })
	h.send(tea.FocusMsg{})
	h.until("read session", func() bool { return !h.unread(id) })
	off := false
	other := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "Elsewhere", Activate: &off}).SessionID
	beside(h, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: other}, Text: "hello"})
	h.press("f4")
	h.sees("1 done, unread")
	h.write("elsewhere")
	h.press("enter")
	h.until("read session", func() bool { return h.state.SessionID == other && !h.unread(other) })
}

// rung is what the terminal was rung with.
func (h *hand) rung() (all string) {
	for _, msg := range h.did {
		if raw, ok := msg.(tea.RawMsg); ok {
			all += fmt.Sprint(raw.Msg)
		}
	}
	return all
}

// ended is a run of a session that took a while.
func ended(session string, took time.Duration, end protocol.AgentEnd) []tea.Msg {
	ref := protocol.Ref{SessionID: session, RunID: "run-" + session}
	at := time.Unix(1e9, 0)
	end.Ref = ref
	return []tea.Msg{
		happened{Event: follow.Event{Event: protocol.AgentStart{Ref: ref}, At: at}},
		happened{Event: follow.Event{Event: end, At: at.Add(took)}},
	}
}

// The terminal rings for what the user asked for, and for nothing while the user
// looks at it.
func TestTheTerminalRingsWhenTheUserIsNeeded(t *testing.T) {
	done := protocol.AgentEnd{StopReason: protocol.StopCompleted}
	failed := protocol.AgentEnd{
		StopReason: protocol.StopError,
		Error:      &protocol.RunError{Message: "no\x1b]0;money;\a left"},
	}
	const osc = "\x1b]9;nous: Job: done\x1b\\\x1b]777;notify;nous;Job: done\x1b\\"
	for _, c := range []struct {
		name, config string
		msgs         []tea.Msg
		want         string
	}{
		{"done", "", ended("s", time.Minute, done), osc + "\a"},
		{"failed", "", ended("s", time.Minute, failed), strings.ReplaceAll(osc, "done", "failed: no left") + "\a"},
		{"too short", "", ended("s", 9*time.Second, done), ""},
		{"long enough", "after = \"1s\"", ended("s", 9*time.Second, done), osc + "\a"},
		{"aborted", "", ended("s", time.Minute, protocol.AgentEnd{StopReason: protocol.StopAborted}), ""},
		{"not wanted", "on = [\"run_error\"]", ended("s", time.Minute, done), ""},
		{"no bell", "bell = false", ended("s", time.Minute, done), osc},
		{"the bell alone", "osc = false", ended("s", time.Minute, done), "\a"},
		{"a session never shown", "", ended("other", time.Minute, done), ""},
		{
			"a burst", "", append(ended("s", time.Minute, failed), ended("s", time.Minute, done)...),
			strings.ReplaceAll(osc, "done", "done (and 1 more)") + "\a",
		},
		{"an approval", "", []tea.Msg{
			happened{Event: follow.Event{Event: protocol.Status{
				Ref: protocol.Ref{SessionID: "s"}, Code: "approval_requested",
				Message: "may bash run?",
			}}},
		}, strings.ReplaceAll(osc, "done", "may bash run?") + "\a"},
		{"the end of a child session", "", ended("child", time.Minute, done), ""},
		{"a child session that asks", "", []tea.Msg{
			happened{Event: follow.Event{Event: protocol.Status{
				Ref: protocol.Ref{SessionID: "another child"}, Code: "approval_requested",
				Message: "may bash run?", Approval: &protocol.Approval{SessionPath: []string{"Job", "run tests"}},
			}}},
		}, strings.ReplaceAll(osc, "Job: done", "Job › run tests: may bash run?") + "\a"},
		{
			"a model that is missing", "",
			[]tea.Msg{happened{Event: follow.Event{Event: protocol.Status{
				Ref:  protocol.Ref{SessionID: "s"},
				Code: "model_missing", Message: "the run waits: no key",
			}}}},
			strings.ReplaceAll(osc, "done", "the run waits: no key") + "\a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := configured(t, "[notify]\n"+c.config)
			h.attention.visited = map[string]string{"s": "Job", "child": "run tests"}
			h.attention.kids = map[string]bool{"child": true}
			h.send(tea.BlurMsg{})
			for _, msg := range c.msgs {
				h.send(msg)
			}
			if c.want != "" {
				h.until("ring", func() bool { return h.rung() != "" })
				if title := h.View().WindowTitle; !strings.HasPrefix(title, "● Job") {
					t.Errorf("got %q for the terminal's title", title)
				}
			}
			if h.attention.waiting || h.rung() != c.want {
				t.Errorf("got %q, want %q", h.rung(), c.want)
			}
			h.send(tea.FocusMsg{})
			if title := h.View().WindowTitle; strings.Contains(title, "●") {
				t.Errorf("got %q for the terminal's title when the user looks", title)
			}
		})
	}
}

// Of a terminal that never says whether somebody looks, as tmux does not unless it is told
// to, nobody knows: it rings.
func TestATerminalThatSaysNothingOfTheFocusRings(t *testing.T) {
	h := configured(t, "")
	h.attention.visited = map[string]string{"s": "Job"}
	for _, msg := range ended("s", time.Minute, protocol.AgentEnd{StopReason: protocol.StopCompleted}) {
		h.send(msg)
	}
	h.until("ring", func() bool { return strings.HasSuffix(h.rung(), "\a") })
	h.press("home")
	if title := h.View().WindowTitle; strings.Contains(title, "●") {
		t.Errorf("got %q for the terminal's title after a key", title)
	}
}

func TestNothingRingsForWhoLooks(t *testing.T) {
	h := configured(t, "")
	h.attention.visited = map[string]string{"s": "Job"}
	h.send(tea.FocusMsg{})
	for _, msg := range ended("s", time.Minute, protocol.AgentEnd{StopReason: protocol.StopCompleted}) {
		h.send(msg)
	}
	if h.attention.waiting {
		t.Error("a burst begins while the user looks")
	}
	h.send(tea.BlurMsg{})
	for _, msg := range ended("s", time.Minute, protocol.AgentEnd{StopReason: protocol.StopCompleted}) {
		h.send(msg)
	}
	h.send(tea.FocusMsg{}) // before the burst is over
	h.until("end of the burst", func() bool { return !h.attention.waiting })
	if h.rung() != "" {
		t.Errorf("got %q", h.rung())
	}
}

// The branch of a folder, or of the one above it that is a repository; nothing is
// said where that is no file as git writes it.
func TestGitBranch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(path)
	}
	write("repo/.git/HEAD", "ref: refs/heads/fix/the-\x1b[31mqueue\n")
	write("repo/sub/deep/file", "")
	write("repo/.git/worktrees/w/HEAD", "ref: refs/heads/topic\n")
	write("w/.git", "gitdir: "+dir+"/repo/.git/worktrees/w\n")
	write("rel/.git", "gitdir: ../repo/.git/worktrees/w\n")
	write("detached/.git/HEAD", "c7fe9d0a3a5a4d0f3f9f5b7f6f1c9a0d3b2e1f00\n")
	write("long/.git/HEAD", "ref: refs/heads/"+strings.Repeat("x", 1<<20))
	write("odd/.git", "what is this\n")
	write("nowhere/.git", "gitdir: /nowhere/at/all\n")
	for folder, want := range map[string]string{
		"repo": "fix/the-queue", "repo/sub/deep": "fix/the-queue", "w": "topic", "rel": "topic", "detached": "c7fe9d0",
		"long": "", "odd": "", "nowhere": "", "missing": "",
	} {
		if got := gitBranch(filepath.Join(dir, folder)); got != want {
			t.Errorf("%s: got %q, want %q", folder, got, want)
		}
	}
	if got := gitBranch("repo"); got != "" {
		t.Errorf("a folder that is relative: got %q", got)
	}
}

// The folder is seen with its branch, and goes where there is no room.
func TestTheStatusLineHasTheFolder(t *testing.T) {
	d := startNoused(t, "")
	if err := errors.Join(os.Mkdir(filepath.Join(d.Dir, ".git"), 0o700), os.WriteFile(filepath.Join(d.Dir, ".git", "HEAD"),
		[]byte("ref: refs/heads/topic\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	h := useDaemon(t, d.Socket)
	h.send(tea.WindowSizeMsg{Width: 140, Height: 24})
	h.sees(d.Dir + " (topic)")
	h.send(tea.WindowSizeMsg{Width: 40, Height: 24})
	h.until("line without the folder", func() bool { return !strings.Contains(h.screen(), "(topic)") })
}

// The daemon's own events ring it.
func TestARunThatEndsElsewhereRings(t *testing.T) {
	h := configured(t, "[notify]\nafter = \"0s\"")
	h.until("connection for it", func() bool { return h.watches })
	h.send(tea.BlurMsg{})
	h.write("something")
	h.press("enter")
	h.until("ring", func() bool { return h.rung() != "" })
	if !strings.Contains(h.rung(), "something: done") {
		t.Errorf("got %q", h.rung())
	}
}

// A terminal that says that it takes OSC 7501 is told what the session does; any other is told
// nothing.
func TestTheTerminalThatAsksForItIsToldTheStatus(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	release := h.held(d.Dir)
	if s := h.View().ProgramStatus; s != nil {
		t.Errorf("a terminal that has not answered is told %+v", s)
	}
	h.send(tea.ProgramStatusSupportMsg{})
	if s := h.View().ProgramStatus; s == nil || s.State != tea.ProgramStateWorking || s.App != "nous" {
		t.Errorf("got %+v of a run", s)
	}
	release()
	h.until("the end of the run", func() bool { return !h.running() })
	if s := h.View().ProgramStatus; s == nil || s.State != tea.ProgramStateIdle {
		t.Errorf("got %+v after it", s)
	}
	d.Kill()
	h.until("no connection", func() bool { return h.offline != nil })
	if s := h.View().ProgramStatus; s != nil {
		t.Errorf("without a daemon the terminal is told %+v", s)
	}
}

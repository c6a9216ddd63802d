package tui

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/tui/composer"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/tuitest"
)

func TestPromptIsAnsweredAndTheInputEmptied(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("what a day")
	h.press("enter")
	if !h.input.Empty() {
		t.Errorf("got %q in the input, want nothing", h.input.Text())
	}
	h.until("end of the run", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
	h.sees("what a day", "idle", "connected")
}

func TestSteerFollowUpAndAbortWhileRunning(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.held(d.Dir)
	h.write("at once")
	h.press("enter")
	h.write("after that")
	h.press("tab")
	h.until("both in the queue", func() bool {
		return len(h.state.Queued.Steer) == 1 && len(h.state.Queued.FollowUp) == 1
	})
	h.sees("steer at once", "follow-up after that", "2 queued", "Esc ends the run")
	h.write("being written")
	h.press("esc")
	h.until("end of the run", func() bool { return !h.running() && len(h.unsent) == 0 })
	if got, want := h.input.Text(), "at once\n\nafter that\n\nbeing written"; got != want {
		t.Errorf("got %q in the input, want what was queued before what was written: %q", got, want)
	}
	h.until("empty queue", func() bool { return len(h.state.Queued.Steer) == 0 })
}

func TestTextsAreDeliveredInTheOrderTheyWereSent(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	release := h.held(d.Dir)
	want := []string{"one", "two", "three", "four", "five"}
	for _, text := range want {
		h.write(text)
		h.press("enter")
	}
	h.until("five in the queue", func() bool { return len(h.state.Queued.Steer) == len(want) })
	if got := strings.Join(h.state.Queued.Steer, " "); got != strings.Join(want, " ") {
		t.Errorf("got %s", got)
	}
	release()
	h.until("end of the run", func() bool { return !h.running() })
}

func TestModesAreSeenAndSwitched(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.until("the session", func() bool { return h.known })
	if strings.Contains(h.screen(), "steering:") {
		t.Errorf("the default is on the screen:\n%s", h.screen())
	}
	h.press("f2")
	h.sees("steering: all")
	h.write("/mode follow-up all")
	h.press("enter")
	h.sees("follow-up: all")
}

func TestTwoScreensOfOneSession(t *testing.T) {
	d := startNoused(t, "")
	one, two := useDaemon(t, d.Socket), useDaemon(t, d.Socket)
	one.write("seen by both")
	one.press("enter")
	one.sees("seen by both")
	two.sees("seen by both")
	one.press("f3")
	two.sees("follow-up: all")
}

// Where one of two screens goes on from another entry, the other one follows.
func TestTheLeafThatAnotherScreenMoves(t *testing.T) {
	d := startNoused(t, "")
	one := useDaemon(t, d.Socket)
	for _, text := range []string{"first of all", "second of all"} {
		one.write(text)
		one.press("enter")
		one.until("answer to "+text, func() bool { return strings.Count(one.screen(), text) >= 2 && !one.running() })
	}
	two := useDaemon(t, d.Socket)
	two.until("both answers", func() bool { return strings.Count(two.screen(), "second of all") >= 2 })
	tree, err := follow.Do(context.Background(), one.link, protocol.GetTree, protocol.GetTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	one.write("/leaf " + tree.Nodes[1].ID)
	one.press("enter")
	two.until("the first answer alone", func() bool {
		return strings.Contains(two.screen(), "first of all") && !strings.Contains(two.screen(), "second of all")
	})
}

func TestSessionsAreMadeSwitchedAndBranched(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	first := h.state.SessionID
	h.write("the first")
	h.press("enter")
	h.until("end of the run", func() bool { return !h.running() && h.state.Title != "" })
	h.write("/new another one")
	h.press("enter")
	h.until("new session", func() bool { return h.state.SessionID != first })
	h.sees("another one")
	h.write("/switch the first")
	h.press("enter")
	h.until("the first session", func() bool { return h.state.SessionID == first })
	h.write("/branch")
	h.press("enter")
	h.until("a branch", func() bool { return h.state.SessionID != first })
	h.sees("the first", "branch of "+first)

	h.press("ctrl+r")
	h.sees("Sessions", "another one")
	h.write("another")
	h.press("enter")
	h.until("chosen session", func() bool { return h.over == nil && h.state.Title == "another one" })
}

func TestTreeMovesTheLeaf(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	for _, text := range []string{"alpha", "beta"} {
		h.write(text)
		h.press("enter")
		h.until("answer", func() bool { return !h.running() && len(h.unsent) == 0 && strings.Count(h.screen(), text) >= 2 })
	}
	h.press("ctrl+t")
	h.until("tree", func() bool { return h.over != nil })
	h.sees("Tree of")
	h.press("up", "up", "enter")
	h.until("shorter conversation", func() bool { return h.over == nil && !strings.Contains(h.screen(), "beta") })
}

func TestRefusedTextStaysInTheInput(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("/nonsense at all")
	h.press("enter")
	h.sees("there is no command /nonsense")
	if got := h.input.Text(); got != "/nonsense at all" {
		t.Errorf("got %q in the input", got)
	}
	h.press("ctrl+c")
	h.write("/hepl")
	h.press("enter")
	h.sees("there is no command /hepl, did you mean /help?")
}

func TestErrorOfTheDaemonIsToldWhole(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("/switch ses-none")
	h.press("enter")
	h.sees("no session has")
	h.write("/leaf nowhere")
	h.press("enter")
	h.sees("session_error")
}

func TestKilledDaemonComesBack(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.write("before the fall")
	h.press("enter")
	h.until("answer", func() bool { return !h.running() && strings.Count(h.screen(), "before the fall") >= 2 })
	d.Kill()
	h.sees("the daemon is gone: /start starts one, which goes on with the runs", "reconnecting")
	h.write("kept")
	h.press("enter")
	h.sees("not connected")
	if got := h.input.Text(); got != "kept" {
		t.Errorf("got %q in the input", got)
	}
	d.Start()
	h.sees("connected", "before the fall", "the daemon was restarted")
	h.press("enter")
	h.until("answer", func() bool { return !h.running() && len(h.unsent) == 0 && h.input.Empty() })
}

func TestOfferStartsADaemon(t *testing.T) {
	dir, err := os.MkdirTemp("", "nous")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("PATH", filepath.Dir(noused)+":"+os.Getenv("PATH"))
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	h := use(t, filepath.Join(dir, "s"))
	h.sees("no daemon runs at", "start one")
	h.write("s")
	h.until("the session", func() bool { return h.known })
	h.until("a state", func() bool { return h.state.Daemon.PID != 0 })
	daemon, err := os.FindProcess(h.state.Daemon.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.sees("the daemon is gone")
}

func TestDaemonThatDoesNotStartSaysWhy(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "noused"), []byte("#!/bin/sh\necho the moon is wrong\nexit 3\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	h := use(t, filepath.Join(bin, "s"))
	h.sees("no daemon runs at")
	h.write("s")
	h.sees("exit status 3", "the moon is wrong", "start one")
	h.write("q")
	if !h.quit() {
		t.Error("q did not leave")
	}
}

// Whatever a v1 core leaves out, what is said is shown and stays, nothing stays
// queued that was delivered, sessions are made, branched and switched, and what
// such a core cannot do is told in one line.
func TestOldCore(t *testing.T) {
	tuitest.EachHabit(t, func(t *testing.T, habits tuitest.Habits) {
		h := useDaemon(t, tuitest.StartOldCore(t, habits).Socket)
		h.send(tea.WindowSizeMsg{Width: 80, Height: 100})
		h.sees("older one")
		answered := func(text string) {
			t.Helper()
			h.until("the answer to "+text, func() bool {
				screen := h.screen()
				return strings.Count(screen, text) >= 2 && strings.Contains(screen, "idle") && !strings.Contains(screen, "queued")
			})
		}
		command := func(line string) {
			h.write(line)
			h.press("enter")
		}
		command("good old days")
		answered("good old days")
		command("hold on")
		h.until("run", h.running)
		command("now turn left")
		answered("now turn left")
		command("tool please")
		answered("tool please")
		h.sees("✓ look", "there is a door", "and a window")
		for line, want := range map[string]string{
			"/search x": "how to search", "/tree": "how to draw the tree", "/tools": "how to list its tools",
			"/model":     "how to list its models",
			"/model a/b": "how to change its model", "/compact": "how to compact", "/leaf x": "how to move within",
			"/reload": "how to read tools",
			"/switch": "how to see the sessions", "/image a.png": "takes no images", "/branch msg-1": "branches at the end only",
			"/state": "says no more",
		} {
			command(line)
			h.sees(want)
			h.input.Clear() // one that was refused here stays
		}
		command("/mode steering all")
		h.sees("steering: all")
		first := h.state.SessionID
		command("/branch")
		h.until("branch", func() bool { return h.state.SessionID != first })
		h.sees("this is a branch of "+first, "good old days")
		command("/new")
		h.until("new session", func() bool { return h.known && !strings.Contains(h.screen(), "good old days") })
		command("of the new one")
		answered("of the new one")
		command("/switch " + first)
		h.until("the first session", func() bool { return h.state.SessionID == first })
		h.sees("good old days")
		command("on we go")
		answered("on we go")
	})
}

func TestExportWritesANewFile(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.opts.Export = func(_ context.Context, session, format string, w io.Writer) error {
		_, err := io.WriteString(w, session+" as "+format)
		return err
	}
	file := filepath.Join(d.Dir, "talk.html")
	h.write("/export " + file)
	h.press("enter")
	h.sees("written: ")
	got, err := os.ReadFile(file)
	if want := h.state.SessionID + " as html"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	h.write("/export " + file)
	h.press("enter")
	h.sees("file exists")
}

func TestCtrlCEmptiesThenLeaves(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("x")
	h.press("ctrl+c", "ctrl+c")
	h.sees("Ctrl+C again leaves")
	h.write("y")
	h.press("ctrl+c", "ctrl+c")
	if h.quit() {
		t.Fatal("left although something was written in between")
	}
	h.press("ctrl+c")
	if !h.quit() {
		t.Error("the second Ctrl+C did not leave")
	}
}

// What was written for minutes is not lost to one key.
func TestWhatCtrlCEmptiesIsInTheHistory(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("a long letter")
	h.press("ctrl+c")
	if !h.input.Empty() {
		t.Fatalf("got %q in the input", h.input.Text())
	}
	h.press("up")
	if got := h.input.Text(); got != "a long letter" {
		t.Errorf("Up brings %q, want what was emptied", got)
	}
	again, err := composer.LoadHistory(h.input.History.Path)
	if err != nil || len(again.Texts) != 1 {
		t.Errorf("the next nous finds %q, %v", again.Texts, err)
	}
}

func TestEveryViewHasTheSizeOfTheTerminal(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.held(d.Dir)
	h.write("queued 漢字 👩‍👩‍👧 text")
	h.press("enter")
	h.until("queue", func() bool { return len(h.state.Queued.Steer) == 1 })
	h.send(tea.PasteMsg{Content: "some\nlines\nof\ntext 漢字"})
	for _, state := range []func(){func() {}, func() {
		h.press("ctrl+c")
		h.write("/")
	}, func() { h.press("esc", "ctrl+c", "ctrl+r"); h.sees("Sessions") }} {
		state()
		for _, width := range []int{1, 10, 19, 20, 33, 80, 200} {
			for _, height := range []int{1, 5, 6, 9, 10, 24, 60} {
				h.send(tea.WindowSizeMsg{Width: width, Height: height})
				v := h.View()
				lines := strings.Split(v.Content, "\n")
				if want := height; len(lines) != want && (width >= minWidth && height >= minHeight || len(lines) != 1) {
					t.Errorf("%dx%d: got %d lines", width, height, len(lines))
				}
				for _, line := range lines {
					if cell.Width(line) > width {
						t.Errorf("%dx%d: %q is %d cells wide", width, height, line, cell.Width(line))
					}
				}
				if c := v.Cursor; c != nil && (c.X < 0 || c.X >= width || c.Y < 0 || c.Y >= height) {
					t.Errorf("%dx%d: the cursor is at %d,%d", width, height, c.X, c.Y)
				}
			}
		}
		h.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	}
}

func TestModelOfASession(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.write("/model nobody/x")
	h.press("enter")
	h.until("refusal", func() bool { return strings.Contains(h.screen(), "there is no provider") })
	h.write("/model openai/tiny http://127.0.0.1:1/v1")
	h.press("enter")
	h.until("other model", func() bool { return h.state.Model.Name == "tiny" })
	h.sees("openai/tiny")
	h.write("/model")
	h.press("enter")
	h.until("list", func() bool { return h.over != nil })
	h.sees("Models", "offline")
	h.press("enter") // the only one: the daemon's own
	h.until("the daemon's own", func() bool { return h.state.Model.Name != "tiny" })
}

func TestImagesGoWithTheNextText(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	shot := filepath.Join(t.TempDir(), "shot.png")
	if err := os.WriteFile(shot, []byte("\x89PNG\r\n\x1a\n and more"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.write("/image " + shot)
	h.press("enter")
	h.sees("image shot.png", "with the next text")
	h.write("/image none")
	h.press("enter")
	if strings.Contains(h.screen(), "(with the next text") {
		t.Errorf("the image was taken back:\n%s", h.screen())
	}
	h.write("/image " + shot + ".missing")
	h.press("enter")
	h.write("look at this")
	h.press("enter")
	h.until("refusal", func() bool { return len(h.unsent) == 0 && len(h.input.Images) == 1 })
	h.sees("attachments[0].path", "look at this", "image shot.png.missing")
	h.input.Images = []slash.Image{{Path: shot, Name: "shot.png"}}
	h.press("enter")
	h.until("end of the run", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 && len(h.unsent) == 0 })
	h.sees("look at this", "shot.png")
	if len(h.input.Images) > 0 {
		t.Errorf("%d images would go with the next text, too", len(h.input.Images))
	}
}

func TestWhatIsSentAfterACommandFindsItDone(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	first := h.state.SessionID
	// none is answered before the last
	for _, line := range []string{"/new other", "/mode steering all", "meant for the other"} {
		h.write(line)
		h.press("enter")
	}
	h.sees("sending meant")
	h.until("answer", func() bool { return !h.running() && strings.Count(h.screen(), "meant for the other") >= 2 })
	h.sees("other", "steering: all")
	if h.state.SessionID == first {
		t.Error("the text was said in the session that was left")
	}
	h.write("/switch " + first)
	h.press("enter")
	h.until("the first session", func() bool { return h.state.SessionID == first })
	h.until("the default", func() bool { return h.state.SteeringMode == protocol.ModeOneAtATime })
}

func TestWhatWasMeantForASessionThatIsNotShownComesBack(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	for _, line := range []string{"/switch nowhere", "/mode steering all", "//meant for the other"} {
		h.write(line)
		h.press("enter")
	}
	h.sees("no session has", "/mode was not done")
	if got, want := h.input.Text(), "//meant for the other"; got != want || len(h.unsent) > 0 {
		t.Errorf("got %q in the input and %d texts on their way, want %q", got, len(h.unsent), want)
	}
	h.press("enter")
	h.until("answer", func() bool { return !h.running() && strings.Count(h.screen(), "/meant for the other") >= 2 })
}

// What waits behind a text that is on its way is for the session that it was written in. So is Esc.
func TestATextBehindAnotherIsNotSentToTheNextSession(t *testing.T) {
	d := startNoused(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	h := useDaemon(t, p.Socket)
	other := begun(t, d, "The other one")
	h.write("on its way")
	h.press("enter")
	h.write("behind it")
	h.press("enter", "esc")
	h.follow(other) // as the board does; nothing of the daemon's was taken in so far
	h.until("the other session", func() bool { return h.state.SessionID == other && h.goal == nil })
	h.sees("what was meant for another session is in the input", "nothing was aborted")
	h.until("the answer", func() bool { return len(h.unsent) == 0 })
	if got := h.input.Text(); got != "behind it" {
		t.Errorf("got %q in the input, want what was not sent", got)
	}
	if all := string(commandsOf(p)); !strings.Contains(all, `"on its way"`) || strings.Contains(all, `"behind it"`) ||
		strings.Contains(all, `"abort"`) {
		t.Errorf("the commands are\n%s", all)
	}
}

// A text between two commands that show other sessions is for the one that the first of them shows.
func TestATextBetweenTwoNewSessions(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	for _, line := range []string{"/new one", "meant for one", "/new two", "meant for two"} {
		h.write(line)
		h.press("enter")
	}
	h.until("the answer", func() bool {
		return h.state.Title == "two" && len(h.unsent) == 0 && !h.running() && strings.Count(h.screen(), "meant for two") >= 2
	})
	if got := h.input.Text(); got != "meant for one" {
		t.Errorf("got %q in the input, want what was meant for the session that was left", got)
	}
}

// Why a run failed is told to one who comes later, too.
func TestFailedRunSaysWhyWhenItIsLoaded(t *testing.T) {
	d := startNoused(t, "[model]\nmax_steps = 1\n")
	one := useDaemon(t, d.Socket)
	one.write(" !bash {\"command\":\"true\"}")
	one.press("enter")
	one.until("failure", func() bool { return strings.Contains(one.screen(), "step_limit") && !one.running() })
	two := useDaemon(t, d.Socket)
	two.until("failure", func() bool { return strings.Contains(two.screen(), "step_limit") })
}

func TestAMistakeOfTheLinkEndsNous(t *testing.T) {
	h := use(t, filepath.Join(t.TempDir(), "s"))
	h.send(said{h.link, follow.Broken{Err: io.ErrUnexpectedEOF}})
	if !h.quit() || h.crash == nil {
		t.Errorf("left %t with %v", h.quit(), h.crash)
	}
}

func TestWhatIsToldBeforeThereIsASessionIsSeen(t *testing.T) {
	h := use(t, filepath.Join(t.TempDir(), "s"))
	h.sees("no daemon runs at")
	h.write("hello")
	h.press("enter")
	h.sees("not connected to the daemon: the text stays", "no daemon runs at")
}

func TestTheSessionThatIsShownIsDeleted(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("a text")
	h.press("enter")
	h.until("answer", func() bool { return !h.running() && strings.Count(h.screen(), "a text") >= 2 })
	gone := h.state.SessionID
	h.press("ctrl+r")
	h.sees("Sessions", "a text")
	h.press("ctrl+d")
	h.write("y")
	h.until("another session", func() bool { return h.state.SessionID != gone })
	h.press("esc")
	h.sees("the session shown before was deleted")
}

// What was being written for a session that is deleted elsewhere is sent to no other one unasked.
func TestATextForADeletedSessionIsNotSentToAnother(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("first")
	h.press("enter")
	h.until("answer", func() bool { return !h.running() && len(h.unsent) == 0 && h.state.LastRun != nil })
	deleted := func() {
		gone := h.state.SessionID
		beside(h, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: gone})
		h.until("another session", func() bool { return h.state.SessionID != gone })
		h.sees("the session shown before was deleted")
	}
	held := func(key, text string) {
		t.Helper()
		h.press(key)
		if h.input.Text() != text || len(h.unsent)+len(h.working) > 0 {
			t.Fatalf("got %q in the input, %d texts on their way", h.input.Text(), len(h.unsent))
		}
		if !strings.Contains(h.screen(), "this was written for another session") {
			t.Fatalf("it is not said why %q was not sent:\n%s", text, h.screen())
		}
	}
	h.write("half a sent")
	deleted()
	h.write("ence")
	held("enter", "half a sentence")
	h.press("enter")
	h.until("answer", func() bool {
		return h.input.Empty() && !h.running() && len(h.unsent) == 0 && h.state.LastRun != nil
	})
	h.write("/mode steering all")
	deleted()
	held("enter", "/mode steering all")
	h.press("enter")
	h.sees("steering: all")

	h.write("left alone")
	deleted()
	h.press("ctrl+c")
	h.write("written here")
	h.press("enter")
	h.until("answer", func() bool { return !h.running() && len(h.unsent) == 0 && h.state.LastRun != nil })

	h.write("taken along")
	deleted()
	id := beside(h, protocol.NewSession, protocol.NewSessionParams{Activate: new(bool)}).SessionID
	h.follow(id)
	h.until("the session", func() bool { return h.state.SessionID == id && h.goal == nil })
	h.press("enter")
	h.until("answer", func() bool {
		return h.input.Empty() && !h.running() && len(h.unsent) == 0 && h.state.LastRun != nil
	})
}

// A screen that is behind names no session as lost that it has not shown; a text for the session that the
// user has gone to waits for it.
func TestSessionsAreDeletedBesideAScreenThatIsBehind(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	var ids []string
	for _, text := range []string{"one", "two", "three", "four"} {
		r := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: text})
		beside(h, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: r.SessionID}, Text: text})
		ids = append(ids, r.SessionID)
	}
	h.write("/switch " + ids[3])
	h.press("enter")
	h.until("the fourth", func() bool { return h.state.SessionID == ids[3] && h.goal == nil })
	for _, id := range []string{ids[3], ids[2]} { // the third is the newest of the others
		beside(h, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: id})
	}
	h.follow(ids[0])
	h.write("for the first")
	h.press("enter")
	h.until("the answer", func() bool {
		return h.state.SessionID == ids[0] && len(h.unsent) == 0 && strings.Count(h.screen(), "for the first") >= 2
	})
	if screen := h.screen(); strings.Contains(screen, "cannot be shown") || !h.input.Empty() {
		t.Errorf("the screen is\n%s", screen)
	}
}

// A note that something covers cannot be read: keys there do not take it away.
func TestANoteStaysWhileSomethingCoversIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := use(t, filepath.Join(t.TempDir(), "s"))
		h.send(tea.KeyPressMsg{Code: tea.KeyF1})
		h.talk.Notice("info", "said meanwhile")
		time.Sleep(5 * time.Second)
		if h.press("esc"); h.over != nil || !strings.Contains(h.screen(), "said meanwhile") {
			t.Errorf("the screen is\n%s", h.screen())
		}
		if h.press("esc"); strings.Contains(h.screen(), "said meanwhile") {
			t.Error("a key leaves a note that was read")
		}
	})
}

// A summary is told once: by its line in the conversation.
func TestASummaryIsToldOnce(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	for i := range 4 {
		text := fmt.Sprintf("say number-%d %s", i, strings.Repeat("and more ", 2000))
		beside(h, protocol.Prompt, protocol.PromptParams{Text: text})
		h.until("the run", func() bool { return h.running() || strings.Contains(h.screen(), fmt.Sprint("number-", i)) })
		h.until("its end", func() bool { return !h.running() && h.state.LastRun != nil })
	}
	h.write("/compact")
	h.press("enter")
	h.sees("summarised here")
	h.until("it told once", func() bool { return strings.Count(h.screen(), "summarised") == 1 })
}

// What a run has changed leaves no room for all hints: those that fit stay.
func TestHintsThatFitStay(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.lastLine = "2 files +2 −0 · /diff · " + strings.Repeat("x", 30)
	h.sees("/diff", "/ commands · F4 board")
	if strings.Contains(h.screen(), "F1 help") {
		t.Errorf("the line has room for all hints:\n%s", h.screen())
	}
}

package board

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

var update = flag.Bool("update", false, "write the golden views")

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// sessions are a day's work in three folders.
func sessions() []protocol.SessionInfo {
	opus := protocol.ModelInfo{Provider: "anthropic", Name: "claude-opus-4-5"}
	qwen := protocol.ModelInfo{Provider: "ollama", Name: "qwen3:8b"}
	return []protocol.SessionInfo{
		{
			SessionID: "ses-01", Title: "Flaky test in the queue", Workdir: "/home/ada/src/noused", Model: opus, Messages: 14,
			UpdatedAt: ago(3 * time.Minute), RunState: "running", WaitingFor: "approval",
			LastText: "I would like to delete the lock file.", Working: &protocol.Working{
				RunID:     "run-1",
				StartedAt: ago(4 * time.Minute), ToolName: "bash", Since: ago(3 * time.Minute),
			},
		},
		{
			SessionID: "ses-02", Title: "Deploy the docs", Workdir: "/home/ada/src/site", Model: qwen, Messages: 6,
			UpdatedAt: ago(50 * time.Minute), RunState: "idle", LastStopReason: "error", Unread: true,
			LastText: "The upload begins.",
		},
		{
			SessionID: "ses-03", Title: "Measure the start", Workdir: "/home/ada/src/noused", Model: opus, Messages: 22,
			UpdatedAt: ago(time.Minute), RunState: "running", LastText: "Now the benchmark runs ten times.",
			Working: &protocol.Working{
				RunID: "run-3", StartedAt: ago(9 * time.Minute), ToolName: "bash",
				Since: ago(72 * time.Second),
			},
		},
		{
			SessionID: "ses-04", Title: "Translate the manual", Workdir: "/home/ada/src/site", Model: qwen, Messages: 3,
			UpdatedAt: ago(8 * time.Second), RunState: "running", LastText: "Das dritte Kapitel beginnt mit",
			Working: &protocol.Working{RunID: "run-4", StartedAt: ago(20 * time.Second), Since: ago(8 * time.Second)},
		},
		{
			SessionID: "ses-05", Title: "Release notes", Workdir: "/home/ada/src/noused", Model: opus, Messages: 9,
			UpdatedAt: ago(20 * time.Minute), RunState: "idle", LastStopReason: "completed", Unread: true,
			LastText: "CHANGELOG.md has the four changes.",
		},
		{
			SessionID: "ses-06", Title: "Was it worth it?", Workdir: "/home/ada/src/noused", Model: opus, Messages: 2,
			UpdatedAt: ago(26 * time.Hour), RunState: "idle", LastStopReason: "completed", LastText: "Yes.",
		},
		{
			SessionID: "ses-07", Title: "日本語のテスト", Workdir: "/home/ada/notes", Model: qwen, Messages: 8,
			UpdatedAt: ago(9 * 24 * time.Hour), RunState: "idle", LastStopReason: "aborted", LastText: "\x1b[31mred?\x1b[0m",
		},
		{
			SessionID: "ses-08", Workdir: "/home/ada/notes", Model: qwen, UpdatedAt: ago(400 * 24 * time.Hour),
			RunState: "idle",
		},
	}
}

func filled() *Board {
	b := New(Look{Home: "/home/ada", Here: "/home/ada/src/site"})
	b.Load("", sessions(), false)
	return b
}

func press(b *Board, keys ...string) (last Choice) {
	named := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "up": {Code: tea.KeyUp},
		"down": {Code: tea.KeyDown}, "left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight},
		"f2": {Code: tea.KeyF2}, "ctrl+x": {Code: 'x', Mod: tea.ModCtrl}, "ctrl+d": {Code: 'd', Mod: tea.ModCtrl},
		"ctrl+u":   {Code: 'u', Mod: tea.ModCtrl},
		"alt+down": {Code: tea.KeyDown, Mod: tea.ModAlt}, "alt+up": {Code: tea.KeyUp, Mod: tea.ModAlt},
		"ctrl+end": {Code: tea.KeyEnd, Mod: tea.ModCtrl}, "ctrl+home": {Code: tea.KeyHome, Mod: tea.ModCtrl},
		"pgdown": {Code: tea.KeyPgDown}, "pgup": {Code: tea.KeyPgUp},
	}
	for _, key := range keys {
		msg, ok := named[key]
		if ok {
			last = b.Update(msg)
			continue
		}
		for _, r := range key {
			last = b.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
	return last
}

// golden compares a View, without styles and without the spaces at the ends of
// its lines, with the one on file.
func golden(t *testing.T, b *Board, name string, width, height int) {
	t.Helper()
	view := b.View(width, height, noon)
	lines := strings.Split(view, "\n")
	if len(lines) != height {
		t.Errorf("got %d lines, want %d", len(lines), height)
	}
	for i, line := range lines {
		if w := cell.Width(line); w != width {
			t.Errorf("line %d has %d cells, want %d: %q", i, w, width, line)
		}
		lines[i] = strings.TrimRight(cell.Sanitize(line), " ")
	}
	got := strings.Join(lines, "\n") + "\n"
	if x, y, ok := b.Cursor(); ok {
		got += fmt.Sprintf("cursor %d,%d\n", x, y)
	}
	file := filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt", name, width, height))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestGoldenBoards(t *testing.T) {
	for _, size := range [][2]int{{120, 40}, {80, 24}, {40, 12}} {
		b := filled()
		golden(t, b, "board", size[0], size[1])
		b.SetPreview(ID{"", "ses-02"}, protocol.Messages{Messages: said("user", "Deploy the docs, please.", "assistant",
			"I look at what is there.\n\nThe upload begins.")}, "")
		press(b, "down", "down")
		b.SetPreview(ID{"", "ses-04"}, protocol.Messages{Messages: said("user", "Translate the manual", "assistant",
			"Das dritte Kapitel beginnt mit")}, "")
		golden(t, b, "down", size[0], size[1])
		press(b, "tab", "shorter sentences")
		golden(t, b, "say", size[0], size[1])
		press(b, "esc", "site")
		b.SetLink("○ reconnecting 3s")
		golden(t, b, "filter", size[0], size[1])
		press(b, "ctrl+d")
		golden(t, b, "delete", size[0], size[1])
	}
	old := New(Look{})
	old.SetNote("an older core lists no sessions: here are the shown one, and those that speak")
	old.Put("", protocol.SessionInfo{SessionID: "ses-1", RunState: "idle"})
	golden(t, old, "older", 80, 24)
	golden(t, New(Look{}), "reading", 40, 12)
}

func said(texts ...string) (list []jsontext.Value) {
	for i := 0; i < len(texts); i += 2 {
		list = append(list, jsontext.Value(fmt.Sprintf(`{"type":"message","id":"m%d","role":%q,"text":%q}`, i, texts[i],
			texts[i+1])))
	}
	return list
}

// What the user does to a session goes to that session, also when it moves or
// another one ends meanwhile.
func TestKeysActOnTheSessionUnderTheCursor(t *testing.T) {
	b := filled()
	b.View(80, 24, noon)
	want := func(got, want Choice) {
		t.Helper()
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	want(press(b, "enter"), Choice{Action: Open, ID: ID{"", "ses-02"}}) // here's first
	press(b, "translate")
	b.Apply("", protocol.AgentEnd{Ref: protocol.Ref{SessionID: "ses-05"}, StopReason: "error"}, noon)
	want(press(b, "ctrl+x"), Choice{Action: Abort, ID: ID{"", "ses-04"}})
	press(b, "tab", "go on")
	b.Apply("", protocol.AgentEnd{Ref: protocol.Ref{SessionID: "ses-04"}, StopReason: "completed"}, noon)
	want(press(b, "enter"), Choice{Action: Say, ID: ID{"", "ses-04"}, Text: "go on"})
	want(press(b, "ctrl+x"), Choice{}) // nothing runs any more
	press(b, "tab", "and then")
	want(press(b, "tab"), Choice{Action: Later, ID: ID{"", "ses-04"}, Text: "and then"})
	press(b, "f2", "ctrl+u", "A better title")
	want(press(b, "enter"), Choice{Action: Rename, ID: ID{"", "ses-04"}, Text: "A better title"})
	want(press(b, "ctrl+d", "n"), Choice{})
	want(press(b, "ctrl+d", "y"), Choice{Action: Delete, ID: ID{"", "ses-04"}})
	b.Remove(ID{"", "ses-04"})
	want(press(b, "enter"), Choice{}) // nothing else is called so
	want(press(b, "esc"), Choice{})
	want(press(b, "ctrl+end", "enter"), Choice{Action: Open, ID: ID{"", "ses-06"}})
	want(press(b, "ctrl+home", "alt+down", "enter"), Choice{Action: Open, ID: ID{"", "ses-01"}})
	want(press(b, "alt+up", "enter"), Choice{Action: Open, ID: ID{"", "ses-02"}})
	want(press(b, "esc"), Choice{Action: Leave})
}

// An approval is answered for the session it was about, or not at all.
func TestAApprovalAboutASessionThatIsGone(t *testing.T) {
	b := filled()
	press(b, "release", "ctrl+d")
	b.Remove(ID{"", "ses-05"})
	if c := press(b, "y"); c != (Choice{}) {
		t.Errorf("got %+v", c)
	}
}

// What was said and what a session is called is Markdown, of which a row shows no marks; one
// in which nothing was said is on no board.
func TestARowHasNoMarksOfMarkdown(t *testing.T) {
	b := New(Look{})
	b.Load("", []protocol.SessionInfo{
		{
			SessionID: "ses-1", Title: "mend **the** `parser`", LastText: "## `go test` **passes**", Messages: 2,
			CreatedAt: noon,
		},
		{SessionID: "ses-2", CreatedAt: noon},
	}, false)
	lines := strings.Join(b.Lines(noon), "\n")
	if !strings.Contains(lines, "mend the parser") || !strings.Contains(lines, "go test passes") ||
		strings.ContainsAny(lines, "*`#") || b.Has(ID{"", "ses-2"}) {
		t.Errorf("the board is\n%s", lines)
	}
}

// A line whose beginning was missed is not shown with a hole in it.
func TestTheLastLineIsWholeOrOld(t *testing.T) {
	b := filled()
	told := func(want string) {
		t.Helper()
		if got := b.rows[ID{"", "ses-04"}].said(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	delta := func(text string) {
		b.Apply("", protocol.MessageUpdate{Ref: protocol.Ref{SessionID: "ses-04"}, Delta: text}, noon)
	}
	delta(" einem Satz,")
	told("Das dritte Kapitel beginnt mit")
	delta(" der endet.\nEin neu")
	told("Ein neu")
	delta("er.\n\n")
	told("Ein neuer.")
	delta(strings.Repeat("x", 1<<20) + "\nlast")
	told("last")
	b.Apply("", protocol.MessageEnd{Ref: protocol.Ref{SessionID: "ses-04"}, Role: "assistant", Text: "One.\nTwo.\n"}, noon)
	told("Two.")
}

// What is not known of a session is asked for, rather than guessed.
func TestWhatEventsDoNotSayIsAskedFor(t *testing.T) {
	b := filled()
	ref := protocol.Ref{SessionID: "ses-01"}
	for _, c := range []struct {
		ev   protocol.Event
		want bool
	}{
		{protocol.AgentStart{Ref: protocol.Ref{SessionID: "ses-99"}}, true},
		{protocol.Status{Ref: ref, Code: "something_new"}, true},
		{protocol.Status{Ref: ref, Code: protocol.StatusTitleSet, Title: "New"}, false},
		{protocol.MessageStart{Ref: protocol.Ref{SessionID: "ses-08"}, Role: "user"}, true}, // its title comes of that
		{protocol.Warning{}, false},
	} {
		if _, unsure := b.Apply("", c.ev, noon); unsure != c.want {
			t.Errorf("%#v: got unsure %t", c.ev, unsure)
		}
	}
}

// However the events come, the board is what it would be if it were made anew of
// what they have led to: each row where it belongs, the cursor on its session.
func TestApplyEqualsLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := New(Look{Here: "/b"})
	var list []protocol.SessionInfo
	for i := range 40 {
		list = append(list, protocol.SessionInfo{
			SessionID: fmt.Sprintf("ses-%02d", i), Title: fmt.Sprint("t", i%7),
			Workdir: []string{"/a", "/b", "/c"}[i%3], UpdatedAt: ago(time.Duration(rng.IntN(100)) * time.Minute),
			RunState: "idle",
		})
	}
	b.Load("", list, false)
	for step := range 5000 {
		id := fmt.Sprintf("ses-%02d", rng.IntN(42))
		ref := protocol.Ref{SessionID: id, RunID: "run"}
		at := noon.Add(time.Duration(step) * time.Second)
		events := []protocol.Event{
			protocol.AgentStart{Ref: ref},
			protocol.AgentEnd{Ref: ref, StopReason: "completed"},
			protocol.AgentEnd{Ref: ref, StopReason: "error"},
			protocol.TurnStart{Ref: ref},
			protocol.ToolStart{Ref: ref, ToolName: "bash"},
			protocol.ToolEnd{Ref: ref},
			protocol.MessageUpdate{Ref: ref, Delta: "a\nb"},
			protocol.Status{Ref: ref, Code: protocol.StatusMarkedRead},
			protocol.Status{Ref: ref, Code: protocol.StatusTitleSet, Title: fmt.Sprint("t", step%9)},
		}
		cursor, _ := b.Selected()
		switch n := rng.IntN(len(events) + 4); {
		case n < len(events):
			b.Apply("", events[n], at)
		case n == len(events):
			b.Remove(ID{"", id})
		case n == len(events)+1:
			info := protocol.SessionInfo{SessionID: id, Workdir: "/c", UpdatedAt: at, RunState: "idle", Messages: 1}
			if rng.IntN(2) == 0 {
				info.Parent = &protocol.Parent{SessionID: fmt.Sprintf("ses-%02d", rng.IntN(20))}
			}
			if rng.IntN(4) == 0 {
				info.RunState, info.WaitingFor = "running", protocol.WaitApproval
			}
			b.Put("", info)
		case n == len(events)+2:
			press(b, []string{"up", "down", "alt+down", "pgdown", "left", "right"}[rng.IntN(6)])
			cursor, _ = b.Selected()
		default:
			press(b, []string{"t", "1", "esc"}[rng.IntN(3)])
			cursor, _ = b.Selected()
		}
		fresh := New(Look{Here: "/b"})
		fresh.folds = b.folds
		var now []protocol.SessionInfo
		for _, r := range b.rows {
			now = append(now, r.info)
		}
		fresh.Load("", now, false)
		fresh.filter = b.filter
		fresh.match()
		if diff := cmp.Diff(shownIDs(fresh), shownIDs(b)); diff != "" && b.filter.Text() == "" {
			t.Fatalf("step %d (-anew +now):\n%s", step, diff)
		}
		if fresh.counts() != b.counts() {
			t.Fatalf("step %d: got %v, want %v", step, b.counts(), fresh.counts())
		}
		after, ok := b.Selected()
		if ok != (len(b.shown) > 0) || ok && b.shown[b.at] != b.selected {
			t.Fatalf("step %d: the cursor is nowhere", step)
		}
		if slices.Contains(shownIDs(b), cursor.SessionID) && after.SessionID != cursor.SessionID {
			t.Fatalf("step %d: the cursor went from %s to %s by itself", step, cursor.SessionID, after.SessionID)
		}
		for _, line := range strings.Split(b.View(60, 14, at), "\n") {
			if cell.Width(line) != 60 {
				t.Fatalf("step %d: %q", step, line)
			}
		}
	}
}

func shownIDs(b *Board) (ids []string) {
	for _, r := range b.shown {
		ids = append(ids, r.info.SessionID)
	}
	return ids
}

func TestLinesForScreenReaders(t *testing.T) {
	got := strings.Join(filled().Lines(noon), "\n") + "\n"
	file := filepath.Join("testdata", "lines.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// thousand is a daemon's worth of sessions.
func thousand() []protocol.SessionInfo {
	var list []protocol.SessionInfo
	for i := range 1000 {
		info := sessions()[i%8]
		info.SessionID = fmt.Sprintf("ses-%04d", i)
		info.Workdir = fmt.Sprintf("/home/ada/src/project%d", i%20)
		list = append(list, info)
	}
	return list
}

// From list_sessions' reply to the first screen.
func BenchmarkFirstViewOf1000(b *testing.B) {
	list := thousand()
	for b.Loop() {
		board := New(Look{Theme: theme.New(true, true), Home: "/home/ada"})
		board.Load("", list, false)
		board.View(120, 40, noon)
	}
}

// One event, and the screen after it, with 1,000 sessions. The cursor stands on
// the session that it is of, so that its row is drawn.
func BenchmarkEventAndViewOf1000(b *testing.B) {
	board := New(Look{Theme: theme.New(true, true), Home: "/home/ada"})
	board.Load("", thousand(), false)
	ref := protocol.Ref{SessionID: "ses-0003", RunID: "run"}
	for _, c := range []struct {
		name   string
		events []protocol.Event
	}{
		{"delta", []protocol.Event{
			protocol.MessageUpdate{Ref: ref, Delta: "some words "},
			protocol.MessageUpdate{Ref: ref, Delta: "more\n"},
		}},
		{"run", []protocol.Event{protocol.AgentEnd{Ref: ref, StopReason: "completed"}, protocol.AgentStart{Ref: ref}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				board.Apply("", c.events[i%2], noon)
				board.View(120, 40, noon)
			}
		})
	}
	// What a screen of as many cells costs at least: cutting and joining its lines.
	b.Run("raw", func(b *testing.B) {
		lines := make([]string, 40)
		for i := range lines {
			lines[i] = strings.Repeat("x", 110)
		}
		for b.Loop() {
			cell.Block(lines, 120, 40)
		}
	})
}

// hosts are the sessions of two hosts, of which two are called the same.
func hosts() *Board {
	b := New(Look{Here: "/home/ada/src/noused", Host: "box"})
	all := sessions()
	b.Load("box", []protocol.SessionInfo{all[2], all[4], all[5]}, false)
	b.Load("gpu", []protocol.SessionInfo{all[0], all[3], all[5], all[7]}, false)
	return b
}

func TestGoldenBoardsOfSeveralHosts(t *testing.T) {
	for _, size := range [][2]int{{120, 40}, {80, 24}, {40, 12}} {
		b := hosts()
		golden(t, b, "hosts", size[0], size[1])
		b.SetAway("gpu", "ssh has failed: connect to host gpu port 22: No route to host")
		golden(t, b, "away", size[0], size[1])
	}
}

// Sessions of two hosts that are called the same are two.
func TestSessionsOfTwoHostsAreApart(t *testing.T) {
	b := hosts()
	box, gpu := ID{"box", "ses-06"}, ID{"gpu", "ses-06"}
	b.Apply("gpu", protocol.AgentStart{Ref: protocol.Ref{SessionID: "ses-06"}}, noon)
	if b.rows[box].state != Idle || b.rows[gpu].state != Working {
		t.Errorf("got %v at box and %v at gpu", b.rows[box].state, b.rows[gpu].state)
	}
	b.SetApprovals("box", []protocol.Approval{{ApprovalID: "apr-1-ses-06", SessionID: "ses-06"}})
	press(b, "gpu worth")
	if c := press(b, "enter"); c.ID != gpu || b.approval.ID() != "" {
		t.Errorf("got %+v and the approval %q", c, b.approval.ID())
	}
	b.SetApprovals("gpu", []protocol.Approval{{ApprovalID: "apr-1-ses-06", SessionID: "ses-06"}})
	b.turn()
	if b.ofSelected(); !b.approval.Focused() {
		t.Error("the approval loses the keys")
	}
	press(b, "esc", "esc", "box worth")
	if b.ofSelected(); b.approval.ID() == "" || b.approval.Focused() {
		t.Errorf("got the approval %q, focused %t: it is another host's", b.approval.ID(), b.approval.Focused())
	}
	b.Remove(gpu)
	b.Load("gpu", nil, false)
	if !b.Has(box) || len(b.rows) != 3 {
		t.Errorf("got %d sessions, want box's three", len(b.rows))
	}
}

// What is said to a session is said whole, or not taken at all: a paste that is too long is refused, and the board says
// so beside the line.
func TestAPasteIsTakenWholeOrRefused(t *testing.T) {
	b := filled()
	long := strings.Repeat("abc ", 750) + "end"
	press(b, "tab")
	b.Update(tea.PasteMsg{Content: long})
	b.Update(tea.PasteMsg{Content: strings.Repeat("x", 64<<10)})
	if view := b.View(120, 40, noon); !strings.Contains(view, "too long") || !strings.Contains(view, "end") {
		t.Errorf("the board is\n%s", view)
	}
	if c := b.Update(tea.KeyPressMsg{Code: tea.KeyEnter}); c.Action != Say || c.Text != long {
		t.Errorf("got %s of %d bytes, want the %d that were pasted", c.Action, len(c.Text), len(long))
	}
}

package pick

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func sessions() []Item {
	return Sessions([]protocol.SessionInfo{
		{
			SessionID: "ses-1", Title: "Mend the parser of the journal", UpdatedAt: ago(10 * time.Second), Messages: 12,
			RunState: "running",
		},
		{SessionID: "ses-2", Title: "日本語の挨拶を書く", UpdatedAt: ago(3 * time.Minute), Messages: 1, RunState: "idle"},
		{SessionID: "ses-3", Title: "", UpdatedAt: ago(26 * time.Hour), Messages: 0, RunState: "idle"},
		{SessionID: "ses-blank", CreatedAt: ago(time.Hour), UpdatedAt: ago(time.Hour), RunState: "idle"}, // which is left out
		{
			SessionID: "ses-4", Title: "Why is the lantern dark? And what would have to be done about it, and by whom?",
			UpdatedAt: ago(5 * time.Hour), Messages: 140, RunState: "idle", ParentID: "ses-1",
		},
		{
			SessionID: "ses-5", Title: "\x1b[31mred\x1b[0m \x1b]0;owned\x07title", UpdatedAt: ago(90 * 24 * time.Hour),
			Messages: 7, RunState: "aborting", ParentID: "ses-gone",
		},
	}, []protocol.SearchMatch{
		{SessionID: "ses-2", Snippet: "a lantern at the door"},
		{SessionID: "ses-9", Title: "An old one", Snippet: "the lantern was never lit", CreatedAt: ago(48 * time.Hour)},
		{SessionID: "ses-9", Title: "An old one", Snippet: "nor carried", CreatedAt: ago(48 * time.Hour)},
	}, now, "")
}

func sessionPicker(opts ...Option) *Picker {
	return New("Sessions", sessions(), append([]Option{Current("ses-2"), Deletes("session"), Previews()}, opts...)...)
}

// titles are what the picker shows, from the top.
func titles(p *Picker) []string {
	var got []string
	for _, i := range p.shown {
		got = append(got, p.entries[i].ID)
	}
	return got
}

func TestPickerViews(t *testing.T) {
	for _, size := range sizes {
		p := sessionPicker()
		p.View(size[0], size[1])
		p.SetPreview("ses-2", []string{"you: Write a greeting.", "", "こんにちは。 " + strings.Repeat("A long line goes on below. ",
			8)})
		golden(t, p, "sessions", size[0], size[1])
		typed(t, p, "lantern")
		golden(t, p, "sessions-filtered", size[0], size[1])
		keys(t, p, "ctrl+d")
		golden(t, p, "sessions-delete", size[0], size[1])

		plain := sessionPicker(With(Look{Plain: true}))
		golden(t, plain, "sessions-plain", size[0], size[1])
		golden(t, New("Tools", Tools(tools), Several()), "tools", size[0], size[1])
		golden(t, New("Models", Models(models), Current("ollama/qwen3:8b http://127.0.0.1:11434")), "models", size[0],
			size[1])
		golden(t, New("Agent of a new session", Agents(agents)), "agents", size[0], size[1])
		golden(t, New("Options of codex", Options(options)), "options", size[0], size[1])
		golden(t, New("Mode of codex", Values(options[0]), Current("read-only")), "values", size[0], size[1])
	}
	golden(t, sessionPicker(), "sessions", 10, 3)
	golden(t, New("Sessions", nil), "nothing", 30, 8)
}

func TestPickerFilters(t *testing.T) {
	for _, c := range []struct {
		typed string
		want  []string
	}{
		{"", []string{"ses-1", "ses-2", "ses-3", "ses-4", "ses-5", "ses-9"}},
		{"mend", []string{"ses-1", "ses-4"}},             // a branch of it
		{"MEND Journal", []string{"ses-1"}},              // in any case
		{"journal mend", []string{"ses-1"}},              // in any order
		{"lantern", []string{"ses-4", "ses-2", "ses-9"}}, // the title first
		{"lit", []string{"ses-9"}},
		{"挨拶", []string{"ses-2"}},
		{"running", []string{"ses-1"}},
		{"ses-3", []string{"ses-3"}},
		{"mtp", []string{"ses-1"}}, // M..end t..he p..arser
		{"branch of mend", []string{"ses-4"}},
		{"nowhere", nil},
	} {
		p := sessionPicker()
		typed(t, p, c.typed)
		if diff := cmp.Diff(c.want, titles(p)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.typed, diff)
		}
	}
}

func TestPickerKeys(t *testing.T) {
	p := sessionPicker()
	p.View(80, 24)
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-2"}}, true) // begins at what is current
	keys(t, p, "down", "ctrl+n", "up")
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-3"}}, true)
	keys(t, p, "up", "up", "up", "ctrl+p")
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-1"}}, true) // and no further
	keys(t, p, "pgdown")
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-9"}}, true)
	keys(t, p, "pgup")
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-1"}}, true)
	keys(t, p, "down", "down")
	typed(t, p, "the")
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-1"}}, true) // what fits best
	keys(t, p, "tab")                                                            // one only
	typed(t, p, "xyz")
	keys(t, p, "enter") // nothing is there to choose
	keys(t, p, "ctrl+d", "y")
	chooses(t, p, "esc", Choice{Action: Leave}, true)
}

func TestPickerTakesAPaste(t *testing.T) {
	p := sessionPicker()
	p.Update(tea.PasteMsg{Content: "\x1b[31mold\n one"})
	if got, want := p.Query(), "old  one"; got != want {
		t.Errorf("query: got %q, want %q", got, want)
	}
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-9"}}, true)
	p.Update(tea.PasteMsg{Content: strings.Repeat("long ", 1<<20)})
	if len(p.Query()) > maxLine {
		t.Errorf("the query is %d bytes long, want no more than %d", len(p.Query()), maxLine)
	}
}

// The question says what goes with a session, whatever room there is (found by a trial).
func TestAQuestionTellsOfChildSessions(t *testing.T) {
	list := family(3)
	list[0].Title = strings.Repeat("a long title ", 20)
	p := New("Sessions", Sessions(list, nil, now, ""), Deletes("session"))
	keys(t, p, "ctrl+d")
	for _, width := range []int{40, 80} {
		if view := cell.Sanitize(p.View(width, 24)); !strings.Contains(view, " and its 4 child sessions? y/n") {
			t.Errorf("in %d columns:\n%s", width, view)
		}
	}
}

func TestPickerDeletesOnlyWhenAsked(t *testing.T) {
	p := sessionPicker()
	for _, no := range []string{"n", "enter", "esc", "d", "down"} {
		keys(t, p, "ctrl+d")
		if view := cell.Sanitize(p.View(80, 24)); !strings.Contains(view, "Delete session 日本語の挨拶を書く? y/n") {
			t.Fatalf("no question in\n%s", view)
		}
		keys(t, p, no)
		chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-2"}}, true)
	}
	keys(t, p, "delete")
	chooses(t, p, "y", Choice{Action: Delete, IDs: []string{"ses-2"}}, false)

	// The shell has deleted it: the next one moves up, and the question is over.
	left := sessions()
	p.SetItems(append(left[:1], left[2:]...))
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-3"}}, true)

	// Where there is text to delete, Delete deletes that.
	typed(t, p, "old")
	keys(t, p, "home", "delete")
	if p.Query() != "ld" {
		t.Errorf("query: got %q, want ld", p.Query())
	}

	// What somebody else deleted meanwhile is no longer asked about.
	p = sessionPicker()
	keys(t, p, "ctrl+d")
	p.SetItems(sessions()[:1])
	keys(t, p, "y")
	if p.Query() != "y" {
		t.Errorf("query: got %q, want y", p.Query())
	}

	p = New("Models", Models(models))
	keys(t, p, "ctrl+d", "y")
	if p.Query() != "y" {
		t.Errorf("a picker that deletes nothing took y for an answer")
	}
}

func TestPickerOfSeveral(t *testing.T) {
	p := New("Tools", Tools(tools), Several())
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"read_file", "shell"}}, true)
	keys(t, p, "tab", "tab") // read_file off, shell off
	chooses(t, p, "enter", Choice{Action: Choose}, true)
	typed(t, p, "torch")
	keys(t, p, "tab", "ctrl+u")
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"torch_light"}}, true)

	// A list that comes anew does not undo what the user did.
	p.SetItems(Tools(append([]protocol.ToolInfo{{Name: "new", Active: true, Healthy: true}}, tools...)))
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"new", "torch_light"}}, true)
}

func TestPickerKeepsItsPlace(t *testing.T) {
	p := sessionPicker()
	keys(t, p, "down", "down") // ses-4
	items := sessions()
	p.SetItems(append([]Item{{ID: "ses-0", Title: "quite new"}}, items...))
	chooses(t, p, "enter", Choice{Action: Choose, IDs: []string{"ses-4"}}, true)

	// What a search found comes while the user types.
	p = New("Sessions", items[:1])
	typed(t, p, "never lit")
	if len(titles(p)) != 0 {
		t.Fatalf("%q finds %v before the search", p.Query(), titles(p))
	}
	p.SetItems(items)
	if diff := cmp.Diff([]string{"ses-9"}, titles(p)); diff != "" {
		t.Errorf("after the search (-want +got):\n%s", diff)
	}
	if view := cell.Sanitize(p.View(80, 10)); !strings.Contains(view, "An old one  the lantern was never lit") {
		t.Errorf("what was found is not shown:\n%s", view)
	}
}

func TestPickerAsksForPreviewsOnce(t *testing.T) {
	needs := func(p *Picker, want string) {
		t.Helper()
		if id, ok := p.NeedsPreview(); id != want || ok != (want != "") {
			t.Errorf("preview of %q (%v) is asked for, want %q", id, ok, want)
		}
	}
	p := sessionPicker()
	p.View(30, 8)
	needs(p, "") // no room
	p.View(120, 30)
	needs(p, "ses-2")
	needs(p, "")
	keys(t, p, "down")
	needs(p, "ses-3")
	p.SetPreview("ses-3", nil)
	p.SetPreview("ses-2", []string{"a line \x1b[2Jof it"})
	needs(p, "")
	keys(t, p, "up")
	needs(p, "")
	if view := p.View(120, 30); !strings.Contains(view, "a line of it") {
		t.Errorf("no preview in\n%s", view)
	}
	items := sessions()
	items[1].Detail = "just now"
	p.SetItems(items)
	needs(p, "ses-2") // it has changed

	p = New("Sessions", sessions())
	p.View(120, 30)
	needs(p, "")
}

func TestPickerKeepsFewPreviews(t *testing.T) {
	p := sessionPicker()
	for i := range 10 * maxPreviews {
		p.SetPreview(fmt.Sprint(i), make([]string, 10*maxPreview))
	}
	if len(p.previews) > maxPreviews || len(p.previews["639"]) != maxPreview {
		t.Errorf("%d previews are kept, want at most %d; the last has %d lines, want %d", len(p.previews), maxPreviews,
			len(p.previews["639"]), maxPreview)
	}
}

// A title that is cut where the filter stands in it gets the room of the columns.
func TestPickerShowsWhatMatches(t *testing.T) {
	p := sessionPicker()
	typed(t, p, "by whom")
	if view := cell.Sanitize(p.View(88, 10)); !strings.Contains(view, "by whom?") {
		t.Errorf("what matches is cut off:\n%s", view)
	}
}

func TestMarksAreStyled(t *testing.T) {
	p := sessionPicker(With(Look{Theme: theme.New(true, true)}))
	typed(t, p, "mend")
	keys(t, p, "backspace", "backspace", "backspace", "backspace")
	typed(t, p, "lan")
	keys(t, p, "down")
	match := theme.New(true, true).Match.Render("lan")
	if view := p.View(120, 10); !strings.Contains(view, match+"tern") {
		t.Errorf("what matches is not marked in\n%q", view)
	}
}

var tools = []protocol.ToolInfo{
	{Name: "read_file", Description: "Reads a file.", Active: true, Healthy: true},
	{
		Name:        "shell",
		Description: "Runs a command in the workdir and gives what it prints, both streams of it, and how it ended.",
		Active:      true, Healthy: true,
	},
	{Name: "torch_light", Description: "Lights a torch.", Healthy: false, Problem: "the program torch-tool is not there"},
	{Name: "wait", Description: "Waits.", Healthy: true},
}

var no = false

var models = []protocol.ListedModel{
	{Model: "offline", Provider: "offline", Source: "config", Default: true},
	{Model: "ollama/qwen3:8b", Provider: "ollama", Name: "qwen3:8b", BaseURL: "http://127.0.0.1:11434", Source: "server"},
	{
		Model: "ollama/gone", Provider: "ollama", Name: "gone", BaseURL: "http://127.0.0.1:11434", Source: "config",
		Reachable: &no,
	},
	{Model: "mistral", Provider: "mistral", Source: "built-in", Problem: "MISTRAL_API_KEY is not set"},
}

func TestItems(t *testing.T) {
	want := []Item{
		{
			ID: "ses-1", Title: "Mend the parser of the journal", Mark: "running", Detail: "just now\t12 messages",
			Search: "ses-1",
		},
		{ID: "ses-2", Title: "日本語の挨拶を書く", Detail: "3 min ago\t1 message", Search: "a lantern at the door\nses-2"},
		{ID: "ses-3", Title: "(no title)", Detail: "1 day ago\t0 messages", Search: "ses-3"},
		{
			ID: "ses-4", Title: "Why is the lantern dark? And what would have to be done about it, and by whom?",
			Detail: "5 h ago\t140 messages\tbranch of Mend the parser of the …", Search: "ses-4",
		},
		{
			ID: "ses-5", Title: "red title", Mark: "aborting", Detail: "2026-02-03\t7 messages\tbranch of ses-gone",
			Search: "ses-5",
		},
		{ID: "ses-9", Title: "An old one", Detail: "2 days ago", Search: "the lantern was never lit\nnor carried\nses-9"},
	}
	if diff := cmp.Diff(want, sessions()); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	want = []Item{
		{ID: "offline", Title: "offline", Mark: "default", Detail: "config\t"},
		{ID: "ollama/qwen3:8b http://127.0.0.1:11434", Title: "ollama/qwen3:8b", Detail: "server\thttp://127.0.0.1:11434"},
		{ID: "ollama/gone", Title: "ollama/gone", Mark: "no answer", Bad: true, Detail: "config\thttp://127.0.0.1:11434"},
		{ID: "mistral", Title: "mistral", Mark: "problem", Bad: true, Detail: "built-in\tMISTRAL_API_KEY is not set"},
	}
	if diff := cmp.Diff(want, Models(models)); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	want = []Item{
		{ID: "read_file", Title: "read_file", Detail: "Reads a file.", Checked: true},
		{ID: "shell", Title: "shell", Detail: tools[1].Description, Checked: true},
		{
			ID: "torch_light", Title: "torch_light", Mark: "unhealthy", Bad: true, Detail: "the program torch-tool is not there",
			Search: "Lights a torch.",
		},
		{ID: "wait", Title: "wait", Detail: "Waits."},
	}
	if diff := cmp.Diff(want, Tools(tools)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

func TestAge(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Hour, "just now"}, // a clock that is ahead
		{59 * time.Second, "just now"},
		{time.Minute, "1 min ago"},
		{time.Hour - 1, "59 min ago"},
		{time.Hour, "1 h ago"},
		{24 * time.Hour, "1 day ago"},
		{27 * 24 * time.Hour, "27 days ago"},
		{28 * 24 * time.Hour, "2026-04-06"},
	} {
		if got := format.Age(ago(c.d), now); got != c.want {
			t.Errorf("%s: got %q, want %q", c.d, got, c.want)
		}
	}
	if got := format.Age(time.Time{}, now); got != "" {
		t.Errorf("no time: got %q, want nothing", got)
	}
}

func TestRanking(t *testing.T) {
	// Best first, for one term.
	order := []string{"tree", "tree of a session", "the tree", "subtree", "to reread the…"}
	for i, better := range order {
		s := score([]string{"tree"}, better, "")
		if s == 0 {
			t.Errorf("%q does not match", better)
		}
		for _, worse := range order[i+1:] {
			if w := score([]string{"tree"}, worse, ""); w >= s {
				t.Errorf("%q has %d, %q has %d", better, s, worse, w)
			}
		}
	}
	for _, title := range []string{"", "t", "eert", "t" + strings.Repeat(" ", 40) + "ree"} {
		if s := score([]string{"tree"}, title, ""); s != 0 {
			t.Errorf("%q matches with %d", title, s)
		}
	}
}

func TestLineEditing(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"a b c", "abc|"},
		{"a b left c", "ac|b"},
		{"a b home c end d", "cabd|"},
		{"a b c ctrl+b ctrl+b backspace", "|bc"},
		{"a b c left delete", "ab|"},
		{"a b ctrl+a ctrl+k", "|"},
		{"a b left ctrl+u", "|b"},
		{"日 本 backspace", "日|"},
		{"backspace left ctrl+w", "|"},
		{"right delete", "|"},
	} {
		var l line
		for _, k := range strings.Fields(c.keys) {
			l.update(press(k))
		}
		if got := l.text[:l.at] + "|" + l.text[l.at:]; got != c.want {
			t.Errorf("%s: got %q, want %q", c.keys, got, c.want)
		}
	}
	var l line
	l.insert("one two  three e\u0301👩‍👩‍👧")
	for _, step := range []struct{ key, want string }{
		{"backspace", "one two  three e\u0301|"},
		{"backspace", "one two  three |"},
		{"ctrl+w", "one two  |"},
		{"alt+b", "one |two  "},
		{"alt+d", "one |  "},
		{"ctrl+right", "one   |"},
		{"ctrl+left", "|one   "},
	} {
		l.update(press(step.key))
		if got := l.text[:l.at] + "|" + l.text[l.at:]; got != step.want {
			t.Fatalf("%s: got %q, want %q", step.key, got, step.want)
		}
	}
}

func manySessions(n int) []protocol.SessionInfo {
	list := make([]protocol.SessionInfo, n)
	for i := range list {
		list[i] = protocol.SessionInfo{
			SessionID: fmt.Sprintf("ses-%d", i),
			Title:     fmt.Sprintf("Session %d about the parser of the journal and what it reads", i),
			UpdatedAt: ago(time.Duration(i) * time.Minute), Messages: i % 300, RunState: "idle",
		}
	}
	return list
}

func BenchmarkPicker10000(b *testing.B) {
	items := Sessions(manySessions(10_000), nil, now, "")
	b.Run("SetItems", func(b *testing.B) {
		p := New("Sessions", nil)
		for b.Loop() {
			p.SetItems(items)
		}
	})
	p := New("Sessions", items, Previews(), With(Look{Theme: theme.New(true, true)}))
	b.Run("key", func(b *testing.B) {
		for b.Loop() {
			p.Update(press("j"))
			p.Update(press("backspace"))
		}
	})
	b.Run("fuzzy", func(b *testing.B) {
		p.Update(tea.PasteMsg{Content: "prsr jrn"})
		for b.Loop() {
			p.Update(press("l"))
			p.Update(press("backspace"))
		}
	})
	b.Run("View", func(b *testing.B) {
		for b.Loop() {
			p.View(200, 60)
		}
	})
}

// All of why a host is away stands on the screen when the cursor is on it, beside the list,
// below it, and where there is no room for a preview.
func TestPickerShowsAllOfANote(t *testing.T) {
	why := "ssh: connect to host box port 22: " + strings.Repeat("No route to host, it says again. ", 5) +
		"Check its power."
	for _, size := range [][2]int{{120, 20}, {60, 30}, {60, 14}} {
		p := New("Sessions", []Item{
			{ID: "ses-1", Title: "Mend it"},
			{ID: "box", Title: "box", Mark: "away", Bad: true, Detail: why, Note: true},
		}, Previews())
		p.SetLook(Look{Theme: theme.New(true, true)})
		if text := p.View(size[0], size[1]); strings.Contains(text, "Check its power.") {
			t.Errorf("%v: it stands there before it is chosen:\n%s", size, text)
		}
		keys(t, p, "down")
		if text := cell.Sanitize(p.View(size[0], size[1])); !strings.Contains(strings.Join(strings.Fields(text), " "),
			"its power.") {
			t.Errorf("%v: the reason is cut:\n%s", size, text)
		}
	}
}

var agents = []protocol.AgentInfo{
	{Name: "noused", Found: true, Default: true},
	{Name: "codex", Command: []string{"codex-acp"}, Found: true, SignIn: "codex login", SignedIn: new(bool)},
	{Name: "opencode", Command: []string{"opencode", "acp"}, Found: true, SignIn: "opencode auth login"},
	{Name: "claude", Command: []string{"claude-agent-acp"}, Problem: "it is not there", Install: "npm install -g claude"},
	{Name: "mine", Command: []string{"/opt/mine"}, Problem: "mine cannot be started: /opt/mine: permission denied"},
}

var options = []protocol.AgentOption{
	{
		ID: "mode", Name: "Mode", Description: "what it does without asking", Value: "read-only", Truncated: true,
		Values: []protocol.AgentValue{
			{Value: "auto", Name: "Auto", Description: "writes in the folder"}, {Value: "read-only", Name: "Read only"},
		},
	},
	{ID: "fast", Value: "true", Values: []protocol.AgentValue{{Value: "true", Name: "on"}, {Value: "false", Name: "off"}}},
}

package transcript

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"noused/internal/client/conversation"
	"noused/internal/protocol"
	"noused/internal/testenv"
	"noused/internal/tui/cell"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testenv.M{M: m})
}

var (
	noon  = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	here  = protocol.Ref{RunID: "run-1", SessionID: "ses-1", TurnID: "1"}
	plain = Look{Width: 80, Plain: true}
)

// fresh is a transcript whose clock stands three seconds after noon.
func fresh(look Look) *Transcript {
	t := New(look)
	t.now = func() time.Time { return noon.Add(3 * time.Second) }
	return t
}

// said are the events of a whole message.
func said(id, role, text string, calls ...protocol.ToolCall) []protocol.Event {
	events := []protocol.Event{protocol.MessageStart{Ref: here, MessageID: id, Role: role}}
	stop := protocol.StopReason("")
	if role == "assistant" {
		stop = protocol.StopEnd
		events = append(events, protocol.MessageUpdate{Ref: here, MessageID: id, Delta: text})
	}
	return append(events, protocol.MessageEnd{
		Ref: here, MessageID: id, Role: role, Text: text, ToolCalls: calls,
		StopReason: stop,
	})
}

func call(id, name, args string) protocol.ToolCall {
	return protocol.ToolCall{ID: id, Name: name, Arguments: jsontext.Value(args)}
}

func begun(c protocol.ToolCall) protocol.Event {
	return protocol.ToolStart{Ref: here, ToolCallID: c.ID, ToolName: c.Name, Arguments: c.Arguments}
}

func told(c protocol.ToolCall, delta, update string) protocol.Event {
	ev := protocol.ToolUpdate{Ref: here, ToolCallID: c.ID, ToolName: c.Name, Delta: delta}
	if update != "" {
		ev.Update = jsontext.Value(update)
	}
	return ev
}

func done(c protocol.ToolCall, result string) protocol.Event {
	return protocol.ToolEnd{Ref: here, ToolCallID: c.ID, ToolName: c.Name, OK: true, Result: result, DurationMS: 1234}
}

// story has every kind of block in it, and ends in the middle of a tool's work.
func story() []protocol.Event {
	edit := call("k1", "edit", `{"path":"a.go","old_text":"one\ntwo\nthree","new_text":"one\n2\nthree\nfour"}`)
	write := call("k2", "write", `{"path":"b.txt","content":"first\nsecond\n"}`)
	read := call("k3", "read", `{"path":"a.go"}`)
	fails := call("k4", "files.grep", `{"pattern":"x+","path":"cmd"}`)
	asset := call("k5", "image.draw", `{"prompt":"a cat","size":{"w":10}}`)
	passed := call("k6", "bash", `{"command":"seq 10"}`)
	runs := call("k7", "bash", `{"command":"go test ./..."}`)
	waits := call("k8", "ls", `{}`)
	answer := "# What I found\n\nIt *is* in `server.go`, **line 7**:\n\n```go\nfunc f(x int) string {\n\treturn \"日本\" " +
		"// ok\n}\n```\n\n" +
		"- one <path>\n- two\n  1. deep\n\n| a | b |\n|---|---|\n| 1 | long text |\n\n> as [they](https://example.org) " +
		"said\n\ndone"
	var list []protocol.Event
	add := func(events ...protocol.Event) { list = append(list, events...) }
	add(protocol.AgentStart{Ref: here}, protocol.TurnStart{Ref: here, Kind: "prompt"})
	add(said("m1", "user", "Please look\nat **this**.")...)
	add(protocol.MessageStart{Ref: here, MessageID: "m2", Role: "assistant"},
		protocol.MessageUpdate{Ref: here, MessageID: "m2", ThinkingDelta: "let me "},
		protocol.MessageUpdate{Ref: here, MessageID: "m2", ThinkingDelta: "think"})
	add(said("m2", "assistant", answer, edit, write, read, fails, asset, passed)[1:]...)
	add(begun(edit), done(edit, "edited a.go, 1 place"))
	add(begun(write), done(write, "created b.txt, 13 bytes"))
	add(begun(read), done(read, "1\tone\n2\t2"))
	add(begun(fails), protocol.ToolEnd{
		Ref: here, ToolCallID: "k4", ToolName: "files.grep", Result: "cmd: no such folder", DurationMS: 12,
		Error: &protocol.ToolError{
			Code: "tool_failed", Message: "cmd: no such folder",
			Details: jsontext.Value(`{"path":"cmd"}`),
		},
	})
	add(begun(asset), told(asset, "image/png /w/cat.png",
		`{"version":"0","type":"asset","assetId":"cat","kind":"image","mediaType":"image/png","path":"/w/cat.png"}`),
		told(asset, "confetti", `{"version":"0","type":"ui_event","event":"confetti","payload":{"n":3}}`),
		protocol.ToolEnd{
			Ref: here, ToolCallID: "k5", ToolName: "image.draw", OK: true, Result: "drawn",
			Outputs: map[string]string{"id": "cat"}, DurationMS: 65_000,
		})
	add(begun(passed), told(passed, "1\n2\n3", ""), done(passed, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"))
	add(protocol.Status{Ref: here, Code: "steer_queued", Message: "queued"}, protocol.TurnStart{Ref: here, Kind: "steer"})
	add(said("m3", "user", "no, this way")...)
	add(protocol.Warning{Ref: here, Code: "context_failed", Message: "it went on without"})
	add(protocol.ErrorEvent{Ref: here, Code: "session_error", Message: "it failed", Cause: "no space left"})
	add(said("m4", "assistant", "", runs, waits)...)
	add(begun(runs), told(runs, "ok a\nok b\nok c", ""), told(runs, "10 %\r20 %", ""), told(runs, "ok d\n", ""))
	return list
}

func apply(t *Transcript, events ...protocol.Event) {
	for _, ev := range events {
		t.Apply(ev, noon)
	}
}

// all are all the lines there are.
func all(t *Transcript) []string {
	n := t.below(place{}, 1<<30)
	t.Top()
	return t.View(n)
}

func TestGolden(t *testing.T) {
	end := protocol.AgentEnd{
		Ref: here, StopReason: "error", Turns: 2, Usage: protocol.Usage{InputTokens: 120, OutputTokens: 30},
		Error:     &protocol.RunError{Code: "provider_error", Message: "the model cannot be reached"},
		Discarded: []protocol.DiscardedInput{{Text: "and this"}},
	}
	for _, width := range []int{40, 80, 120} {
		for name, look := range map[string]Look{
			"dark": {Dark: true, Color: true}, "light": {Color: true}, "nocolor": {}, "plain": {Plain: true},
		} {
			look.Width = width
			tr := fresh(look)
			apply(tr, story()...)
			text := "-- while it runs --\n" + strings.Join(all(tr), "\n")
			apply(tr, end)
			tr.ToggleAll()
			tr.Focus(-1)
			text += "\n-- over, all of it, the last in focus --\n" + strings.Join(all(tr), "\n") + "\n"
			text = strings.ReplaceAll(text, "\x1b", "␛")
			path := filepath.Join("testdata", fmt.Sprintf("%s-%d.golden", name, width))
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
}

func TestNoColourWritesNoStyle(t *testing.T) {
	for _, look := range []Look{{Width: 80}, {Width: 80, Plain: true, Color: true}} {
		tr := fresh(look)
		apply(tr, story()...)
		tr.ToggleAll()
		if text := strings.Join(all(tr), "\n"); strings.Contains(text, "\x1b") {
			t.Errorf("%+v: an escape sequence is left in %q", look, text)
		}
	}
}

func TestHostileTextReachesNoTerminal(t *testing.T) {
	const evil = "a\x1b]0;owned\x07b \x1b[2Jc &#27;[2J &#x1b;]0;x&#7; \u202ed &#x202e; \u009b2J [t](http://x\u001b[2J) " +
		"`&#27;c`\r10%"
	c := call("k", "t.x", `{"command":"\u001b[2Jx\u0007"}`)
	for _, look := range []Look{{Width: 60, Color: true, Dark: true}, {Width: 60}, {Width: 60, Plain: true}} {
		tr := fresh(look)
		apply(tr, said("m1", "user", evil)...)
		apply(tr, protocol.MessageUpdate{Ref: here, MessageID: "m2", ThinkingDelta: evil})
		apply(tr, said("m2", "assistant", "**x** "+evil+"\n\n```"+evil+"\n"+evil+"\n```\n", c)...)
		apply(tr, begun(c), told(c, evil, `{"type":"ui_event","event":"\u001b[2J"}`), protocol.ToolEnd{
			Ref: here, ToolCallID: "k", ToolName: "t.x\x1b[2J", Result: evil, Outputs: map[string]string{evil: evil},
			Error: &protocol.ToolError{Code: evil, Message: evil},
		}, protocol.ErrorEvent{Message: evil, Code: evil, Cause: evil}, protocol.AgentEnd{
			Ref: here, StopReason: "error",
			Error: &protocol.RunError{Code: evil, Message: evil},
		})
		tr.ToggleAll()
		for _, line := range all(tr) {
			for rest := line; ; {
				i := strings.IndexFunc(rest, func(r rune) bool {
					return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
				})
				if i < 0 {
					break
				}
				n := sgr(rest[i:])
				if n == 0 {
					t.Fatalf("%+v: %q has more than text and colours", look, line)
				}
				rest = rest[i+n:]
			}
		}
		for tr.Focus(-1); tr.focus != tr.blocks[0]; tr.Focus(-1) {
			if got := tr.Focused(); strings.ContainsFunc(got, func(r rune) bool {
				return r != '\n' && r != '\t' && unicode.IsControl(r)
			}) {
				t.Fatalf("%q would be copied", got)
			}
		}
	}
}

func TestEventsOfWhatIsLoadedDoubleNothing(t *testing.T) {
	tr := fresh(plain)
	list := longSession(8)
	if err := tr.Load(list, nil, nil); err != nil {
		t.Fatal(err)
	}
	want := all(tr)
	ref := protocol.Ref{RunID: "run-1", SessionID: "ses-1"}
	apply(tr,
		protocol.MessageStart{Ref: ref, MessageID: "msg-4", Role: "user", Text: "again"},
		protocol.MessageEnd{Ref: ref, MessageID: "msg-4", Role: "user", Text: "again"},
		protocol.MessageUpdate{Ref: ref, MessageID: "msg-5", ThinkingDelta: "again"},
		protocol.MessageEnd{Ref: ref, MessageID: "msg-5", Role: "assistant", Text: "again"},
		protocol.ToolStart{Ref: ref, ToolCallID: "call-5", ToolName: "bash"},
		protocol.ToolUpdate{Ref: ref, ToolCallID: "call-5", ToolName: "bash", Delta: "again"},
		protocol.MessageUpdate{Ref: ref, MessageID: "msg-7", Delta: "again"},
	)
	if diff := cmp.Diff(want, all(tr)); diff != "" {
		t.Errorf("the events changed something (-before +after):\n%s", diff)
	}
}

func TestAPartialMessageGoesOn(t *testing.T) {
	tr := fresh(plain)
	ref := protocol.Ref{RunID: "run-0", SessionID: "ses-1", TurnID: "1"}
	if err := tr.Load(longSession(4), nil, &protocol.Partial{MessageID: "msg-9", Text: "Half a "}); err != nil {
		t.Fatal(err)
	}
	apply(tr, protocol.MessageUpdate{Ref: ref, MessageID: "msg-9", Delta: "sentence"})
	if got := all(tr); got[len(got)-1] != "assistant: Half a sentence" {
		t.Errorf("got %q at the end", got[len(got)-1])
	}
	apply(tr, protocol.MessageEnd{Ref: ref, MessageID: "msg-9", Role: "assistant", Text: "A whole sentence."})
	if got := all(tr); got[len(got)-1] != "assistant: A whole sentence." {
		t.Errorf("got %q at the end, want the text of message_end", got[len(got)-1])
	}
	if err := tr.Load(longSession(4), nil, &protocol.Partial{MessageID: "msg-3", Text: "old"}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(all(tr), "\n"); strings.Contains(text, "old") {
		t.Errorf("a message that is complete is shown as partial:\n%s", text)
	}
}

func TestLoadKeepsWhatOnlyEventsTell(t *testing.T) {
	tr := fresh(plain)
	c := call("k", "bash", `{"command":"make"}`)
	apply(tr, said("m1", "user", "go")...)
	apply(tr, said("m2", "assistant", "", c)...)
	apply(tr, begun(c), protocol.ToolEnd{
		Ref: here, ToolCallID: "k", ToolName: "bash", Result: "it broke", DurationMS: 4200,
		Error: &protocol.ToolError{Code: "timeout", Message: "it took too long"},
	}, protocol.AgentEnd{Ref: here, StopReason: "aborted", Turns: 1})
	entries := []jsontext.Value{
		jsontext.Value(
			`{"type":"message","id":"m1","role":"user","text":"go","run_id":"run-1","turn_kind":"prompt","attachments":[{"media_type":"image/png","name":"a.png","size":7,"path":"/s/a.png"}]}`),
		jsontext.Value(
			`{"type":"message","id":"m2","role":"assistant","text":"","run_id":"run-1","tool_calls":[{"id":"k","name":"bash","arguments":{"command":"make"}}]}`),
		jsontext.Value(
			`{"type":"message","id":"m5","role":"tool","text":"it broke","run_id":"run-1","tool_call_id":"k","tool_name":"bash","ok":false}`),
		jsontext.Value(`{"type":"message","id":"m6","role":"user","text":"next","run_id":"run-2","turn_kind":"prompt"}`),
		jsontext.Value(`{"type":"compaction","id":"c1","summary":"It was about make."}`),
		jsontext.Value(`{"type":"of tomorrow","id":"x"}`),
	}
	if err := tr.Load(entries, nil, nil); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(all(tr), "\n")
	for _, want := range []string{
		"failed, 4.2 s: make", "it broke", "the run was aborted, 1 model call", "you: next",
		"attached: a.png, image/png, 7 bytes", "summarised here", "of a kind that this client does not know",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is there %d times in\n%s", want, strings.Count(text, want), text)
		}
	}
	if strings.Index(text, "the run was aborted") > strings.Index(text, "you: next") {
		t.Errorf("the end of the first run stands after the second's beginning:\n%s", text)
	}
}

func TestBrokenEntriesAreShownAndReported(t *testing.T) {
	tr := fresh(plain)
	err := tr.Load([]jsontext.Value{
		jsontext.Value(`{"type":"message","id":7}`),
		jsontext.Value(`{"type":"message","id":"m","role":"user","text":"hello"}`), jsontext.Value(`nonsense`),
	}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "entry 0") || !strings.Contains(err.Error(), "id") {
		t.Errorf("got the error %v, want one that names entry 0 and id", err)
	}
	tr.ToggleAll()
	text := strings.Join(all(tr), "\n")
	for _, want := range []string{`{"type":"message","id":7}`, "you: hello", "nonsense"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestFoldingAndFocus(t *testing.T) {
	tr := fresh(plain)
	apply(tr, story()...)
	tr.View(30)
	if got := tr.Focused(); got != "" {
		t.Errorf("%q is in focus at the beginning", got)
	}
	for range 3 { // the call that waits, the one that runs, what was said: from the end
		tr.Focus(-1)
	}
	if text := strings.Join(tr.View(30), "\n"); !strings.Contains(text, "selected, you, steering") {
		t.Errorf("what is in focus is not shown:\n%s", text)
	}
	for tr.focus.Key != "k:k6" {
		tr.Focus(-1)
	}
	if got, want := tr.Focused(), "bash {\n\t\"command\": \"seq 10\"\n}\n\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n\n"; got !=
		want {
		t.Errorf("got %q, want %q", got, want)
	}
	folded := len(all(tr))
	tr.ToggleFocused()
	if got := all(tr); len(got) <= folded || !slices.Contains(got, "3") {
		t.Errorf("the unfolded call has no line 3:\n%s", strings.Join(got, "\n"))
	}
	tr.ToggleFocused()
	if got := len(all(tr)); got != folded {
		t.Errorf("folded again it has %d lines, want %d", got, folded)
	}
	for range 100 {
		tr.Focus(1)
		if tr.focus == nil {
			break
		}
	}
	if tr.focus != nil || !tr.AtEnd() {
		t.Error("past the last block something is in focus, or the view is not at the end")
	}
}

func TestAnimatingIsWhatIsOnTheScreen(t *testing.T) {
	tr := fresh(plain)
	apply(tr, story()...)
	tr.View(20)
	if !tr.Animating() {
		t.Error("a tool runs on the screen, and nothing moves")
	}
	tr.Top()
	tr.View(5)
	if tr.Animating() {
		t.Error("the tool is not on the screen, and something moves")
	}
	tr.End()
	apply(tr, protocol.AgentEnd{Ref: here, StopReason: "aborted"})
	tr.View(20)
	if tr.Animating() {
		t.Error("the run is over, and something moves")
	}
}

func TestTheViewStaysWhereItIsReadWhileMoreComes(t *testing.T) {
	tr := fresh(Look{Width: 60, Dark: true, Color: true})
	if err := tr.Load(longSession(200), nil, nil); err != nil {
		t.Fatal(err)
	}
	tr.View(20)
	if !tr.AtEnd() || tr.Position() != 100 {
		t.Error("a loaded session does not show its end")
	}
	tr.Scroll(-33)
	want := tr.View(20)
	for range 300 {
		apply(tr, protocol.MessageUpdate{Ref: here, MessageID: "live", Delta: "more words\n\n"})
	}
	apply(tr, protocol.MessageUpdate{Ref: here, MessageID: "live", ThinkingDelta: "and a thought before them"})
	if diff := cmp.Diff(want, tr.View(20)); diff != "" {
		t.Errorf("the view moved (-before +after):\n%s", diff)
	}
	if tr.AtEnd() || tr.Position() >= 100 {
		t.Error("the view says that it is at the end")
	}
	tr.SetLook(Look{Width: 59, Color: true})
	tr.SetLook(Look{Width: 60, Dark: true, Color: true})
	if diff := cmp.Diff(want, tr.View(20)); diff != "" {
		t.Errorf("the view moved with the look and back (-before +after):\n%s", diff)
	}
	tr.Scroll(1 << 20)
	if !tr.AtEnd() {
		t.Error("the view is not at the end after scrolling there")
	}
}

// Scrolling shows windows of one and the same text, however one gets there.
func TestScrollingShowsTheWholeText(t *testing.T) {
	list := longSession(12)
	whole := func() []string {
		tr := fresh(Look{Width: 60})
		if err := tr.Load(list, nil, nil); err != nil {
			t.Fatal(err)
		}
		return all(tr)
	}()
	rapid.Check(t, func(t *rapid.T) {
		tr := fresh(Look{Width: 60})
		if err := tr.Load(list, nil, nil); err != nil {
			t.Fatal(err)
		}
		height := rapid.IntRange(1, 30).Draw(t, "height")
		tr.View(height)
		at := len(whole) - height
		for _, by := range rapid.SliceOfN(rapid.IntRange(-60, 60), 1, 20).Draw(t, "by") {
			tr.Scroll(by)
			at = min(max(at+by, 0), len(whole)-height)
			if diff := cmp.Diff(whole[at:at+height], tr.View(height)); diff != "" {
				t.Fatalf("at line %d (-want +got):\n%s", at, diff)
			}
			if tr.AtEnd() != (at == len(whole)-height) {
				t.Fatalf("at line %d of %d AtEnd is %v", at, len(whole), tr.AtEnd())
			}
		}
	})
}

// hostile are texts to break a renderer with.
func hostile() *rapid.Generator[string] {
	word := rapid.SampledFrom([]string{
		"word ", "日本語", "é", "👩‍👩‍👧", "🇩🇪", "❤️", "\t", "\n", "\n\n", "    ", strings.Repeat(" ", 30), "```", "```go\n",
		"~~~", "- ", "1. ", "> ", "# ", "|", "|---|---|\n", "**", "_", "`", "[", "](http://a.b/c)", "<b>", "&#27;[31m",
		"\x1b[31m", "\x1b]0;x", "\r", "\xff", "\u202e", "\u200b", "https://example.org/a/very/long/path/that/goes/on",
		strings.Repeat("x", 130), "* * *\n", "\u0301", "===\n", "+", "@@ -1 +1 @@\n", "-", "--- a\n+++ b\n@@ ",
	})
	return rapid.OneOf(
		rapid.Map(rapid.SliceOfN(word, 0, 40), func(w []string) string { return strings.Join(w, "") }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 200), func(b []byte) string { return string(b) }),
	)
}

func TestNoLineIsTooWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		look := Look{
			Width: rapid.IntRange(1, 200).Draw(t, "width"), Dark: rapid.Bool().Draw(t, "dark"),
			Color: rapid.Bool().Draw(t, "color"), Plain: rapid.Bool().Draw(t, "plain"),
		}
		tr := fresh(look)
		text := hostile()
		quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(text.Draw(t, "argument"), "?"))
		c := call("k", text.Draw(t, "tool"), `{"path":`+string(quoted)+`,"old_text":`+string(quoted)+`,"new_text":"b"}`)
		apply(tr, said("m1", "user", text.Draw(t, "user"))...)
		apply(tr, protocol.MessageUpdate{Ref: here, MessageID: "m2", ThinkingDelta: text.Draw(t, "thought")})
		apply(tr, said("m2", "assistant", text.Draw(t, "assistant"), c)...)
		apply(tr, begun(c), told(c, text.Draw(t, "live"), ""))
		check := func() {
			for _, line := range all(tr) {
				if w := cell.Width(line); w > look.Width || strings.Contains(line, "\n") {
					t.Fatalf("a line of %d cells, of which %d are there: %q", w, look.Width, line)
				}
			}
		}
		check()
		apply(tr, protocol.ToolEnd{
			Ref: here, ToolCallID: "k", ToolName: c.Name, OK: rapid.Bool().Draw(t, "ok"),
			Result: text.Draw(t, "result"),
		})
		tr.Notice("error", text.Draw(t, "notice"))
		tr.ToggleAll()
		tr.Focus(-1)
		check()
	})
}

// A line without an end that is just as long as a part.
func TestLineOfThePartsLength(t *testing.T) {
	for n := partBytes - 1; n <= partBytes+1; n++ {
		b := newBody(false)
		b.text.Add(strings.Repeat("x", n))
		parts, rest, _ := b.cut()
		got := len(rest.text)
		for _, p := range parts {
			got += len(p.text)
		}
		if got != n {
			t.Errorf("of %d bytes %d are there", n, got)
		}
	}
}

// Where a text is cut into parts depends on the text, not on its deltas, and
// nothing of it is lost.
func TestPartsDependOnTheTextAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := hostile().Draw(t, "text") + strings.Repeat(hostile().Draw(t, "again"),
			rapid.IntRange(0, 200).Draw(t, "times"))
		plain := rapid.Bool().Draw(t, "plain")
		once, grown := newBody(plain), newBody(plain)
		once.text.Add(text)
		parts, rest, ok := once.cut()
		for from := 0; from < len(text); {
			to := min(from+rapid.IntRange(1, 500).Draw(t, "delta"), len(text))
			grown.text.Add(text[from:to])
			grown.cut()
			from = to
		}
		gotParts, gotRest, gotOK := grown.cut()
		if diff := cmp.Diff([]any{parts, rest, ok}, []any{gotParts, gotRest, gotOK}, cmp.AllowUnexported(part{})); diff !=
			"" {
			t.Fatalf("in deltas it is cut otherwise (-once +deltas):\n%s", diff)
		}
		var got strings.Builder
		for _, p := range append(slices.Clone(parts), rest) {
			if len(p.text) > tableBytes+2*partBytes {
				t.Fatalf("a part has %d bytes", len(p.text))
			}
			got.WriteString(p.text)
		}
		if plain && got.String() != text {
			t.Fatalf("the parts are %q", got.String())
		}
		if want, got := words(text), words(got.String()); want != got {
			t.Fatalf("the parts have the words %q, want %q", got, want)
		}
	})
}

// The same of blocks that are too long for a part, delta by delta.
func TestLongBlocksAreCutByTheirTextAlone(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("    a\n\n\n", 60), "```\n" + strings.Repeat("\n\na\n", 60), strings.Repeat("- a\n\n  more\n\n", 60) +
			"end",
		"- ```\n" + strings.Repeat("  x\n\n", 120) + "end", "a\n" + strings.Repeat("1. x\n   - y\n", 60),
		"    a\n" + strings.Repeat("\n", windowBytes) + "b",
	} {
		once, grown := newBody(false), newBody(false)
		once.text.Add(text)
		want, wantRest, _ := once.cut()
		for i := range text {
			grown.text.Add(text[i : i+1])
			if i%997 == 0 || i < 1000 {
				grown.cut()
			}
		}
		got, gotRest, _ := grown.cut()
		if diff := cmp.Diff(append(slices.Clone(want), wantRest), append(slices.Clone(got), gotRest),
			cmp.AllowUnexported(part{})); diff != "" {
			t.Errorf("%.20q… in deltas is cut otherwise (-once +deltas):\n%.2000s", text, diff)
		}
		if len(wantRest.text) > windowBytes || len(want) == 0 {
			t.Errorf("%.20q… has %d parts and %d bytes left", text, len(want), len(wantRest.text))
		}
	}
}

// words is what a text says but for white space and the lines of fences.
func words(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "```") && !strings.HasPrefix(line, "~~~") {
			out = append(out, strings.Fields(line)...)
		}
	}
	return strings.Join(out, "")
}

func TestParts(t *testing.T) {
	long := strings.Repeat("x := 1\n", partLines)
	for _, c := range []struct {
		name, text string
		want       []part
	}{
		{"paragraphs", "a\nb\n\n\nc\n", []part{{text: "a\nb\n\n\n"}, {text: "c\n"}}},
		{
			"code ends a paragraph", "a\n```go x\nb\n\nc\n```\nd\n",
			[]part{{text: "a\n"}, {text: "b\n\nc\n", code: true, lang: "go"}, {text: "d\n"}},
		},
		{"code that is not over", "~~~~\na\n~~~\n", []part{{text: "a\n~~~\n", code: true}}},
		{"code at the end", "```go\na\n```", []part{{text: "a\n", code: true, lang: "go"}}},
		{"long code", "```go\n" + long + "y\n```\n", []part{
			{text: long, code: true, lang: "go"},
			{text: "y\n", code: true, lang: "go", joined: true},
		}},
		{"indented code", "a\n\n    b\n\n    c\nd\n", []part{{text: "a\n\n"}, {text: "b\n\nc\n", code: true}, {text: "d\n"}}},
		{"a loose list", "- a\n\n  more\n\n- b\n\nc\n", []part{{text: "- a\n\n  more\n\n- b\n\n"}, {text: "c\n"}}},
		{"code in a list", "- a\n  ```\n  b\n\n  c\n  ```\n- d", []part{{text: "- a\n  ```\n  b\n\n  c\n  ```\n- d"}}},
	} {
		b := newBody(false)
		b.text.Add(c.text)
		got, rest, ok := b.cut()
		if got = slices.Clone(got); ok {
			got = append(got, rest)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(part{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A line that is too long for one part is broken where what is left of it is read
// as text: not before what a fence, a heading or an item begins with. The cut is
// the same before the rest of a character has come.
func TestALongLineIsNotBrokenBeforeWhatBeginsABlock(t *testing.T) {
	for _, again := range []string{"word ```日本語🇩🇪", "word #### ", "日本語```", "word - ", "日本語1. ", "1 ~~~", "1. ", "🇩🇪```"} {
		for extra := range len(again) + 1 {
			text := "."[:extra%2] + strings.Repeat(again, partBytes/len(again)) + again[:extra] + again
			once, grown := newBody(false), newBody(false)
			once.text.Add(text)
			done, rest, _ := once.cut()
			for i := range len(text) {
				grown.text.Add(text[i : i+1])
				if i >= partBytes-8 {
					grown.cut()
				}
			}
			if diff := cmp.Diff(done, grown.parts, cmp.AllowUnexported(part{})); diff != "" {
				t.Errorf("%q in deltas is cut otherwise (-once +deltas):\n%.2000s", again, diff)
			}
			got := ""
			for _, p := range append(slices.Clone(done), rest) {
				if got += p.text; p.code {
					t.Errorf("%q, %d: code of the language %q", again, len(text), p.lang)
				}
			}
			if got != text {
				t.Errorf("%q, %d: the text ends in %q, want %q", again, len(text), got[max(len(got)-40, 0):], text[len(text)-40:])
			}
		}
	}
}

func TestCallsOfALoadedSessionRunOrNeverWill(t *testing.T) {
	entries := []jsontext.Value{
		jsontext.Value(`{"type":"message","id":"m1","role":"user","text":"go","run_id":"run-1"}`),
		jsontext.Value(
			`{"type":"message","id":"m2","role":"assistant","text":"","run_id":"run-1","tool_calls":[{"id":"a","name":"one","arguments":{}},{"id":"b","name":"two","arguments":{}}]}`),
	}
	for active, want := range map[bool][]string{
		true:  {"tool one: running", "tool two: waiting"},
		false: {"tool one: no result", "tool two: no result", "", "end of the run, 1 model call"},
	} {
		tr := fresh(plain)
		if err := tr.Load(entries, nil, nil); err != nil {
			t.Fatal(err)
		}
		tr.SetRunning(active)
		got := all(tr)
		if diff := cmp.Diff(want, got[2:]); diff != "" {
			t.Errorf("active %v (-want +got):\n%s", active, diff)
		}
	}
}

// A call that an abort came before looks the same to who was there and to who
// comes later.
func TestCallsThatAnAbortCameBefore(t *testing.T) {
	entries := []jsontext.Value{
		jsontext.Value(`{"type":"message","id":"m1","role":"user","text":"go","run_id":"run-1"}`),
		jsontext.Value(
			`{"type":"message","id":"m2","role":"assistant","text":"","run_id":"run-1","tool_calls":[{"id":"a","name":"one","arguments":{}}]}`),
	}
	live, later := fresh(plain), fresh(plain)
	if err := live.Load(entries, nil, nil); err != nil {
		t.Fatal(err)
	}
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1"}
	live.Apply(protocol.AgentEnd{Ref: ref, StopReason: protocol.StopAborted, Turns: 1}, time.Time{})
	entries = append(entries, jsontext.Value(
		`{"type":"message","id":"m3","role":"tool","text":"not run: the run was aborted","run_id":"run-1","tool_call_id":"a","tool_name":"one","ok":false,"not_run":"aborted"}`))
	if err := later.Load(entries, nil, nil); err != nil {
		t.Fatal(err)
	}
	later.SetRunning(false)
	later.SetLastRun(protocol.LastRun{RunID: "run-1", StopReason: protocol.StopAborted})
	if diff := cmp.Diff(all(live), all(later)); diff != "" {
		t.Errorf("-live +later:\n%s", diff)
	}
}

func TestHugeMessages(t *testing.T) {
	for _, c := range []struct{ name, text, last string }{
		{"one line", strings.Repeat("word ", 200_000) + "end", "end"},
		{"one word", strings.Repeat("x", 1<<20) + "end", "end"},
		{"code", "```go\n" + strings.Repeat("\tx := f(1, 2)\n", 100_000) + "last()\n```\n", "last()"},
		{"list", strings.Repeat("- an item\n", 50_000) + "- end\n", "end"},
		{"table", "| a | b |\n|---|---|\n" + strings.Repeat("| 1 | 2 |\n", 50_000) + "| end | 2 |\n", "end"},
		{"marks", strings.Repeat("[*_`", 100_000) + "end", "end"},
		{"quotes", strings.Repeat(strings.Repeat(">", 200)+" x\n", 2000) + "end", "end"},
		{"deep list", strings.Repeat(strings.Repeat(" ", 40)+"- x\n", 2000) + "end", "end"},
		{"fences in a list", "- a\n  ```\n" + strings.Repeat("  x\n\n", 20_000) + "  end\n", "end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := fresh(wide)
			apply(tr, said("m1", "assistant", c.text)...)
			if text := ansi.Strip(strings.Join(tr.View(50), "\n")); !strings.Contains(text, c.last) {
				t.Errorf("the end is not shown:\n%s", text)
			}
			for range 5 {
				tr.Page(-1)
				tr.View(50)
			}
			tr.Top()
			tr.View(50)
			if tr.lines > maxCached+1000 {
				t.Errorf("%d lines are kept, want at most %d", tr.lines, maxCached)
			}
		})
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	tr := fresh(wide)
	for i := range 3000 {
		apply(tr, protocol.MessageEnd{Ref: here, MessageID: fmt.Sprint(i), Role: "user", Text: strings.Repeat("line\n", 10)})
	}
	tr.View(50)
	for !slices.Contains(tr.View(50), "") || tr.top != (place{}) {
		tr.Scroll(-400)
	}
	kept := 0
	for _, b := range tr.blocks {
		for _, p := range b.pieces {
			kept += len(p.lines)
		}
	}
	if kept > maxCached+1000 {
		t.Errorf("%d lines are kept, want about %d at most", kept, maxCached)
	}
}

func TestLongSessionsLoseTheirBeginning(t *testing.T) {
	tr := fresh(plain)
	for i := range conversation.MaxEntries + 10 {
		apply(tr, protocol.MessageEnd{Ref: here, MessageID: fmt.Sprint(i), Role: "user", Text: fmt.Sprint("text ", i)})
	}
	if len(tr.blocks) > conversation.MaxEntries {
		t.Errorf("%d blocks are kept, want at most %d", len(tr.blocks), conversation.MaxEntries)
	}
	tr.Top()
	if got := tr.View(1)[0]; !strings.Contains(got, "Older messages") {
		t.Errorf("the first line is %q, want one that says what is missing", got)
	}
	tr.End()
	if got := tr.View(1)[0]; got != fmt.Sprint("you: text ", conversation.MaxEntries+9) {
		t.Errorf("the last line is %q", got)
	}
}

func TestDiffOfAnEdit(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"a\nb\nc", "a\nB\nc", " a\n-b\n+B\n c\n"},
		{"", "new", "+new\n"},
		{"gone\n", "", "-gone\n"},
		{"a\nb\nc\nd\ne", "a\nx\nc\ny\ne", " a\n-b\n+x\n c\n-d\n+y\n e\n"},
	} {
		if got := lineDiff(c.before, c.after); got != c.want {
			t.Errorf("%q to %q: got %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestAnErrorIsSaidOnce(t *testing.T) {
	tr := fresh(plain)
	c := call("k", "torch.light", `{}`)
	apply(tr, begun(c), protocol.ToolEnd{
		Ref: here, ToolCallID: c.ID, ToolName: c.Name, Result: "bad_request: no room",
		Error: &protocol.ToolError{Code: "bad_request", Message: "no room"},
	})
	tr.ToggleAll()
	if got := strings.Count(strings.Join(all(tr), "\n"), "no room"); got != 1 {
		t.Errorf("said %d times, want once", got)
	}
}

// What a command wrote last says why it failed.
func TestAFailedCommandShowsItsEnd(t *testing.T) {
	tr := fresh(plain)
	c := call("k", "bash", `{"command":"make"}`)
	var out strings.Builder
	for i := range 40 {
		fmt.Fprintf(&out, "\nstep %d", i)
	}
	text := "exit status 2" + out.String() + "\nFAIL: the hull leaks"
	apply(tr, begun(c), protocol.ToolEnd{
		Ref: here, ToolCallID: "k", ToolName: "bash", Result: text,
		Error: &protocol.ToolError{Code: "failed", Message: text},
	})
	live := strings.Join(all(tr), "\n")
	if err := tr.Load([]jsontext.Value{
		jsontext.Value(
			fmt.Sprintf(
				`{"type":"message","id":"m5","role":"tool","text":%q,"run_id":"run-1","tool_call_id":"k","tool_name":"bash","ok":false}`, text)),
	}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{live, strings.Join(all(tr), "\n")} {
		for _, want := range []string{"exit status 2", "36 more lines", "step 39", "FAIL: the hull leaks"} {
			if !strings.Contains(shown, want) {
				t.Errorf("no %q in\n%s", want, shown)
			}
		}
		if strings.Contains(shown, "step 0") {
			t.Errorf("the beginning is shown:\n%s", shown)
		}
	}
}

// What the client and the daemon say by the way is no part of the conversation,
// and goes away: what could be read with the next key, the rest in its time.
func TestNotesGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(plain)
		tr.Notice("info", "written: a.md")
		tr.Notice("error", "it failed")
		if got := strings.Join(tr.View(5), "") + strings.Join(tr.Notes(5), "|"); got != "• written: a.md|✗ it failed" {
			t.Errorf("got %q", got)
		}
		if got := tr.Notes(1); len(got) != 1 || got[0] != "✗ it failed" {
			t.Errorf("got %q where there is room for the newest", got)
		}
		tr.DropNotes(true, false)
		if len(tr.Notes(5)) != 2 {
			t.Error("a key has taken away what nobody could read")
		}
		for _, want := range []string{"✗ it failed", ""} {
			end, ok := tr.NotesEnd()
			if !ok {
				t.Fatal("no note goes away")
			}
			time.Sleep(time.Until(end))
			tr.DropNotes(false, false)
			if got := strings.Join(tr.Notes(5), "|"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		tr.Notice("warning", strings.Repeat("long\n", 9))
		if got := tr.Notes(3); len(got) != 3 || !strings.Contains(got[2], "7 more lines") {
			t.Errorf("got %q", got)
		}
		time.Sleep(noteLeast)
		if tr.DropNotes(true, false); len(tr.Notes(5)) > 0 {
			t.Error("a key has not taken away what could be read")
		}
	})
}

// The line under a run says what it took, and what it cost where that is known;
// the same to who watched it and to who comes later.
func TestTheLineUnderARunSaysWhatItTook(t *testing.T) {
	cost := func(amount float64) *protocol.Cost { return &protocol.Cost{Amount: amount, Currency: "USD"} }
	for _, tc := range []struct {
		ms   int64
		cost *protocol.Cost
		want string
	}{
		{0, nil, "120 in · 30 out (2 model calls)"},
		{61_500, nil, "1 min 01 s · 120 in · 30 out (2 model calls)"},
		{1200, cost(1.234), "1.2 s · 120 in · 30 out · 1.23 USD (2 model calls)"},
		{1200, cost(0.0036), "1.2 s · 120 in · 30 out · 0.0036 USD (2 model calls)"},
		{1200, cost(0.00001), "1.2 s · 120 in · 30 out · < 0.0001 USD (2 model calls)"},
	} {
		usage := protocol.Usage{InputTokens: 120, OutputTokens: 30, Cost: tc.cost}
		watched, later := fresh(Look{Width: 80}), fresh(Look{Width: 80})
		apply(watched, said("m1", "user", "go")...)
		apply(watched, said("m2", "assistant", "first")...)
		apply(watched, said("m3", "assistant", "second")...)
		apply(watched, protocol.AgentEnd{Ref: here, StopReason: "completed", Turns: 1, Usage: usage, DurationMS: tc.ms})
		entry := jsontext.Value(
			`{"type":"message","id":"m1","role":"user","text":"go","run_id":"run-1","turn_kind":"prompt"}`)
		entries := []jsontext.Value{entry}
		for _, id := range []string{"m2", "m3"} {
			entries = append(entries,
				jsontext.Value(`{"type":"message","id":"`+id+`","role":"assistant","text":"text","run_id":"run-1"}`))
		}
		run := protocol.EndedRun{RunID: here.RunID, StopReason: "completed", Turns: 1, Usage: usage, DurationMS: tc.ms}
		if err := later.Load(entries, []protocol.EndedRun{run}, nil); err != nil {
			t.Fatal(err)
		}
		for _, tr := range []*Transcript{watched, later} {
			if got := strings.Join(all(tr), "\n"); !strings.Contains(got, "── "+tc.want+" ─") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		}
	}
}

package transcript

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"noused/internal/client/conversation"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// viewed is what a view shows, without the ends of its lines.
func viewed(t *Transcript) string {
	lines := t.View(12)
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// A call of the tool agent says what its child does, live and in one block, also before it is told to begin;
// once it is over its answer is folded away.
func TestACallShowsItsChild(t *testing.T) {
	tr := fresh(Look{Width: 80})
	first := call("k1", "agent", `{"description":"Run the tests","prompt":"Run them all.","agent":"explore"}`)
	second := call("k2", "agent", `{"prompt":"Read the manual"}`)
	later := call("k3", "agent", `{"description":"Measure","prompt":"x","background":true}`)
	for _, ev := range said("m1", "assistant", "Three look.", first, second, later) {
		tr.Apply(ev, noon)
	}
	tr.Apply(begun(first), noon)
	tr.Apply(told(first, "", `{"type":"child_session","session_id":"ses-2","run_id":"run-2"}`), noon)
	cost := &protocol.Cost{Amount: 0.25, Currency: "USD"}
	tr.SetChild("k1", Child{
		ID: "ses-2", Working: true, Began: noon, Doing: "bash 2s", Said: "ok 14 of 20",
		Usage: protocol.Usage{InputTokens: 3200, OutputTokens: 47, Cost: cost},
	})
	tr.SetChild("k2", Child{ID: "ses-3", Ended: protocol.StopCompleted, Said: "It has four parts."})
	see := func(want ...string) {
		t.Helper()
		got := viewed(tr)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("no %q in\n%s", text, got)
			}
		}
	}
	see("agent  Run the tests · explore  3.0 s, 3.2k in, 47 out, 0.25 USD", "    bash 2s · ok 14 of 20",
		"✓ agent  Read the manual", "    It has four parts.", "· agent  Measure  waiting, in the background")
	if !tr.Animating() {
		t.Error("nothing moves while a child works")
	}
	tr.SetChild("k1", Child{ID: "ses-2", Ended: protocol.StopCompleted, Gone: true})
	tr.Apply(done(first, "All 20 pass."), noon)
	see("✓ agent  Run the tests · explore  1.2 s, deleted")
	if got := viewed(tr); strings.Contains(got, "All 20 pass.") {
		t.Errorf("the answer is not folded:\n%s", got)
	}
	tr.ToggleAll()
	see("All 20 pass.", "Run them all.")
	if got := tr.Delegations(); len(got) != 3 || got[0] != (Delegation{"k1", "ses-2", true}) || got[1].Over {
		t.Errorf("got %+v", got)
	}
	tr.SetChild("k3", Child{
		ID: "ses-4", Working: true, Began: noon.Add(-time.Minute), Asks: true, Doing: "waits for approval",
	})
	see("! agent  Measure  asks, 1 min 03 s, in the background")
}

// The call of a child that was stopped says so, while the calls beside it go on and once the run has ended without a
// result of it.
func TestACallSaysThatItsChildWasStopped(t *testing.T) {
	tr := fresh(Look{Width: 80})
	tr.Apply(protocol.AgentStart{Ref: here}, noon)
	apply(tr, said("m1", "assistant", "Two look.", call("k1", "agent", `{"prompt":"Run the tests"}`),
		call("k2", "agent", `{"prompt":"Read the manual"}`))...)
	tr.SetChild("k1", Child{ID: "ses-2", Working: true, Began: noon})
	tr.SetChild("k2", Child{ID: "ses-3", Ended: protocol.StopAborted})
	see := func(want string) {
		t.Helper()
		if got := ansi.Strip(viewed(tr)); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	see("✗ agent  Read the manual  aborted")
	tr.Apply(protocol.AgentEnd{Ref: here, StopReason: protocol.StopAborted}, noon)
	see("✗ agent  Read the manual  aborted")
	tr.SetChild("k2", Child{ID: "ses-3", Ended: protocol.StopCompleted}) // somebody has prompted it since
	see("? agent  Read the manual  no result")
}

// A conversation that was left is come back to where it was, with what was folded and in focus.
func TestAConversationIsComeBackTo(t *testing.T) {
	tr := fresh(Look{Width: 80})
	for _, ev := range story() {
		tr.Apply(ev, noon)
	}
	tr.View(6)
	tr.Focus(-1)
	tr.Focus(-1)
	tr.ToggleFocused()
	want := viewed(tr)
	mark, notes := tr.Mark(), story()
	tr.Clear()
	for _, ev := range said("m9", "assistant", "another session") {
		tr.Apply(ev, noon)
	}
	tr.Clear()
	for _, ev := range notes {
		tr.Apply(ev, noon)
	}
	tr.End()
	tr.Return(mark)
	if got := viewed(tr); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if tr.focus == nil || tr.focus.Kind != conversation.Tool {
		t.Error("the focus is lost")
	}
}

// What a child in the background has come to is told as that, with its title and how it ended, and is the
// way into the child as its call is.
func TestAReportNamesItsChild(t *testing.T) {
	const text = "[ses-0a1b@run-0c2d: the background child session \"Measure \\\"it\\\"\" has ended]\n\n" +
		"It has 4 GiB.\n\n[session_id ses-0a1b, folder /src, a, completed; files changed: a.txt]"
	for _, look := range []Look{{Width: 80}, {Width: 80, Plain: true}, {Width: 80, Color: true}} {
		tr := fresh(look)
		tr.Apply(protocol.AgentStart{Ref: here}, noon)
		tr.Apply(protocol.TurnStart{Ref: here, Kind: protocol.KindPrompt}, noon)
		tr.Apply(protocol.MessageStart{Ref: here, MessageID: "m1", Role: "user", Text: text, Child: &protocol.ChildRun{
			SessionID: "ses-0a1b", RunID: "run-0c2d",
		}}, noon)
		tr.Apply(protocol.MessageEnd{Ref: here, MessageID: "m1", Role: "user", Text: text}, noon)
		got := ansi.Strip(viewed(tr))
		for _, want := range []string{`Measure "it"`, "completed", "It has 4 GiB.", "files changed: a.txt"} {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: no %q in\n%s", look, want, got)
			}
		}
		if strings.Contains(got, "session_id") || strings.Contains(got, "[ses-") {
			t.Errorf("%+v: got\n%s", look, got)
		}
		tr.SetChild("k", Child{ID: "ses-0a1b", Gone: true})
		if tr.FocusChildAt(0) != true || tr.FocusChildAt(11) {
			t.Error("only a row of the report leads to its child")
		}
		if id, gone := tr.FocusedChild(); id != "ses-0a1b" || !gone {
			t.Errorf("it leads to %q, gone %t", id, gone)
		}
	}
	tr := fresh(Look{Width: 80})
	apply(tr, said("m1", "user", text)...) // a person's words, which look the same
	if got := viewed(tr); !strings.Contains(got, "[session_id ses-0a1b") || tr.FocusChildAt(0) {
		t.Errorf("got\n%s", got)
	}
}

// fiftyChildren is a conversation whose model has called 50 children at the same time: every fifth has ended,
// and every tenth asks.
func fiftyChildren(look Look) *Transcript {
	tr := fresh(look)
	var calls []protocol.ToolCall
	for i := range 50 {
		calls = append(calls, call(fmt.Sprint("k", i), "agent", fmt.Sprintf(`{"description":"Look into part %d"}`, i+1)))
	}
	for _, ev := range said("m1", "assistant", "Fifty look into it.", calls...) {
		tr.Apply(ev, noon)
	}
	for i := range calls {
		workOf(tr, i, "The form has two fields.")
	}
	return tr
}

// workOf tells what a child of fiftyChildren says.
func workOf(tr *Transcript, i int, said string) {
	c := Child{
		ID: fmt.Sprint("ses-", i), Working: i%5 != 0, Asks: i%10 == 1, Began: noon, Doing: "grep 9s", Said: said,
		Usage: protocol.Usage{InputTokens: 3200, OutputTokens: int64(40 + i)},
	}
	if !c.Working {
		c.Ended = protocol.StopCompleted
	}
	tr.SetChild(fmt.Sprint("k", i), c)
}

func TestGoldenFiftyChildren(t *testing.T) {
	tr := fiftyChildren(Look{Width: 80})
	var got strings.Builder
	for _, line := range tr.View(24) {
		if cell.Width(line) > 80 {
			t.Errorf("too wide: %q", line)
		}
		got.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	path := filepath.Join("testdata", "children-80x24.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Something that one of 50 children says, and the view after it, most of which moves: about what a
// page of BenchmarkPage costs, a small part of the 10 ms from a key to the screen.
func BenchmarkFiftyChildren(b *testing.B) {
	tr := fiftyChildren(wide)
	for i := 0; b.Loop(); i++ {
		workOf(tr, i%50, fmt.Sprint("ok ", i))
		tr.Delegations()
		tr.View(50)
	}
}

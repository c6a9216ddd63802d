package runloop

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
	"noused/internal/testenv"
)

const maker = "chat h m"

// answers is a whole answer of a provider.
func (w *world) answers(deltas ...model.Delta) {
	w.t.Helper()
	deltas[len(deltas)-1].Maker = maker
	w.say(deltas...)
}

func (w *world) fails(err error) { w.step(modelDoneIn{w.work.gen, err}) }

func rejected(why string) error { return fmt.Errorf("400: %s: %w", why, model.ErrRejected) }

// repairs are what the run was warned of.
func (w *world) warnings(code protocol.Code) (told []string) {
	for _, ev := range w.events {
		if warning, ok := ev.(protocol.Warning); ok && warning.Code == code {
			told = append(told, warning.Message)
		}
	}
	return told
}

// withEverything is a session whose history has all that a provider may refuse.
func withEverything(t *testing.T) *world {
	w := newWorld(t)
	w.step(promptIn{
		w.client("p"),
		protocol.PromptParams{Text: "look"},
		false,
		[]model.Attachment{{MediaType: "image/png", File: "f"}},
		nil,
	})
	w.answers(toolCall("t.x"), model.Delta{
		Stop:   model.StopToolCalls,
		Blocks: []model.Block{{Kind: model.CallBlock, ID: "v1"}},
	})
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: "1"}})
	return w
}

func TestEveryRungOfTheLadder(t *testing.T) {
	steps := []model.Repair{
		{},
		{NoImages: true},
		{NoImages: true, PlainSchemas: true},
		{NoImages: true, PlainSchemas: true, NoOpaque: true},
		{NoImages: true, PlainSchemas: true, NoOpaque: true, PlainCalls: true},
	}
	for accepted := range steps {
		t.Run(fmt.Sprint(accepted), func(t *testing.T) {
			w := withEverything(t)
			for i := range accepted {
				if got := w.work.call.req.Repair; got != steps[i] {
					t.Fatalf("request %d is put as %+v, want %+v", i, got, steps[i])
				}
				w.fails(rejected("first " + fmt.Sprint(i)))
			}
			if got := w.work.call.req.Repair; got != steps[accepted] {
				t.Fatalf("the last request is put as %+v, want %+v", got, steps[accepted])
			}
			w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
			if told := w.warnings("request_repaired"); len(told) != accepted {
				t.Errorf("warned %q, want one for each of %d rungs", told, accepted)
			}
			w.restart(nil) // what was learned is a fact
			w.prompt("and?")
			if got := w.work.call.req.Repair; got != steps[accepted] {
				t.Errorf("the next run's request is put as %+v, want %+v", got, steps[accepted])
			}
			w.step(modelIn{nil, model.Choice{Provider: "openai", Name: "other"}})
			w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
			w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: "1"}})
			if got := w.work.call.req.Repair; got != (model.Repair{}) {
				t.Errorf("another model's request is put as %+v", got)
			}
		})
	}
}

// A refusal of everything ends the run in the server's first words; the next
// prompt begins anew.
func TestATotalRefusalBricksNothing(t *testing.T) {
	w := withEverything(t)
	for i := range 5 {
		w.fails(rejected(fmt.Sprintf("word %d", i)))
	}
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.Error == nil || !strings.Contains(end.Error.Message, "word 0") {
		t.Fatalf("got %+v, want the run ended with the first refusal", w.events[len(w.events)-1])
	}
	w.prompt("again")
	if got := w.work.call.req.Repair; got != (model.Repair{}) {
		t.Errorf("the next request is put as %+v", got)
	}
	w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
	if end := w.events[len(w.events)-1].(protocol.AgentEnd); end.StopReason != "completed" {
		t.Errorf("got %+v", end)
	}
}

// Who may speak after whom is learned from one refusal.
func TestRolesInOrder(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: "1"}})
	w.step(abortIn{w.client("abort"), ""})
	w.finish()
	w.prompt("and now?")
	w.fails(fmt.Errorf("400: Unexpected role 'user' after role 'tool': %w", model.ErrRoleOrder))
	if got := w.work.call.req.Repair; got != (model.Repair{Bridged: true}) {
		t.Errorf("the request is put as %+v, want it bridged", got)
	}
	w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
	w.prompt("again")
	if got := w.work.call.req.Repair; got != (model.Repair{Bridged: true}) {
		t.Errorf("the next request is put as %+v, want it bridged", got)
	}
}

// What one model refuses is not held against the model that is chosen meanwhile.
func TestARefusalIsOfTheModelThatWasAsked(t *testing.T) {
	w := withEverything(t)
	w.step(modelIn{nil, model.Choice{Provider: "openai", Name: "other"}})
	w.fails(rejected("no images here"))
	if got := w.work.call; got.choice.Name != "other" || got.req.Repair != (model.Repair{}) {
		t.Fatalf("%+v is asked with %+v, want the new model asked as if nothing was", got.choice, got.req.Repair)
	}
	w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
	if told := w.warnings("request_repaired"); len(told) != 0 || len(w.m.s.Repairs) != 0 {
		t.Errorf("warned %q, kept %+v", told, w.m.s.Repairs)
	}
}

// A run whose model can be asked again is not lost because the daemon stops: the
// next one asks.
func TestWhatIsToBeAskedAgainWaitsForTheNextDaemon(t *testing.T) {
	for name, play := range map[string]func(w *world){
		"refused": func(w *world) { w.fails(rejected("no")) },
		"broken off": func(w *world) {
			w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
			w.fails(fmt.Errorf("cut: %w", model.ErrTruncated))
		},
		"empty": func(w *world) { w.answers(model.Delta{Thinking: "hm"}, model.Delta{Stop: model.StopEnd}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := withEverything(t)
			w.step(drainIn{})
			play(w)
			if w.m.phase != parked {
				t.Fatalf("the run is not parked:\n%s", w.story())
			}
			w.restart(nil)
			w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
			if end := w.events[len(w.events)-1].(protocol.AgentEnd); end.StopReason != "completed" {
				t.Errorf("got %+v", end)
			}
		})
	}
}

// A branch has what was learned of its models.
func TestABranchKnowsTheRepairs(t *testing.T) {
	w := withEverything(t)
	w.fails(rejected("no images here"))
	w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
	chain, _ := w.m.s.Chain("")
	branch := session.NewState()
	for _, r := range copied(w.m.s, chain) {
		if err := branch.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if got := branch.Repairs[w.m.model().Key()]; got != (model.Repair{NoImages: true}) {
		t.Errorf("the branch puts requests as %+v", got)
	}
}

// Blocks without data count for what the journal can hold: there may be many.
func TestTheSizeOfBlocks(t *testing.T) {
	b := model.Block{Kind: model.ThinkingBlock, Bytes: 1 << 24, ID: "i", Data: []byte(`{"a":"b"}`)}
	for _, b := range []model.Block{b, {Kind: model.TextBlock, Bytes: 1}} {
		if text, err := json.Marshal(b); err != nil || sizeOf(model.Delta{Blocks: []model.Block{b}}) < len(text) {
			t.Errorf("%s counts %d bytes (%v)", text, sizeOf(model.Delta{Blocks: []model.Block{b}}), err)
		}
	}
}

// An answer that breaks off after words is ended, and given anew: the model does
// not read its broken words.
func TestAnAnswerThatBrokeOffIsAskedForAgain(t *testing.T) {
	for name, first := range map[string]model.Delta{"text": {Text: "half a "}, "thinking": {Thinking: "hm"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			w.events = nil
			for range 2 {
				w.step(deltaIn{w.work.gen, first})
				w.fails(fmt.Errorf("cut: %w", model.ErrTruncated))
				if got := w.messages(); len(got) != 1 || got[0].Text != "go" {
					t.Fatalf("asked again with %+v, want the prompt alone", got)
				}
			}
			w.answers(model.Delta{Text: "whole"}, model.Delta{Stop: model.StopEnd})
			broken := []string{"message_start assistant", "message_update", "message_end assistant error", "warning"}
			w.expect(append(append(broken, broken...), "message_start assistant", "message_update", "message_end assistant end",
				"turn_end end", "agent_end completed")...)
			w.prompt("and?")
			if got := w.messages(); len(got) != 3 || got[1].Text != "whole" {
				t.Errorf("the next request has %+v, want the whole answer alone", got)
			}
		})
	}
	for name, play := range map[string]func(w *world){
		"a third time": func(w *world) {
			for range 3 {
				w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
				w.fails(fmt.Errorf("cut: %w", model.ErrTruncated))
			}
		},
		"after a tool call": func(w *world) {
			w.step(deltaIn{w.work.gen, toolCall("t.x")})
			w.fails(fmt.Errorf("cut: %w", model.ErrTruncated))
		},
		"for good": func(w *world) {
			w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
			w.fails(fmt.Errorf("content filter"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			play(w)
			if end, ok := w.events[len(w.events)-1].(protocol.AgentEnd); !ok || end.StopReason != "error" {
				t.Errorf("got %+v, want the run ended in error", w.events[len(w.events)-1])
			}
		})
	}
}

func TestAnEmptyAnswerIsAskedForOnceMore(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.answers(model.Delta{Stop: model.StopToolCalls, Usage: model.Usage{InputTokens: 7}})
	w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd})
	if used := w.m.s.Usage.InputTokens; used != 7 {
		t.Errorf("the session has used %d tokens, want those of the empty answer", used)
	}
	if told := w.warnings("empty_answer"); len(told) != 0 || w.m.s.Run != nil {
		t.Errorf("warned %q", told)
	}
	w.prompt("again")
	w.answers(model.Delta{Thinking: "hm"}, model.Delta{Stop: model.StopEnd})
	w.answers(model.Delta{Stop: model.StopEnd})
	if end := w.events[len(w.events)-1].(protocol.AgentEnd); len(w.warnings("empty_answer")) != 1 ||
		end.StopReason != "completed" {
		t.Errorf("got %+v with the warnings %q", end, w.warnings("empty_answer"))
	}
}

// One prompt with many large results never asks for more than the window has.
func TestATurnIsCompactedInItsMiddle(t *testing.T) {
	for name, play := range map[string]func(w *world){
		"one after the other": func(w *world) {
			for range 40 {
				w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
				w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: strings.Repeat("word", 8000)}})
				for w.work.call.req.Summary {
					w.say(model.Delta{Text: "read so far", Stop: model.StopEnd})
				}
				w.fits(32_000)
			}
		},
		"all at once": func(w *world) {
			var calls []model.Delta
			for range 40 {
				calls = append(calls, toolCall("t.x"))
			}
			w.answers(append(calls, model.Delta{Stop: model.StopToolCalls})...)
			for range 40 {
				w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: strings.Repeat("word", 8000)}})
			}
			for w.work.call.req.Summary {
				w.say(model.Delta{Text: "read so far", Stop: model.StopEnd})
			}
			w.fits(32_000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.step(modelIn{nil, model.Choice{Provider: "openai", Name: "m", ContextWindow: 32_000}})
			w.prompt("read it all")
			play(w)
			w.answers(model.Delta{Text: "done"}, model.Delta{Stop: model.StopEnd})
			w.finish()
			if end := w.events[len(w.events)-1].(protocol.AgentEnd); end.StopReason != "completed" {
				t.Errorf("got %+v", end)
			}
		})
	}
}

// fits checks the request that the machine waits for against a window.
func (w *world) fits(window int64) {
	w.t.Helper()
	if n := session.Tokens(w.messages()); n > window*sentPercent/100 {
		w.t.Fatalf("the request has %d tokens", n)
	}
	open := map[string]bool{}
	for _, msg := range w.messages() {
		for _, c := range msg.ToolCalls {
			open[c.ID] = true
		}
		if msg.Role == model.Tool && !open[msg.ToolCallID] {
			w.t.Fatalf("a result without its call: %.80q", msg.Text)
		}
	}
}

// A summary that fails in the middle of a turn is not asked for after every
// step.
func TestAFailingSummaryIsTriedOnceATurn(t *testing.T) {
	w := newWorld(t)
	w.step(modelIn{nil, model.Choice{Provider: "openai", Name: "m", ContextWindow: 32_000}})
	w.prompt("read it all")
	summaries := 0
	for range 10 {
		w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
		w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: strings.Repeat("word", 8000)}})
		if w.work.call.req.Summary {
			summaries++
			w.fails(fmt.Errorf("out of order"))
		}
		w.fits(32_000)
	}
	if summaries != 1 {
		t.Errorf("%d summaries were asked for, want one", summaries)
	}
}

// One result takes at most a quarter of the model's window.
func TestAResultIsForTheModelsWindow(t *testing.T) {
	w := newWorld(t)
	w.prompt("read")
	w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	if n := w.work.tool.MaxResult; n != 0 {
		t.Errorf("got at most %d bytes for a window that is not known", n)
	}
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
	w.answers(model.Delta{Text: "done"}, model.Delta{Stop: model.StopEnd})
	w.finish()
	w.step(modelIn{nil, model.Choice{Provider: "openai", Name: "m", ContextWindow: 8192}})
	w.prompt("read")
	w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	if n := w.work.tool.MaxResult; n != 8192 {
		t.Errorf("got at most %d bytes, want 8192: a quarter of 8192 tokens of 4 bytes", n)
	}
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
	w.answers(model.Delta{Text: "done"}, model.Delta{Stop: model.StopEnd})
	w.finish()
}

// noisy is a model whose answers are allowed, and take six times as much in JSON.
// A provider that refuses nothing, answers at any length and makes no summary is
// not sent more and more: the daemon has to hold it all.
func TestAConversationDoesNotGrowWithoutEnd(t *testing.T) {
	w := newWorld(t)
	w.own.ContextWindow = 1000
	w.prompt("go")
	hidden := []byte(`"` + strings.Repeat("x", 15<<20) + `"`)
	sent := 0
	for range 40 {
		if _, ended := w.events[len(w.events)-1].(protocol.AgentEnd); ended {
			break
		}
		switch {
		case w.work.tool != nil:
			w.step(toolDoneIn{w.work.gen, model.ToolResult{Text: "ok"}})
			continue
		case w.work.call.req.Summary:
			w.answers(model.Delta{Stop: model.StopEnd, Maker: "x"})
			continue
		}
		sent++
		w.answers(toolCall("t.x"), model.Delta{
			Stop: model.StopToolCalls, Maker: "x",
			Blocks: []model.Block{{Kind: model.CallBlock}, {Kind: model.OpaqueBlock, Data: hidden}},
		})
	}
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.Error == nil || !strings.Contains(end.Error.Message, "75 MiB, more than the 64 MiB") {
		t.Errorf("after %d requests got %+v, want the run ended", sent, w.events[len(w.events)-1])
	}
	w.prompt("and now?")
	if !w.work.call.req.Summary {
		t.Error("the next prompt does not begin with another try to summarise")
	}
}

type noisy struct{}

func (noisy) Stream(context.Context, model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		noise := strings.Repeat("\x01", 1<<20)
		for range 16 {
			if !yield(model.Delta{Text: noise}, nil) {
				return
			}
		}
		yield(model.Delta{Stop: model.StopEnd}, nil)
	}
}

// An answer that no line of the journal can hold ends its run, and is not asked
// for again and again.
func TestAnAnswerThatTheJournalCannotHoldEndsTheRun(t *testing.T) {
	if testing.Short() || testenv.Race {
		t.Skip("long; make test runs it without the race detector")
	}
	f := newFixture(t, t.TempDir(), noisy{}, echoTool, newRecorder())
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil || st.LastRun == nil || st.LastRun.Error == nil || st.LastRun.Error.Message != errTooMuch.Error() {
		t.Errorf("the run ended so: %+v, %v", st.LastRun, err)
	}
	f.evict(time.Now().Add(time.Hour))
	got, err := f.getMessages(context.Background(), protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil || len(got.Messages) != 2 || len(got.Messages[1]) < 40<<20 || f.faults.Load() != 0 {
		t.Errorf("%d messages are kept, %d faults, %v", len(got.Messages), f.faults.Load(), err)
	}
}

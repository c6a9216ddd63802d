package runloop

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
)

var wantsObject = protocol.PromptParams{
	Text: "list them", OutputSchema: jsontext.Value(`{"type":"object","required":["n"]}`),
}

// whole answers with a text.
func (w *world) whole(text string) { w.say(model.Delta{Text: text}, model.Delta{Stop: model.StopEnd}) }

// lastEnd is how the latest run ended.
func (w *world) lastEnd() protocol.AgentEnd {
	w.t.Helper()
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok {
		w.t.Fatalf("the run has not ended\n%s", w.story())
	}
	return end
}

// An answer that does not fit is asked for again, in the same run and over a restart; one
// that fits, in a fence or not, ends it.
func TestAnAnswerIsAskedForUntilItFits(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: wantsObject})
	w.whole("sure, here they are")
	if got := w.warnings(protocol.WarningAnswerUnfit); len(got) != 1 || !strings.Contains(got[0], "no JSON") {
		t.Fatalf("got warnings %q, want one about JSON", got)
	}
	last := w.messages()[len(w.messages())-1]
	if last.Role != model.User || !strings.Contains(last.Text, `{"type":"object","required":["n"]}`) {
		t.Errorf("asked again with %+v, want the schema in it", last)
	}
	w.boot()
	w.whole(`{}`)
	if got := w.warnings(protocol.WarningAnswerUnfit); len(got) != 2 || !strings.Contains(got[1], "n") {
		t.Fatalf("got warnings %q, want a second one about n", got)
	}
	w.whole("```json\n{\"n\":1}\n```")
	if end := w.lastEnd(); end.StopReason != protocol.StopCompleted || end.Turns != 3 {
		t.Errorf("got %+v, want a run of three turns, completed", end)
	}
}

// The third answer that does not fit ends the run, also where the daemon was restarted
// between them.
func TestAnAnswerThatNeverFits(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: wantsObject})
	for range 3 {
		w.whole("no")
		if w.m.s.Run != nil {
			w.boot()
		}
	}
	if end := w.lastEnd(); end.Error == nil || end.Error.Code != protocol.AnswerUnfit ||
		!strings.Contains(end.Error.Message, "asked for 3 times") {
		t.Errorf("got %+v, want answer_unfit after three", end)
	}
}

// Where a text waits, the answer before it need not fit.
func TestOnlyTheLastAnswerHasToFit(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: wantsObject})
	w.step(queueIn{kind: "follow_up", p: protocol.SteerParams{Text: "and the others"}})
	w.whole("here they are")
	w.whole(`{"n":2}`)
	if got := w.warnings(protocol.WarningAnswerUnfit); w.lastEnd().StopReason != protocol.StopCompleted || len(got) != 0 {
		t.Errorf("got warnings %q, %+v", got, w.lastEnd())
	}
}

// A prompt's own limits end its run, without asking anybody, over restarts, and no other.
func TestLimitsOfAPrompt(t *testing.T) {
	for name, p := range map[string]protocol.PromptParams{
		"called the model 2 times":       {Text: "go on", MaxModelCalls: 2},
		"cost 0.05 USD, and its limit":   {Text: "go on", MaxCost: 0.04},
		"cost 0.05 USD, and its limit i": {Text: "go on", MaxCost: 0.05},
	} {
		w := newWorld(t)
		call := func() {
			w.step(deltaIn{w.m.gen, model.Delta{ToolCall: &model.ToolCall{ID: "c", Name: "t.x"}}})
			w.step(deltaIn{w.m.gen, model.Delta{Stop: model.StopToolCalls, Usage: model.Usage{Cost: 25_000_000}}})
			w.step(modelDoneIn{gen: w.m.gen})
			w.step(toolDoneIn{w.m.gen, model.ToolResult{OK: true, Text: "a"}})
		}
		w.step(promptIn{p: p})
		call()
		w.boot()
		call()
		if end := w.lastEnd(); end.Error == nil || end.Error.Code != protocol.OverBudget ||
			!strings.Contains(end.Error.Message, name) {
			t.Errorf("got %+v, want budget: %s", end.Error, name)
		}
		w.prompt("and on")
		call()
		call()
		call()
		if w.m.phase != streaming {
			t.Errorf("the next run is limited, too: %s", w.story())
		}
	}
}

// A steer that ends its run at once, as the run is at its limit, is told so. It waited for ever (found by the
// simulator).
func TestASteerThatWaitsAtALimit(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: protocol.PromptParams{Text: "go on", MaxCost: 0.02}})
	w.say(toolCall("t.y"), model.Delta{Stop: model.StopToolCalls, Usage: model.Usage{Cost: 25_000_000}})
	if w.m.phase != waiting {
		t.Fatalf("the call does not wait for an answer\n%s", w.story())
	}
	c := w.client("steer")
	c.wait = true
	p := protocol.PromptParams{Text: "instead", StreamingBehavior: protocol.KindSteer}
	w.step(promptIn{ticket: c, wait: true, p: p})
	if end := w.lastEnd(); end.Error == nil || end.Error.Code != protocol.OverBudget || w.waiting[c] {
		t.Errorf("the run ends with %+v, and the steer still waits: %t", end.Error, w.waiting[c])
	}
}

// Terms are of the run that a prompt starts: one that is to be queued is refused.
func TestTermsOfAQueuedPrompt(t *testing.T) {
	w := newWorld(t)
	w.prompt("first")
	p := wantsObject
	p.StreamingBehavior = protocol.KindFollowUp
	c := w.client("second")
	w.step(promptIn{ticket: c, p: p})
	if !w.refusedBy(protocol.RunInProgress) {
		t.Errorf("the prompt is not refused: %s", w.story())
	}
}

// A provider that refuses the native form gets the schema in words, and the session
// remembers it.
func TestASchemaThatAProviderRefuses(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: wantsObject})
	if req := w.work.call.req; string(req.Output) != string(wantsObject.OutputSchema) || req.Repair.ToldOutput {
		t.Fatalf("got %+v, want the schema as the provider takes it", req)
	}
	w.fails(model.ErrRejected)
	if req := w.work.call.req; !req.Repair.ToldOutput {
		t.Fatalf("got %+v, want the schema told in words", req)
	}
	w.whole(`{"n":1}`)
	w.boot()
	w.step(promptIn{p: wantsObject})
	if req := w.work.call.req; !req.Repair.ToldOutput {
		t.Errorf("got %+v: the session has forgotten what was refused", req)
	}
}

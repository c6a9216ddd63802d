package runloop

import (
	"fmt"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// small is a world whose model reads 1000 tokens.
func small(t *testing.T) *world {
	w := newWorld(t)
	w.step(modelIn{nil, model.Choice{Provider: "openai", Name: "small", ContextWindow: 1000}})
	return w
}

// turn is a prompt and its answer, of about so many tokens together.
func (w *world) turn(tokens int) {
	w.t.Helper()
	w.prompt(strings.Repeat("word", tokens/2))
	w.say(model.Delta{Text: strings.Repeat("word", tokens/2), Stop: model.StopEnd})
}

// summary is the request that the machine waits for, which must be for one.
func (w *world) summary() model.Request {
	w.t.Helper()
	if w.work.call == nil || !w.work.call.req.Summary {
		w.t.Fatalf("no summary is asked for\n%s", w.story())
	}
	req := w.work.call.req
	req.Messages = w.messages()
	return req
}

// messages are those of the request that the machine waits for.
func (w *world) messages() []model.Message {
	w.t.Helper()
	messages, held := w.work.call.history.Held()
	if !held {
		w.t.Fatal("the request's messages are not in memory")
	}
	return w.work.call.fit(messages)
}

func (w *world) path() []*session.Entry {
	path, _ := w.m.s.Path("")
	return path
}

func tooLong() error { return fmt.Errorf("prompt is too long: %w", model.ErrContextTooLong) }

func TestAFullContextIsCompactedBeforeTheRunGoesOn(t *testing.T) {
	w := small(t)
	w.turn(400)
	w.turn(300)
	w.step(queueIn{w.client("none"), protocol.KindFollowUp, protocol.SteerParams{Text: "x", IfIdle: "prompt"}, nil})
	w.step(queueIn{w.client("later"), protocol.KindFollowUp, protocol.SteerParams{Text: "and then"}, nil})
	w.events = nil
	w.say(model.Delta{Text: strings.Repeat("word", 200), Stop: model.StopEnd})
	if got := w.summary().Messages; len(got) != 4 {
		t.Errorf("the summary is made from %d messages, want those of the first two turns", len(got))
	}
	w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd, Usage: model.Usage{InputTokens: 410, OutputTokens: 2}})
	w.finish()
	w.expect("message_start assistant", "message_update", "message_end assistant end", "turn_end end",
		"status compacting", "status compacted",
		"turn_start follow_up", "message_start user", "message_end user ", "message_start assistant", "message_update",
		"message_end assistant end", "turn_end end",
		"agent_end completed")
	if first := w.path()[0].Body().Compaction; first == nil || first.Trigger != "threshold" ||
		first.Summary != "they spoke" {
		t.Errorf("the context begins with %+v, want the summary", first)
	}
	if n := w.m.s.Tokens(); n > 650 {
		t.Errorf("the compacted context still has %d tokens", n)
	}
	end := w.events[len(w.events)-1].(protocol.AgentEnd)
	if end.Usage.InputTokens != 410 {
		t.Errorf("the run used %+v, want the summary's tokens in it", end.Usage)
	}
}

func TestACompactionThatFailsCostsTheRunNothing(t *testing.T) {
	for name, say := range map[string]func(*world){
		"error":    func(w *world) { w.step(modelDoneIn{w.work.gen, fmt.Errorf("overloaded")}) },
		"blank":    func(w *world) { w.say(model.Delta{Text: " \n", Stop: model.StopEnd}) },
		"cut off":  func(w *world) { w.say(model.Delta{Text: "they sp", Stop: model.StopLength}) },
		"broken":   func(w *world) { w.say(model.Delta{Text: "they sp"}) },
		"too long": func(w *world) { w.say(model.Delta{Text: strings.Repeat("word", 2000), Stop: model.StopEnd}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t)
			w.turn(500)
			w.turn(500)
			say(w)
			w.finish()
			end := w.types()[len(w.events)-3:]
			if want := "[status compacting warning agent_end completed]"; fmt.Sprint(end) != want {
				t.Errorf("got %v, want %v", end, want)
			}
			if w.path()[0].Body().Compaction != nil {
				t.Error("there is a compaction")
			}
		})
	}
}

func TestATurnThatIsTooLongIsTriedOnceMore(t *testing.T) {
	w := newWorld(t) // whose model's window nobody knows
	w.turn(3000)
	w.prompt("and now?")
	w.events = nil
	w.step(modelDoneIn{w.work.gen, tooLong()})
	if n := session.Tokens(w.summary().Messages); n > 1600 {
		t.Errorf("the summary is made from %d tokens: as many were refused", n)
	}
	w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd})
	if got := w.messages(); len(got) != 2 || !got[0].Summary || got[1].Text != "and now?" {
		t.Errorf("the second request has %+v, want the summary and the prompt", got)
	}
	w.say(model.Delta{Text: "this", Stop: model.StopEnd})
	w.expect("status compacting", "status compacted", "message_start assistant", "message_update",
		"message_end assistant end", "turn_end end", "agent_end completed")
	if c := w.path()[0].Body().Compaction; c == nil || c.Trigger != "overflow" {
		t.Errorf("got %+v, want a compaction of an overflow", c)
	}
}

func TestATurnThatIsTooLongTwiceEndsTheRun(t *testing.T) {
	for name, play := range map[string]func(*world){
		"again": func(w *world) {
			w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd})
			w.step(modelDoneIn{w.work.gen, tooLong()})
		},
		"no summary": func(w *world) {
			for range 1 + maxOverflows {
				w.step(modelDoneIn{w.work.gen, tooLong()})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.turn(3000)
			w.prompt("and now?")
			w.step(modelDoneIn{w.work.gen, tooLong()})
			play(w)
			end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
			if !ok || end.Error == nil || !strings.Contains(end.Error.Message, "prompt is too long") {
				t.Errorf("got %+v, want the provider's refusal", end)
			}
		})
	}
	w := newWorld(t)
	w.prompt("the first text of all")
	w.step(modelDoneIn{w.work.gen, tooLong()}) // with nothing to summarise
	w.expect("agent_start", "turn_start prompt", "message_start user", "message_end user ", "turn_end error",
		"agent_end error")
}

// A summary that the provider refuses for its length is asked for from less: a
// model may read far less than anybody said.
func TestASummaryThatIsTooLongIsMadeFromLess(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		w.turn(3000)
	}
	w.prompt("and now?")
	w.step(modelDoneIn{w.work.gen, tooLong()})
	for range maxOverflows {
		before := session.Tokens(w.summary().Messages)
		w.step(modelDoneIn{w.work.gen, tooLong()})
		if n := session.Tokens(w.summary().Messages); n > before/2 {
			t.Fatalf("asked for a summary of %d tokens when %d were refused", n, before)
		}
	}
	w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd})
	w.say(model.Delta{Text: "this", Stop: model.StopEnd})
	if end, ok := w.events[len(w.events)-1].(protocol.AgentEnd); !ok || end.StopReason != "completed" {
		t.Errorf("got %+v", w.events[len(w.events)-1])
	}
}

// A turn that came to nothing is a turn: the next one does not carry it for ever.
func TestATurnThatWasTooLongDoesNotWedgeTheSession(t *testing.T) {
	w := newWorld(t)
	w.prompt(strings.Repeat("far too long", 1000))
	w.step(modelDoneIn{w.work.gen, tooLong()})
	w.prompt("and now?")
	w.step(modelDoneIn{w.work.gen, tooLong()})
	w.summary()
	w.say(model.Delta{Text: "too much was said", Stop: model.StopEnd})
	w.say(model.Delta{Text: "this", Stop: model.StopEnd})
	if end := w.events[len(w.events)-1].(protocol.AgentEnd); end.StopReason != "completed" {
		t.Errorf("got %+v", end)
	}
}

// What a request has beside the conversation counts for the window, and not for
// what of the conversation is kept.
func TestALargeSystemPromptIsNoReasonNotToCompact(t *testing.T) {
	w := small(t)
	for range 3 {
		w.prompt(strings.Repeat("word", 30))
		w.say(model.Delta{Text: strings.Repeat("word", 30)},
			model.Delta{Stop: model.StopEnd, Usage: model.Usage{InputTokens: 700, OutputTokens: 30}})
	}
	w.prompt(strings.Repeat("word", 30))
	w.say(model.Delta{Text: strings.Repeat("word", 30)},
		model.Delta{Stop: model.StopEnd, Usage: model.Usage{InputTokens: 900, OutputTokens: 30}})
	w.summary()
	before, fixed := w.m.s.Tokens(), w.m.s.Fixed()
	w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd})
	if after := w.m.s.Tokens(); fixed < 600 || w.m.s.Fixed() != fixed || after >= before || after < fixed {
		t.Errorf("%d tokens, %d of them fixed, became %d, %d of them fixed", before, fixed, after, w.m.s.Fixed())
	}
}

func TestAnOverflowWhileTheDaemonStopsIsMetAtTheNextStart(t *testing.T) {
	w := newWorld(t)
	w.turn(3000)
	w.prompt("and now?")
	w.step(drainIn{})
	w.step(modelDoneIn{w.work.gen, tooLong()})
	if w.m.phase != parked {
		t.Fatalf("the run is not parked:\n%s", w.story())
	}
	w.restart(nil)
	w.step(modelDoneIn{w.work.gen, tooLong()})
	w.summary()
}

// A compaction by hand holds nobody up: a prompt is accepted, and answered when
// the summary is there; an abort ends it.
func TestACompactionByHandHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	w.turn(300)
	w.turn(300)
	w.step(compactIn{w.client("compact"), ""})
	w.summary()
	w.events = nil
	w.step(promptIn{w.client("prompt"), protocol.PromptParams{Text: "go on"}, false, nil, nil})
	w.expect("agent_start", "turn_start prompt", "message_start user", "message_end user ")
	w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd})
	if got := w.messages(); !got[0].Summary || got[len(got)-1].Text != "go on" {
		t.Errorf("the model is asked with %+v", got)
	}
	w.finish()

	w.step(compactIn{w.client("compact"), ""})
	w.summary()
	w.step(abortIn{nil, ""})
	if w.m.phase != idle || w.refused == nil || !strings.Contains(w.refused.Error(), "aborted: ") {
		t.Errorf("phase %v, refused with %v", w.m.phase, w.refused)
	}
	w.finish()
}

func TestAnAbortEndsACompactionOfARun(t *testing.T) {
	w := newWorld(t)
	w.turn(3000)
	w.prompt("and now?")
	w.step(modelDoneIn{w.work.gen, tooLong()})
	w.step(queueIn{w.client("steer"), protocol.KindSteer, protocol.SteerParams{Text: "no"}, nil})
	w.step(promptIn{w.client("prompt"), protocol.PromptParams{Text: "p"}, false, nil, nil})
	if w.refused == nil || !strings.Contains(w.refused.Error(), "run_in_progress") {
		t.Errorf("got %v, want run_in_progress", w.refused)
	}
	w.events = nil
	w.step(abortIn{w.client("abort"), ""})
	w.finish()
	w.expect("status abort_requested", "turn_end aborted", "agent_end aborted")
}

func TestACompactionThatACrashInterruptsIsMadeAgain(t *testing.T) {
	for _, full := range []bool{true, false} {
		w := small(t)
		w.turn(500)
		if w.prompt(strings.Repeat("word", 250)); full {
			w.say(model.Delta{Text: strings.Repeat("word", 300), Stop: model.StopEnd})
		} else {
			w.step(modelDoneIn{w.work.gen, tooLong()})
		}
		w.summary()
		w.restart(nil)
		if !full {
			w.step(modelDoneIn{w.work.gen, tooLong()})
		}
		w.summary()
		w.say(model.Delta{Text: "they spoke", Stop: model.StopEnd})
		w.finish()
		if w.path()[0].Body().Compaction == nil {
			t.Errorf("full %t: no compaction", full)
		}
	}
}

func TestTheModelOfASession(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	choice := model.Choice{Provider: "openai", Name: "m", ContextWindow: 8000}
	w.step(modelIn{w.client("model"), choice})
	if w.work.call.choice != w.own {
		t.Errorf("the call under way goes to %+v", w.work.call.choice)
	}
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
	if w.work.call.choice != choice {
		t.Errorf("the next call goes to %+v", w.work.call.choice)
	}
	w.finish()
	w.restart(nil)
	if st := w.m.state(); st.Model.Name != "m" || st.Context.Window != 8000 {
		t.Errorf("after a restart: %+v, %+v", st.Model, st.Context)
	}
	var by []string
	for _, e := range w.path() {
		by = append(by, e.Body().Model)
	}
	if fmt.Sprint(by) != "[ test  m]" {
		t.Errorf("the messages are by %q", by)
	}
	w.step(modelIn{w.client("model"), model.Choice{}})
	if st := w.m.state(); st.Model.Name != "test" {
		t.Errorf("taken back: %+v", st.Model)
	}
}

func TestASummaryMindsTheInstruction(t *testing.T) {
	w := small(t)
	w.turn(400)
	w.turn(300)
	w.step(compactIn{w.client("compact"), "keep the names"})
	if system := w.summary().System; !strings.HasPrefix(system, "Summarise the conversation.") ||
		!strings.HasSuffix(system, "\n\nkeep the names") {
		t.Errorf("got %q, want the instruction below what every summary is asked for with", system)
	}
}

package runloop

import (
	"slices"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// What was told to begin is told to end, however its run comes to its end (wire-v1 §4, invariant 3).

// An abort of a run that was left where it was, as the daemon is stopping, ends it in the next one: this one ended
// its turn inside a message, or a call (found by the simulator).
func TestAnAbortWhileTheDaemonStopsLeavesNothingOpen(t *testing.T) {
	for name, begin := range map[string]func(*world){
		"a message": func(w *world) { w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}}) },
		"a call":    func(w *world) { w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			begin(w)
			w.step(drainIn{})
			w.step(drainNowIn{})
			w.step(abortIn{})
			w.boot()
			w.finish()
			if got := w.types(); got[len(got)-1] != "agent_end aborted" {
				t.Errorf("got %q, want the run aborted", got)
			}
		})
	}
}

// delegates has the model call agent.
func (w *world) delegates(arguments string) {
	w.say(model.Delta{ToolCall: &model.ToolCall{Name: agentTool, Arguments: []byte(arguments)}},
		model.Delta{Stop: model.StopToolCalls})
}

// A call whose child works in the background, and whose answer was torn off the journal, is answered before its run
// ends in another way (found by the simulator).
func TestACallInTheBackgroundWhoseAnswerWasTorn(t *testing.T) {
	for name, c := range map[string]struct {
		crashes int
		abort   bool
		end     protocol.StopReason
	}{
		"given up": {crashes: maxCrashes - 1, end: protocol.StopError},
		"aborted":  {abort: true, end: protocol.StopAborted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			for range c.crashes {
				w.boot()
			}
			heard := len(w.events)
			w.delegates(`{"prompt":"x","background":true}`)
			torn := slices.IndexFunc(w.records, func(r session.Record) bool {
				_, ok := r.Fact.(session.ToolStarted)
				return ok
			})
			w.records, w.checker = w.records[:torn+1], nil // nobody has heard of it
			if run := w.m.s.Run.ID; c.abort {
				w.records = append(w.records, session.Record{At: w.clock, Fact: session.AbortRequested{RunID: run}})
			}
			w.events = w.events[:heard]
			w.boot()
			w.events = w.events[heard:]
			w.expect("status run_resumed", "tool_execution_update", "tool_execution_end ok=true skipped=false",
				"turn_end "+string(c.end), "agent_end "+string(c.end))
		})
	}
}

// A call that somebody has allowed and whose child was begun has that child after a restart, also where its beginning
// was torn off the journal: it was decided again, and had a second one, or was refused (found by the simulator).
func TestAnAllowedCallHasOneChildAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.may = map[string]string{agentTool: model.Ask}
	w.prompt("go")
	w.delegates(`{"prompt":"x"}`)
	heard := len(w.events)
	w.step(answerIn{w.client("approve"), "apr-1-ses-1", protocol.OptionOnce, "", person{}, nil})
	begun := func(r session.Record) bool { _, ok := r.Fact.(session.ChildStarted); return ok }
	torn := slices.IndexFunc(w.records, begun)
	if torn < 0 {
		t.Fatalf("it has no child: %s", w.story())
	}
	w.records, w.checker, w.events = w.records[:torn+1], nil, w.events[:heard]
	w.boot()
	if w.work.child == nil {
		t.Errorf("nobody waits for the child: %+v", w.work)
	}
	if slices.ContainsFunc(w.records[torn+1:], begun) {
		t.Error("the call has a second child")
	}
}

// A run that is given up while it waits for children stops them, and the call that is told ends before the run does.
// Nothing goes on in a child that nobody waits for.
func TestARunThatIsGivenUpEndsTheCallsOfItsChildren(t *testing.T) {
	for children := 1; children <= 2; children++ {
		w := newWorld(t)
		w.prompt("go")
		var said []model.Delta
		for range children {
			said = append(said, model.Delta{ToolCall: &model.ToolCall{Name: agentTool, Arguments: []byte(`{"prompt":"x"}`)}})
		}
		w.say(append(said, model.Delta{Stop: model.StopToolCalls})...)
		for range maxFaults + 1 {
			w.bootAs(resumeIn{fault: true})
		}
		for n := range children {
			if w.m.s.Run == nil || w.work.child == nil {
				t.Fatalf("nobody waits for child %d of %d\n%s", n+1, children, w.story())
			}
			w.step(childDoneIn{w.work.gen, childEnd{stop: protocol.StopAborted}, model.Failed("aborted", "stopped")})
		}
		got := w.types()
		want := []string{"tool_execution_end ok=false skipped=false", "turn_end error", "agent_end error"}
		if n := len(got) - len(want); n < 0 || !slices.Equal(got[n:], want) {
			t.Errorf("%d children: got %q, want %q at the end", children, got, want)
		}
	}
}

package runloop

import (
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A run that has reached a limit asks before its next call of the model; without a
// yes it ends, with words that say which and what to do; texts that waited are handed back, and the
// next prompt may use as much again, unless it was the day's.
func TestLimits(t *testing.T) {
	used := model.Usage{InputTokens: 900, OutputTokens: 100, Cost: 25_000_000}
	for name, c := range map[string]struct {
		limits Limits
		today  int64
		want   string // of the error; "" is none
		next   bool   // the next prompt calls the model
	}{
		"none":        {Limits{}, 1 << 60, "", true},
		"not reached": {Limits{RunTokens: 1001, RunCost: 25_000_001, DayCost: 2}, 1, "", true},
		"tokens": {
			Limits{RunTokens: 1000},
			0,
			"the run has used 1000 tokens, and run_tokens in [limits] is 1000; the next prompt", true,
		},
		"cost": {
			Limits{RunCost: 20_000_000},
			0,
			"the run has cost 0.025 USD, and run_cost in [limits] is 0.02; the next prompt", true,
		},
		"the day's": {
			Limits{DayCost: 3_500_000_000},
			4_000_000_000,
			"today has cost 4 USD, and day_cost in [limits] is 3.5; go on tomorrow", false,
		},
		"the first one": {Limits{RunTokens: 1, RunCost: 1, DayCost: 1}, 1, "run_tokens", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.m.limits = c.limits
			w.step(promptIn{p: protocol.PromptParams{Text: "go on"}})
			w.step(queueIn{kind: "follow_up", p: protocol.SteerParams{Text: "and then"}})
			w.m.today = c.today
			w.step(deltaIn{w.m.gen, model.Delta{ToolCall: &model.ToolCall{ID: "c", Name: "ls"}}})
			w.step(deltaIn{w.m.gen, model.Delta{Stop: model.StopToolCalls, Usage: used}})
			w.step(modelDoneIn{gen: w.m.gen})
			w.step(toolDoneIn{w.m.gen, model.ToolResult{OK: true, Text: "a"}})
			if c.want == "" {
				if w.m.phase != streaming {
					t.Fatalf("the model is not called again: %s", w.story())
				}
				return
			}
			asked := w.m.question()
			reached, _, _ := strings.Cut(c.want, ";") // the rest is for a run that has ended
			if asked == nil || asked.Kind != protocol.ApprovalBudget || !strings.Contains(asked.Reason, reached) ||
				strings.Contains(asked.Reason, ";") {
				t.Fatalf("asks %+v, want whether the run goes on: %s", asked, reached)
			}
			w.step(answerIn{approvalID: asked.ApprovalID, option: protocol.OptionDeny})
			end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
			if !ok || end.Error == nil || end.Error.Code != "budget" || !strings.Contains(end.Error.Message, c.want) {
				t.Fatalf("got %+v, want the error budget with %s\n%s", end.Error, c.want, w.story())
			}
			if len(end.Discarded) != 1 || end.Usage.Cost.Amount != 0.025 || end.Usage.Cost.Currency != "USD" {
				t.Errorf("got %+v, want the text that waited, and the cost", end)
			}
			w.step(promptIn{p: protocol.PromptParams{Text: "again"}})
			if called := w.m.phase == streaming; called != c.next {
				t.Errorf("the next prompt calls the model: %t, want %t", called, c.next)
			}
		})
	}
}

// A run that may go on may use as much again, after a restart too, and is asked
// again then; where nobody is to be asked it ends at once.
func TestARunGoesOnPastALimit(t *testing.T) {
	w := newWorld(t)
	w.m.limits = Limits{RunTokens: 100}
	spend := func() {
		w.step(deltaIn{w.m.gen, model.Delta{ToolCall: &model.ToolCall{ID: "c", Name: "t.x"}}})
		w.step(deltaIn{w.m.gen, model.Delta{Stop: model.StopToolCalls, Usage: model.Usage{InputTokens: 60}}})
		w.step(modelDoneIn{gen: w.m.gen})
		w.step(toolDoneIn{w.m.gen, model.ToolResult{OK: true, Text: "a"}})
	}
	w.prompt("go on")
	spend()
	spend()
	w.step(answerIn{approvalID: w.m.question().ApprovalID, option: protocol.OptionContinue})
	if w.m.phase != streaming {
		t.Fatalf("the run does not go on\n%s", w.story())
	}
	w.boot()
	w.m.limits = Limits{RunTokens: 100}
	spend()
	if w.m.phase != streaming {
		t.Fatalf("asks at 180 tokens, and had leave to use 100 more at 120\n%s", w.story())
	}
	spend()
	if w.m.question() == nil {
		t.Fatalf("does not ask at 240 tokens\n%s", w.story())
	}
	w.step(approvalModeIn{mode: protocol.ApprovalsDeny})
	w.step(answerIn{approvalID: w.m.question().ApprovalID, option: protocol.OptionContinue})
	spend()
	spend()
	if w.m.s.Run != nil || w.m.s.LastRun.Code != protocol.OverBudget {
		t.Errorf("waits for somebody in a session that asks nobody\n%s", w.story())
	}
}

// A leave to go on past the day's limit is for that day: tomorrow the run is asked again, once as much was spent.
func TestALeaveForTheDayEndsAtMidnight(t *testing.T) {
	w := newWorld(t)
	w.m.limits, w.m.today = Limits{DayCost: 100}, 0
	spend := func(today int64) {
		w.step(deltaIn{w.m.gen, model.Delta{ToolCall: &model.ToolCall{ID: "c", Name: "t.x"}}})
		w.m.today = today
		w.step(deltaIn{w.m.gen, model.Delta{Stop: model.StopToolCalls}})
		w.step(modelDoneIn{gen: w.m.gen})
		w.step(toolDoneIn{w.m.gen, model.ToolResult{OK: true, Text: "a"}})
	}
	w.prompt("go on")
	spend(100)
	w.step(answerIn{approvalID: w.m.question().ApprovalID, option: protocol.OptionContinue})
	spend(199)
	if w.m.phase != streaming {
		t.Fatalf("asks after 99 of the 100 more\n%s", w.story())
	}
	w.clock = w.clock.AddDate(0, 0, 1)
	spend(99)
	if w.m.phase != streaming {
		t.Fatalf("asks after 99 of the day's 100\n%s", w.story())
	}
	spend(100)
	if w.m.question() == nil {
		t.Fatalf("goes on past the limit of another day than that of the leave\n%s", w.story())
	}
}

// What a run has cost is in the journal: after a restart it has cost as much, and
// ends where it was to end.
func TestALimitOutlivesARestart(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: protocol.PromptParams{Text: "go on"}})
	w.step(deltaIn{w.m.gen, model.Delta{ToolCall: &model.ToolCall{ID: "c", Name: "ls"}}})
	w.step(deltaIn{w.m.gen, model.Delta{Stop: model.StopToolCalls, Usage: model.Usage{InputTokens: 5, Cost: 7}}})
	w.step(modelDoneIn{gen: w.m.gen})
	s := session.NewState()
	for _, r := range w.records {
		if err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	w.m = &machine{s: s, maxSteps: 50, limits: Limits{RunCost: 7}, newID: w.m.newID}
	w.step(resumeIn{})
	w.step(answerIn{approvalID: w.m.question().ApprovalID, option: protocol.OptionDeny})
	if end, ok := w.events[len(w.events)-1].(protocol.AgentEnd); !ok || end.Error == nil || end.Error.Code != "budget" {
		t.Errorf("got %s, want the run to end at its limit", w.story())
	}
}

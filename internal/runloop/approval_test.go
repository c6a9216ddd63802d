package runloop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// asking brings a world to where it asks whether t.y may be called, with a second
// call behind it.
func asking(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.prompt("do it")
	w.say(
		model.Delta{ToolCall: &model.ToolCall{Name: "t.y", Arguments: []byte(`{"n":1.50,"b":"a  b","a":1}`)}},
		toolCall("t.x"), model.Delta{Stop: model.StopToolCalls},
	)
	if w.m.phase != waiting || w.work.tool != nil {
		t.Fatalf("the call does not wait for an answer\n%s", w.story())
	}
	return w
}

func (w *world) answerWith(option, reason string) {
	w.step(answerIn{
		w.client("approve"), w.m.question().ApprovalID, option, reason,
		person{pid: 7, uid: 1000, comm: "nous"},
		nil,
	})
}

func (w *world) refusedBy(reason protocol.Reason) bool {
	var e *protocol.Error
	return errors.As(w.refused, &e) && e.Reason() == reason
}

// What was asked about runs, byte for byte; the first answer counts, the same
// again is accepted, another is refused.
func TestAQuestionIsAnsweredOnce(t *testing.T) {
	w := asking(t)
	asked := w.m.question()
	if got := string(asked.Arguments); got != `{"n":1.50,"b":"a  b","a":1}` || asked.ApprovalID != "apr-1-ses-1" ||
		asked.ToolName != "t.y" {
		t.Errorf("asks %+v with %s", asked, got)
	}
	for _, c := range []struct {
		id, option string
		want       protocol.Reason
	}{{"apr-9-ses-1", protocol.OptionOnce, protocol.NoSuchApproval}, {asked.ApprovalID, "maybe", ""}} {
		w.refused = nil
		w.step(answerIn{w.client("approve"), c.id, c.option, "", person{}, nil})
		if w.refused == nil || c.want != "" && !w.refusedBy(c.want) || w.m.phase != waiting {
			t.Errorf("%s %s: got %v, want it refused and the question open", c.id, c.option, w.refused)
		}
	}
	w.answerWith(protocol.OptionOnce, "")
	if w.work.tool == nil || string(w.work.tool.Arguments) != string(asked.Arguments) || !w.work.tool.Allowed {
		t.Fatalf("runs %+v, asked was about %s", w.work.tool, asked.Arguments)
	}
	w.refused = nil
	w.step(answerIn{w.client("again"), asked.ApprovalID, protocol.OptionOnce, "", person{}, nil})
	if w.refused != nil {
		t.Errorf("the same answer again is refused: %v", w.refused)
	}
	w.step(answerIn{w.client("another"), asked.ApprovalID, protocol.OptionDeny, "", person{}, nil})
	if !w.refusedBy(protocol.ApprovalResolved) {
		t.Errorf("another answer gets %v, want approval_resolved", w.refused)
	}
	w.finish()
}

// A question is about the call with what its tool fills in, over a restart too, and that
// is what runs. Where the tool would fill in something else by then, it does not run.
func TestWhatAToolFillsInIsAskedAbout(t *testing.T) {
	for _, changed := range []bool{false, true} {
		const filled = `{"n":1.50,"b":"a  b","a":1,"deep":true}`
		w := newWorld(t)
		w.defaults = map[string]string{"t.y": filled}
		w.prompt("do it")
		w.say(model.Delta{ToolCall: &model.ToolCall{Name: "t.y", Arguments: []byte(`{"n":1.50,"b":"a  b","a":1}`)}},
			model.Delta{Stop: model.StopToolCalls})
		w.boot()
		if got := w.m.question(); got == nil || string(got.Arguments) != filled {
			t.Fatalf("asks about %+v, want %s", got, filled)
		}
		if changed {
			w.defaults["t.y"] = `{"n":1.50,"b":"a  b","a":1,"deep":false}`
		}
		w.answerWith(protocol.OptionOnce, "")
		if runs := w.work.tool; changed != (runs == nil) || runs != nil && string(runs.Arguments) != filled {
			t.Errorf("changed %t: runs %+v", changed, runs)
		}
		w.finish()
	}
}

// A yes is for the file that the path led to when it was asked for, over a restart too. A
// link that leads elsewhere since is no way to another.
func TestAYesIsForTheFileThatWasAskedAbout(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		w := asking(t)
		if got := w.m.question().Path; got != "" {
			t.Errorf("says that it leads to %s, and no link is on its way", got)
		}
		w.boot()
		if swapped {
			w.moved = "/elsewhere"
		}
		w.answerWith(protocol.OptionOnce, "")
		switch {
		case !swapped && (w.work.tool == nil || w.work.tool.Path != "/where/t.y"):
			t.Errorf("runs %+v, want it to be about what was asked", w.work.tool)
		case swapped && w.work.tool != nil && w.work.tool.Name == "t.y":
			t.Errorf("runs on %s, asked was about /where/t.y", w.work.tool.Path)
		case swapped && !strings.Contains(w.story(),
			"the path leads to /elsewhere/where/t.y now, and led to /where/t.y when the user was asked"):
			t.Errorf("the model does not learn why\n%s", w.story())
		}
		w.finish()
	}
	w := newWorld(t)
	w.moved = "/elsewhere"
	w.prompt("do it")
	w.say(toolCall("t.y"), model.Delta{Stop: model.StopToolCalls})
	if got := w.m.question(); got == nil || got.Path != "/elsewhere/where/t.y" {
		t.Errorf("asks %+v, want that it says where the link leads", got)
	}
	w.answerWith(protocol.OptionDeny, "")
	w.finish()
}

// A no is a result that the model reads; the calls behind it go on.
func TestADenialIsAResult(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world)
		want string
	}{
		"with a reason": {func(w *world) {
			w.answerWith(protocol.OptionDeny, "use the other branch")
		}, "denied: use the other branch"},
		"without": {func(w *world) {
			w.answerWith(protocol.OptionDeny, "")
		}, "denied: the user does not allow this call"},
		"nobody in time": {func(w *world) { w.step(lateIn{"apr-1-ses-1"}) }, "denied: nobody answered in time"},
		"forbidden by now": {func(w *world) {
			w.may["t.y"] = model.Deny
			w.answerWith(protocol.OptionOnce, "")
		}, "forbidden: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := asking(t)
			c.end(w)
			i := slices.IndexFunc(w.events, func(ev protocol.Event) bool { return ev.Type() == "tool_execution_end" })
			if end, ok := w.events[max(i, 0)].(protocol.ToolEnd); !ok || end.OK || !strings.HasPrefix(end.Result, c.want) {
				t.Errorf("got %+v, want the result %q\n%s", end, c.want, w.story())
			}
			if w.work.tool == nil || w.work.tool.Name != "t.x" {
				t.Errorf("the next call is not made\n%s", w.story())
			}
			w.finish()
		})
	}
}

// Orchestrators have a say in calls beside the rules: the strictest counts.
func TestTheStrictestOfRulesAndOrchestratorsCounts(t *testing.T) {
	for _, c := range []struct {
		tool  string
		guard model.Verdict
		want  phase
		says  string
	}{
		{"t.x", model.Verdict{}, calling, ""},
		{"t.x", model.Verdict{Decision: model.Ask, Rule: "ask: orchestrator o"}, waiting, ""},
		{
			"t.x",
			model.Verdict{Decision: model.Deny, Code: model.Forbidden, Why: "orchestrator o: no"},
			streaming,
			"forbidden: orchestrator o: no",
		},
		{"t.y", model.Verdict{}, waiting, ""},
		{"t.y", model.Verdict{Decision: model.Deny, Code: model.Forbidden, Why: "no"}, streaming, "forbidden: no"},
	} {
		w := newWorld(t)
		w.guarded = true
		w.prompt("do it") // the next message is the third
		w.m.s.Messages = 2
		w.say(toolCall(c.tool), model.Delta{Stop: model.StopToolCalls})
		if w.m.phase != looking || len(w.runs) > 0 {
			t.Fatalf("%s: the orchestrators are not asked\n%s", c.tool, w.story())
		}
		w.step(lookedIn{w.work.gen, "", c.guard})
		if w.m.phase != c.want || w.lastResult() != c.says {
			t.Errorf("%s, %+v: got phase %d and %q, want %d and %q", c.tool, c.guard, w.m.phase, w.lastResult(), c.want, c.says)
		}
		w.guarded = false
		w.finish()
	}
	for mode, want := range map[protocol.ApprovalMode]phase{
		protocol.ApprovalsAuto: calling,
		protocol.ApprovalsDeny: streaming,
	} {
		w := newWorld(t)
		w.guarded = true
		w.prompt("do it")
		w.m.s.Messages = 2
		w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
		w.step(approvalModeIn{mode: mode}) // while they are asked
		w.step(lookedIn{w.work.gen, "", model.Verdict{Decision: model.Ask}})
		if w.m.phase != want {
			t.Errorf("mode %s: got phase %d, want %d", mode, w.m.phase, want)
		}
		w.guarded = false
		w.finish()
	}
	for name, c := range map[string]struct {
		in   input
		want phase
	}{
		"the tool is switched off": {toolsIn{tools: []string{}}, streaming}, "the daemon stops": {drainIn{}, parked},
		"it is aborted": {abortIn{}, idle},
	} {
		w := newWorld(t)
		w.guarded = true
		w.prompt("do it")
		w.m.s.Messages = 2
		w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
		gen := w.work.gen
		w.step(c.in)
		w.step(lookedIn{gen, "", model.Verdict{}})
		if w.m.phase != c.want || len(w.runs) > 0 {
			t.Errorf("%s while they are asked: got phase %d, want %d; calls %v", name, w.m.phase, c.want, w.runs)
		}
	}
}

// What makes an answer needless withdraws the question (approvals.md §3).
func TestAQuestionIsWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		in   input
		want string
	}{
		"abort": {abortIn{}, "abort"},
		"steer": {queueIn{kind: protocol.KindSteer, p: protocol.SteerParams{Text: "no"}}, "steer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := asking(t)
			w.step(c.in)
			if got := w.resolution(); got != "withdrawn by "+c.want {
				t.Errorf("got %q, want it withdrawn by %s\n%s", got, c.want, w.story())
			}
			if len(w.runs) > 0 {
				t.Errorf("calls were made: %v", w.runs)
			}
			w.step(answerIn{w.client("late"), "apr-1-ses-1", protocol.OptionOnce, "", person{}, nil})
			if !w.refusedBy(protocol.ApprovalResolved) || len(w.runs) > 0 {
				t.Errorf("an answer after that gets %v, calls %v", w.refused, w.runs)
			}
			w.finish()
		})
	}
	w := asking(t)
	w.step(queueIn{kind: protocol.KindFollowUp, p: protocol.SteerParams{Text: "then"}})
	if w.m.phase != waiting {
		t.Errorf("a follow-up does not wait\n%s", w.story())
	}
	w.finish()
}

func (w *world) resolution() string {
	for _, ev := range slices.Backward(w.events) {
		if st, ok := ev.(protocol.Status); ok && st.Code == protocol.StatusApprovalResolved {
			return fmt.Sprintf("%s by %s", st.Outcome, strings.Trim(string(st.By), `"`))
		}
	}
	return ""
}

// A daemon that stops parks a run that waits at once; an answer that still comes
// is kept. The next daemon asks the same, or what was answered is done.
func TestADrainParksAQuestion(t *testing.T) {
	for _, answered := range []bool{false, true} {
		w := asking(t)
		w.step(drainIn{})
		if w.m.phase != parked || !w.m.resting() {
			t.Fatalf("a run that waits is not parked at once\n%s", w.story())
		}
		if answered {
			w.answerWith(protocol.OptionOnce, "")
			if w.work.tool != nil {
				t.Fatal("a call is made while the daemon stops")
			}
		}
		w.restart(nil)
		if got := w.m.phase == calling; got != answered {
			t.Errorf("answered %t: the call is made after the restart: %t\n%s", answered, got, w.story())
		}
		if w.m.s.Run.Crashes != 0 {
			t.Errorf("counted as %d crashes", w.m.s.Run.Crashes)
		}
		w.finish()
	}
}

// Killed after each record of a life with questions: the same question is open
// again, one that was answered is not, no call is made twice or without a yes, and
// waiting is no crash however often the daemon is killed.
func TestKilledAfterEachRecord(t *testing.T) {
	whole := asking(t)
	whole.answerWith(protocol.OptionSession, "")
	whole.finish()
	asked := slices.IndexFunc(whole.records, func(r session.Record) bool {
		_, ok := r.Fact.(session.ApprovalAsked)
		return ok
	})
	for n := asked + 1; n <= len(whole.records); n++ {
		w := newWorld(t)
		w.checker, w.events = nil, nil // what was announced before is another life's
		w.records, w.ids = slices.Clone(whole.records[:n]), 1000
		for range 10 {
			w.restart(nil)
			if w.m.phase != waiting {
				break
			}
		}
		_, decided := w.records[n-1].Fact.(session.ApprovalDecided)
		switch open := w.m.question(); {
		case n == asked+1 && (open == nil || open.ApprovalID != "apr-1-ses-1" || w.m.s.Run.Crashes != 0):
			t.Errorf("after the question: %+v, want it open", open)
		case n > asked+1 && open != nil:
			t.Errorf("after %T: asks %s again", w.records[n-1].Fact, open.ApprovalID)
		case decided && w.work.tool == nil:
			t.Errorf("after the answer: the call is not made")
		}
		w.finish()
		for id, times := range w.runs {
			if _, before := whole.runs[id]; before && times > 1 {
				t.Errorf("%s is made %d times", id, times)
			}
		}
	}
}

// An answer for the session holds over a restart, one for always is handed to
// anyone who keeps the rules; neither mode lifts what is denied.
func TestAnswersAndModesThatStay(t *testing.T) {
	w := asking(t)
	w.answerWith(protocol.OptionSession, "")
	w.finish()
	w.boot()
	again := func(tool string) {
		w.prompt("again")
		w.say(toolCall(tool), model.Delta{Stop: model.StopToolCalls})
	}
	if again("t.y"); w.m.phase != calling {
		t.Errorf("asks again in a session that has an answer\n%s", w.story())
	}
	w.finish()

	w = asking(t)
	w.answerWith(protocol.OptionAlways, "")
	if !slices.Equal(w.kept, []string{`"t.y"`}) {
		t.Errorf("got the rules %v, want the one of the option", w.kept)
	}

	w = newWorld(t)
	w.step(approvalModeIn{mode: protocol.ApprovalsAuto})
	if again("t.z"); !strings.HasPrefix(w.lastResult(), "forbidden: ") {
		t.Errorf("auto lifts a deny: %q", w.lastResult())
	}
	w.say(model.Delta{Text: "ok", Stop: model.StopEnd})
	if again("t.y"); w.m.phase != calling {
		t.Errorf("auto asks\n%s", w.story())
	}
	w.finish()
	w.boot()
	if w.m.s.ApprovalMode != protocol.ApprovalsAuto {
		t.Errorf("after a restart the mode is %s", w.m.s.ApprovalMode)
	}
	w.step(promptIn{nil, protocol.PromptParams{Text: "alone", Approvals: protocol.ApprovalsDeny}, false, nil, nil})
	w.boot() // the run goes on without anybody to ask
	w.say(toolCall("t.y"), model.Delta{Stop: model.StopToolCalls})
	if got := w.lastResult(); got != "denied: t.y needs your approval and there is no terminal; see --approvals" {
		t.Errorf("a run that asks nobody got %q", got)
	}
	w.finish()
	w.step(approvalModeIn{mode: protocol.ApprovalsDeny})
	w.prompt("go on")
	w.say(toolCall("t.y"), model.Delta{Stop: model.StopToolCalls})
	if got := w.lastResult(); !strings.HasPrefix(got, "denied: t.y needs your approval, and the approval mode of this") {
		t.Errorf("in a session that asks nobody it got %q", got)
	}
	w.finish()
}

// A daemon that is killed after an answer for always is on the disk has its rule
// kept by the next one: once it is, never again.
func TestARuleIsKeptOverAKill(t *testing.T) {
	whole := asking(t)
	whole.answerWith(protocol.OptionAlways, "")
	whole.finish()
	due, dues := 0, 0 // records from the answer on, until the rule is kept
	for n, r := range whole.records {
		switch f := r.Fact.(type) {
		case session.ApprovalDecided:
			due = min(1, len(f.Keep))
		case session.RuleKept:
			due = 0
		}
		dues += due
		w := newWorld(t)
		w.checker, w.records, w.ids = nil, slices.Clone(whole.records[:n+1]), 1000
		w.restart(nil)
		w.restart(nil)
		if len(w.kept) != due {
			t.Errorf("killed after %d records, the last %T: kept %v, want %d", n+1, r.Fact, w.kept, due)
		}
	}
	if dues < 2 {
		t.Errorf("the rule was due after %d records", dues)
	}
}

func (w *world) lastResult() string {
	for _, ev := range slices.Backward(w.events) {
		if end, ok := ev.(protocol.ToolEnd); ok {
			return end.Result
		}
	}
	return ""
}

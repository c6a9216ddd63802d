package runloop

import (
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
)

// withHooks is a session whose runs hooks may send back.
func withHooks(t *testing.T) *world {
	w := newWorld(t)
	w.hooked = true
	return w
}

func (w *world) asksHooks(output string) {
	w.t.Helper()
	if w.work.stop == nil || w.work.stop.output != output {
		w.t.Fatalf("%+v is under way, want the hooks asked about %q\n%s", w.work, output, w.story())
	}
}

// The text of a hook is a turn of the run, which is sent back once.
func TestARunIsSentBackOnce(t *testing.T) {
	w := withHooks(t)
	w.prompt("go")
	w.answers(done())
	w.asksHooks("so")
	w.step(stopCheckedIn{w.work.gen, "tests fail", []string{"the hook lint failed"}})
	if told := w.warnings("hook_failed"); len(told) != 1 || told[0] != "the hook lint failed" {
		t.Errorf("warned %q", told)
	}
	messages := w.messages()
	if last := messages[len(messages)-1]; last.Role != model.User || !strings.HasSuffix(last.Text, "tests fail") {
		t.Errorf("the model reads %+v", last)
	}
	w.restart(nil) // that it was sent back is a fact
	w.answers(model.Delta{Text: "better"}, model.Delta{Stop: model.StopEnd})
	w.ended("completed", "")
	if end := w.events[len(w.events)-1].(protocol.AgentEnd); end.Turns != 2 {
		t.Errorf("the run had %d turns", end.Turns)
	}
	w.prompt("again")
	w.answers(done())
	w.asksHooks("so")
	w.step(stopCheckedIn{w.work.gen, "", nil})
	w.ended("completed", "")
}

// What comes while the hooks are asked is delivered first, a steer at once; an abort ends the
// run; after a crash they are asked again, and so they are by the next daemon.
func TestWhatComesWhileHooksAreAsked(t *testing.T) {
	for name, play := range map[string]func(w *world){
		"steer": func(w *world) {
			w.step(queueIn{w.client("steer"), protocol.KindSteer, protocol.SteerParams{Text: "and that"}, nil})
			w.answers(done())
			w.asksHooks("so")
			w.step(stopCheckedIn{w.work.gen, "", nil})
			w.ended("completed", "")
		},
		"follow-up": func(w *world) {
			w.step(queueIn{w.client("follow_up"), protocol.KindFollowUp, protocol.SteerParams{Text: "and that"}, nil})
			w.asksHooks("so")
			w.step(stopCheckedIn{w.work.gen, "tests fail", nil})
			w.answers(done())
			w.asksHooks("so")
			w.step(stopCheckedIn{w.work.gen, "", nil})
			w.ended("completed", "")
		},
		"abort": func(w *world) {
			w.step(abortIn{w.client("abort"), ""})
			w.ended("aborted", "")
		},
		"crash": func(w *world) {
			w.restart(nil)
			w.asksHooks("so")
			w.step(stopCheckedIn{w.work.gen, "", nil})
			w.ended("completed", "")
		},
		"drain": func(w *world) {
			w.step(drainIn{})
			if w.m.phase != parked {
				w.t.Fatalf("the run is not parked:\n%s", w.story())
			}
			w.restart(nil)
			w.asksHooks("so")
			w.step(stopCheckedIn{w.work.gen, "", nil})
			w.ended("completed", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := withHooks(t)
			w.t = t
			w.prompt("go")
			w.answers(done())
			w.asksHooks("so")
			play(w)
		})
	}
}

// A run that failed or was aborted ends without being asked about.
func TestHooksAreAskedOfRunsThatAreDone(t *testing.T) {
	w := withHooks(t)
	w.prompt("go")
	w.fails(rejected("what?"))
	for w.m.s.Run != nil {
		w.fails(rejected("what?"))
	}
	w.ended("error", "")
}

// A guard that failed denies, and is told.
func TestAGuardThatFailsIsTold(t *testing.T) {
	w := newWorld(t)
	w.prompt("call")
	w.m.judge = func(inv model.Invocation, _ string, _ [][]byte) model.Verdict {
		return model.Verdict{Decision: model.Allow, Guarded: true, Path: inv.Path}
	}
	w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	why := "the hook lint failed"
	w.step(lookedIn{w.work.gen, "", model.Verdict{Decision: model.Deny, Code: model.Forbidden, Why: why, Warning: why}})
	if told := w.warnings("hook_failed"); len(told) != 1 || told[0] != why {
		t.Errorf("warned %q", told)
	}
	if got := w.lastResult(); !strings.Contains(got, why) {
		t.Errorf("the model reads %q", got)
	}
}

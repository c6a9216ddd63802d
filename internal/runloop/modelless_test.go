package runloop

import (
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// Without a model nothing is accepted that only a model could answer.
func TestAPromptWithoutAModelIsRefused(t *testing.T) {
	for name, in := range map[string]input{
		"a prompt":             promptIn{nil, protocol.PromptParams{Text: "hi"}, false, nil, nil},
		"a steer, if idle":     queueIn{nil, protocol.KindSteer, protocol.SteerParams{Text: "hi", IfIdle: "prompt"}, nil},
		"a follow-up, if idle": queueIn{nil, protocol.KindFollowUp, protocol.SteerParams{Text: "hi", IfIdle: "prompt"}, nil},
	} {
		w := newWorld(t)
		w.own, w.gone = model.Choice{}, ""
		switch in := in.(type) {
		case promptIn:
			in.ticket = w.client(name)
			w.step(in)
		case queueIn:
			in.ticket = w.client(name)
			w.step(in)
		}
		w.refusedAs(protocol.NoModel)
		w.expect()
	}
}

// waits is a run whose model is gone before its call.
func waits(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.gone = "test"
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: "done"}})
	if info := w.m.info(); info.WaitingFor != protocol.WaitModel || info.RunState != protocol.StateRunning {
		t.Errorf("a run without its model is %s and waits for %q", info.RunState, info.WaitingFor)
	}
	last, ok := w.events[len(w.events)-1].(protocol.Status)
	if !ok || last.Code != protocol.StatusModelMissing || !strings.Contains(last.Message, "is gone") {
		t.Errorf("the last event is %+v", w.events[len(w.events)-1])
	}
	return w
}

// A run whose model cannot be asked waits, and goes on when it can, when another one is
// chosen, or in the next daemon.
func TestARunWaitsForItsModel(t *testing.T) {
	for name, does := range map[string]func(w *world){
		"the key is there again": func(w *world) { w.gone = "none"; w.step(modelsIn{}) },
		"another model is chosen": func(w *world) {
			w.step(modelIn{w.client("model"), model.Choice{Provider: "p", Name: "small"}})
		},
		"a daemon with the key": func(w *world) { w.gone = "none"; w.boot() },
		"a daemon without it": func(w *world) {
			w.boot()
			if w.m.phase != modelless {
				t.Errorf("the run does not wait in the next daemon")
			}
			w.gone = "none"
			w.step(modelsIn{})
		},
		"a daemon that has another model, and the key": func(w *world) {
			w.gone, w.own = "none", model.Choice{Provider: "offline", Name: "script"}
			w.boot()
			if got := w.work.call.choice.Name; got != "test" {
				t.Errorf("%s answers the run of another model", got)
			}
		},
	} {
		w := waits(t)
		told := len(w.events)
		w.step(modelsIn{}) // nothing has changed
		if len(w.events) != told {
			t.Errorf("%s: people are told again that it waits", name)
		}
		if w.m.phase != modelless {
			t.Errorf("%s: it waits no longer though its model is gone", name)
		}
		does(w)
		w.answers(model.Delta{Text: "done"}, model.Delta{Stop: model.StopEnd})
		if w.m.s.LastRun.StopReason != protocol.StopCompleted {
			t.Errorf("%s: the run ended %q", name, w.m.s.LastRun.StopReason)
		}
		w.finish()
	}
}

// A run that waits for its model ends when it is aborted, and holds up no stop of the daemon.
func TestARunThatWaitsForItsModelCanBeLeft(t *testing.T) {
	w := waits(t)
	w.step(queueIn{w.client("steer"), protocol.KindSteer, protocol.SteerParams{Text: "and"}, nil})
	w.step(abortIn{w.client("abort"), ""})
	if w.m.s.LastRun.StopReason != protocol.StopAborted {
		t.Errorf("it ended %q", w.m.s.LastRun.StopReason)
	}
	w.finish()

	w = waits(t)
	w.step(drainIn{})
	if !w.m.resting() {
		t.Error("a daemon that stops waits for the model, too")
	}
}

// A session goes on with the model that has answered in it, whatever the daemon's own is by
// then, until somebody chooses another.
func TestASessionKeepsTheModelThatAnsweredIt(t *testing.T) {
	w := newWorld(t)
	w.prompt("one")
	w.answers(model.Delta{Text: "1"}, model.Delta{Stop: model.StopEnd})
	w.own = model.Choice{Provider: "q", Name: "other"}
	w.boot()
	w.prompt("two")
	if got := w.work.call.choice; got.Name != "test" {
		t.Errorf("the second prompt is answered by %+v", got)
	}
	w.answers(model.Delta{Text: "2"}, model.Delta{Stop: model.StopEnd})
	w.step(modelIn{w.client("default"), model.Choice{}})
	w.prompt("three")
	if got := w.work.call.choice; got.Name != "other" {
		t.Errorf("after set_model default it is answered by %+v", got)
	}
	w.answers(model.Delta{Text: "3"}, model.Delta{Stop: model.StopEnd})
	named := 0
	for _, r := range w.records {
		if f, ok := r.Fact.(session.RunStarted); ok && f.Model.Provider != "" {
			named++
		}
	}
	if named != 2 {
		t.Errorf("%d runs name their model in the journal, want the first of each", named)
	}
	w.finish()
}

// The daemon's own model, chosen in the middle of a run, is the session's from then on: a
// daemon that starts with another one changes nothing.
func TestDefaultInTheMiddleOfARunIsRecordedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.prompt("one")
	w.step(modelIn{w.client("other"), model.Choice{Provider: "p", Name: "chosen"}})
	w.step(modelIn{w.client("default"), model.Choice{}})
	was := w.m.model()
	w.own = model.Choice{Provider: "q", Name: "other"}
	w.boot()
	if got := w.m.model(); got.Key() != was.Key() {
		t.Errorf("the next daemon asks %+v, want %+v", got, was)
	}
	w.answers(model.Delta{Text: "1"}, model.Delta{Stop: model.StopEnd})
	w.finish()
}

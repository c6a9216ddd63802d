package runloop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// turnedDown is a provider that refuses for good, and may say when to come again.
type turnedDown struct{ after time.Duration }

func (*turnedDown) Error() string               { return "402 Payment Required: no credit" }
func (*turnedDown) Unwrap() error               { return model.ErrGone }
func (g *turnedDown) RetryAfter() time.Duration { return g.after }

func noCredit(after time.Duration) error { return fmt.Errorf("api.test: %w", &turnedDown{after}) }

// withFallbacks is a session with two models that answer for its own.
func withFallbacks(t *testing.T) *world {
	w := newWorld(t)
	w.others = []model.Choice{{Provider: "q", Name: "second"}, {Provider: "r", Name: "third"}}
	return w
}

func (w *world) asksModel(name string) {
	w.t.Helper()
	if w.work.call == nil || w.work.call.choice.Name != name {
		w.t.Fatalf("%+v is under way, want %s asked\n%s", w.work, name, w.story())
	}
}

func (w *world) ended(stop protocol.StopReason, says string) {
	w.t.Helper()
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.StopReason != stop || says != "" && (end.Error == nil || !strings.Contains(end.Error.Message, says)) {
		w.t.Fatalf("got %+v, want the run ended as %s with %q", w.events[len(w.events)-1], stop, says)
	}
}

func done() (model.Delta, model.Delta) {
	return model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd}
}

// The next model answers for one that is refused; the first is asked again after ten minutes,
// and stays the session's.
func TestAFallbackAnswersForTenMinutes(t *testing.T) {
	w := withFallbacks(t)
	w.prompt("go")
	w.asksModel("test")
	w.fails(noCredit(0))
	w.asksModel("second")
	w.answers(done())
	w.ended("completed", "")
	if told := w.warnings("model_fallback"); len(told) != 1 || !strings.Contains(told[0],
		"p/test cannot answer, and q/second does for it; it is asked again in 10m0s: api.test: 402") {
		t.Errorf("warned %q", told)
	}
	if got := w.m.model().Name; got != "test" || w.m.s.Answered.Name == "second" {
		t.Errorf("the session's model is %q, and %+v has answered it", got, w.m.s.Answered)
	}
	w.clock = w.clock.Add(9 * time.Minute)
	w.prompt("and?")
	w.asksModel("second")
	w.answers(done())
	w.clock = w.clock.Add(time.Minute)
	w.prompt("and now?")
	w.asksModel("test")
}

// A provider says itself when it can be asked again; who chooses the model does not wait.
func TestAFallbackAnswersUntilTheProviderSays(t *testing.T) {
	w := withFallbacks(t)
	w.prompt("go")
	w.fails(noCredit(time.Hour))
	w.answers(done())
	w.clock = w.clock.Add(59 * time.Minute)
	w.prompt("and?")
	w.asksModel("second")
	w.answers(done())
	w.step(modelIn{nil, model.Choice{Provider: "p", Name: "test"}})
	w.prompt("and now?")
	w.asksModel("test")
}

// Nobody is asked twice for one answer, however soon a provider wants to be, and the run ends
// with what all of them said.
func TestEachModelIsAskedOnce(t *testing.T) {
	w := withFallbacks(t)
	w.prompt("go")
	for _, name := range []string{"test", "second", "third"} {
		w.asksModel(name)
		w.fails(fmt.Errorf("%s: %w", name, noCredit(time.Nanosecond)))
		w.clock = w.clock.Add(time.Second)
	}
	w.ended("error", "third: api.test: 402 Payment Required: no credit (and before that test: api.test: 402")
	w.prompt("again")
	w.asksModel("test")
	w.answers(done())
	w.ended("completed", "")
}

// An answer that broke off is ended as it is, and is in nobody's history: the next model
// begins anew.
func TestAFallbackRepeatsNothing(t *testing.T) {
	w := withFallbacks(t)
	w.prompt("go")
	for range maxAgain + 1 {
		w.asksModel("test")
		w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
		w.fails(fmt.Errorf("cut: %w", model.ErrPassing))
	}
	w.asksModel("second")
	for _, e := range w.path() {
		if e.Role == model.Assistant && !e.Broken() {
			t.Errorf("%+v is in the history", e)
		}
	}
	w.answers(done())
	w.ended("completed", "")
}

// What is wrong with the request, or what a model does not want to say, is no reason to ask
// another; nor is one asked whose key is missing.
func TestNoFallbackForARequestThatIsWrong(t *testing.T) {
	for name, err := range map[string]error{
		"rejected": rejected("what?"), "refused": fmt.Errorf("no: %w", model.ErrRefused), "other": fmt.Errorf("memory"),
	} {
		t.Run(name, func(t *testing.T) {
			w := withFallbacks(t)
			w.prompt("go")
			for w.m.s.Run != nil {
				w.asksModel("test")
				w.fails(err)
			}
			w.ended("error", "")
		})
	}
	w := withFallbacks(t)
	w.gone = "second"
	w.prompt("go")
	w.fails(noCredit(0))
	w.asksModel("third")
}

// After a crash the run asks the first again, and falls back again.
func TestAFallbackAfterACrash(t *testing.T) {
	w := withFallbacks(t)
	w.prompt("go")
	w.fails(noCredit(0))
	w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
	w.restart(nil)
	w.asksModel("test")
	w.fails(noCredit(0))
	w.asksModel("second")
	w.answers(done())
	w.ended("completed", "")
}

// A summary is made by the model that answers.
func TestAFallbackSummarises(t *testing.T) {
	w := withFallbacks(t)
	for range 3 {
		w.turn(30_000)
	}
	w.step(compactIn{w.client("compact"), ""})
	w.asksModel("test")
	w.fails(noCredit(0))
	w.asksModel("second")
	w.say(model.Delta{Text: "short"}, model.Delta{Stop: model.StopEnd})
	if !strings.Contains(w.story(), "compacted") {
		t.Errorf("nothing was summarised:\n%s", w.story())
	}
}

package runloop

import (
	"fmt"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
)

// Tokens that a provider has counted are paid for, however the answer ended.
func TestWhatAFailedAnswerCostCounts(t *testing.T) {
	used := model.Delta{Usage: model.Usage{InputTokens: 11, OutputTokens: 7}}
	for name, c := range map[string]struct {
		play func(w *world)
		want int64
	}{
		"a refusal without a word": {func(w *world) {
			w.step(deltaIn{w.work.gen, used})
			w.fails(fmt.Errorf("no: %w", model.ErrRefused))
		}, 11},
		"asked again before a word": {func(w *world) {
			w.step(deltaIn{w.work.gen, used})
			w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd, Usage: used.Usage})
		}, 22},
		"broken off and asked again": {func(w *world) {
			w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
			w.step(deltaIn{w.work.gen, used})
			w.fails(fmt.Errorf("cut: %w", model.ErrTruncated))
			w.answers(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd, Usage: used.Usage})
		}, 22},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			c.play(w)
			if end, ok := w.events[len(w.events)-1].(protocol.AgentEnd); !ok || end.Usage.InputTokens != c.want {
				t.Errorf("got %+v, want a run of %d tokens", w.events[len(w.events)-1], c.want)
			}
		})
	}
}

// What attempts that failed have cost says nothing of how long the conversation is.
func TestWhatFailedAttemptsCostIsNoContext(t *testing.T) {
	tokens := func(failed bool) int64 {
		w := newWorld(t)
		w.prompt("go")
		if failed {
			w.step(deltaIn{w.work.gen, model.Delta{Usage: model.Usage{InputTokens: 110_000, OutputTokens: 1}}})
		}
		w.answers(model.Delta{Text: "so"},
			model.Delta{Stop: model.StopEnd, Usage: model.Usage{InputTokens: 110_000, OutputTokens: 10}})
		return w.m.s.Tokens()
	}
	if got, want := tokens(true), tokens(false); got != want || want < 110_000 {
		t.Errorf("the conversation has %d tokens after a failed attempt, want %d", got, want)
	}
}

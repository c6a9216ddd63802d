package runloop

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// fates are what has happened to every text that a world's clients were promised, by
// input.
func (w *world) fates() map[string][]string {
	out := map[string][]string{}
	for _, id := range w.accepted {
		out[id] = nil
	}
	add := func(id, fate string) { out[id] = append(out[id], fate) }
	for _, in := range w.handedBack {
		add(in.InputID, "handed back")
	}
	for _, ev := range w.events {
		switch ev := ev.(type) {
		case protocol.TurnStart:
			for _, id := range ev.InputIDs {
				add(id, "delivered")
			}
		case protocol.AgentEnd:
			for _, in := range ev.Discarded {
				add(in.InputID, "handed back")
			}
		case protocol.Status:
			if ev.Code == protocol.StatusInputWithdrawn {
				add(ev.InputID, "withdrawn")
			}
		}
	}
	return out
}

// Whatever races with what, and wherever the daemon is killed: a text is
// delivered, handed back or withdrawn, exactly one of these and never none
// (folders.md §2).
func TestEveryTextHasOneFate(t *testing.T) {
	lives := testenv.Tries(10_000)
	seen := map[string]int{}
	for seed := range lives {
		rng := rand.New(rand.NewPCG(uint64(seed), 17))
		w := newWorld(t)
		for range 40 {
			switch rng.IntN(4) {
			case 0:
				kind := []protocol.Kind{protocol.KindSteer, protocol.KindFollowUp}[rng.IntN(2)]
				w.step(queueIn{w.client("queue"), kind, protocol.SteerParams{Text: "x", IfIdle: protocol.KindPrompt}, nil})
			case 1:
				if n := len(w.accepted); n > 0 {
					w.step(withdrawIn{w.client("withdraw"), w.accepted[n-1-rng.IntN(min(n, 5))]})
				}
			default:
				w.random(rng.IntN)
			}
			if rng.IntN(25) == 0 {
				w.restart(rng)
			}
		}
		w.finish()
		for id, fates := range w.fates() {
			if len(fates) != 1 {
				t.Fatalf("seed %d: of input %s has become %q, want one of these\n%s", seed, id, fates, w.story())
			}
			seen[fates[0]]++
		}
	}
	t.Log(seen)
	if len(seen) != 3 {
		t.Errorf("only this has happened: %v", seen)
	}
}

func (w *world) refusedAs(reason protocol.Reason) {
	w.t.Helper()
	var wire *protocol.Error
	if !errors.As(w.refused, &wire) || wire.Reason() != reason {
		w.t.Errorf("got %v, want that it is refused as %s", w.refused, reason)
	}
	w.refused = nil
}

func TestWithdraw(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{w.client("prompt"), protocol.PromptParams{Text: "go"}, false, nil, nil})
	for i, kind := range []protocol.Kind{"follow_up", "steer", "follow_up", "steer"} {
		w.step(queueIn{w.client("queue"), kind, protocol.SteerParams{
			Text:           string(rune('a' + i)),
			IdempotencyKey: string(rune('a' + i)),
		}, nil})
	}
	order := func() (texts string) {
		for _, in := range w.m.state().Queued.Inputs {
			texts += in.Text
		}
		return texts
	}
	if got := order(); got != "bdac" {
		t.Errorf("they will be delivered as %s, want steers first: bdac", got)
	}
	w.step(withdrawIn{w.client("no such text"), "in-nobody"})
	w.refusedAs(protocol.NotPending)
	w.step(withdrawIn{w.client("the prompt"), w.accepted[0]})
	w.refusedAs(protocol.NotPending)

	var reply protocol.Withdrawn
	w.step(withdrawIn{w.client("b"), w.accepted[2]})
	told := w.events[len(w.events)-1].(protocol.Status)
	want := protocol.Status{
		Ref:  protocol.Ref{RunID: w.m.s.Run.ID, SessionID: "ses-1", TurnID: "1"},
		Code: protocol.StatusInputWithdrawn, InputID: w.accepted[2], PendingCounts: &protocol.PendingCounts{
			Steer:    1,
			FollowUp: 2,
		}, Message: told.Message,
	}
	if diff := cmp.Diff(want, told); diff != "" || told.Message == "" {
		t.Errorf("what is told (-want +got):\n%s", diff)
	}
	reply = w.withdrawn
	if reply != (protocol.Withdrawn{
		Command: "withdraw", InputID: w.accepted[2], Kind: "steer", Text: "b",
		SessionID: "ses-1",
	}) {
		t.Errorf("got %+v", reply)
	}
	w.step(withdrawIn{w.client("b again"), w.accepted[2]})
	w.refusedAs(protocol.NotPending)
	w.restart(nil)
	if got := order(); got != "dac" {
		t.Errorf("after a restart %s waits, want dac", got)
	}

	n := len(w.events)
	w.step(queueIn{w.client("the same key"), "steer", protocol.SteerParams{Text: "b", IdempotencyKey: "b"}, nil})
	if order() != "dac" || len(w.events) != n || len(w.accepted) != 5 {
		t.Errorf("the key of a withdrawn text queues it again: %s", order())
	}
	w.finish()
	w.step(withdrawIn{w.client("delivered"), w.accepted[4]})
	w.refusedAs(protocol.NotPending)
	fates := w.fates()
	if got := fates[w.accepted[2]]; !slices.Equal(got, []string{"withdrawn"}) {
		t.Errorf("of b has become %q", got)
	}
}

// Who waits for the end of the run that a withdrawn prompt was queued to still
// hears of it.
func TestWhoWaitsHearsOfTheEndThoughHisTextIsWithdrawn(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{w.client("prompt"), protocol.PromptParams{Text: "go"}, false, nil, nil})
	c := w.client("waits")
	c.wait = true
	w.step(promptIn{c, protocol.PromptParams{Text: "later", StreamingBehavior: "follow_up"}, true, nil, nil})
	w.step(withdrawIn{w.client("withdraw"), w.accepted[1]})
	w.finish() // which fails where somebody is left waiting
	for _, ev := range w.events {
		if m, ok := ev.(protocol.MessageStart); ok && strings.Contains(m.Text, "later") {
			t.Error("it is delivered all the same")
		}
	}
}

// The only steer, for which a turn was cut short, is taken back before its own
// turn begins: the run goes on with what else waits, or ends.
func TestTheSteerThatCutATurnShortIsWithdrawn(t *testing.T) {
	for _, others := range []int{0, 1} {
		w := newWorld(t)
		w.step(modelIn{nil, model.Choice{Provider: "p", Name: "small", ContextWindow: 1000}})
		w.prompt(strings.Repeat("long ", 900))
		w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
		for range others {
			w.step(queueIn{w.client("f"), "follow_up", protocol.SteerParams{Text: "later"}, nil})
		}
		w.step(queueIn{w.client("s"), "steer", protocol.SteerParams{Text: "stop"}, nil})
		w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: "r"}})
		if w.m.phase != compacting {
			t.Skipf("the session was not compacted between the turns: %v", w.m.phase)
		}
		w.step(withdrawIn{w.client("w"), w.accepted[len(w.accepted)-1]})
		w.finish()
		for id, fates := range w.fates() {
			if len(fates) != 1 {
				t.Errorf("of %s has become %q", id, fates)
			}
		}
	}
}

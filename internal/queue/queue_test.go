package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"noused/internal/protocol"
)

type text struct {
	kind protocol.Kind
	n    int
}

func kindOf(t text) protocol.Kind { return t.kind }

func TestNext(t *testing.T) {
	s1, s2, f1, f2 := text{protocol.KindSteer, 1}, text{protocol.KindSteer, 2}, text{protocol.KindFollowUp, 3},
		text{protocol.KindFollowUp, 4}
	for name, c := range map[string]struct {
		pending            []text
		steering, followUp protocol.Mode
		kind               protocol.Kind
		want               []text
	}{
		"nothing waits": {
			nil, protocol.ModeOneAtATime, protocol.ModeOneAtATime,
			protocol.KindFollowUp, nil,
		},
		"a steer overtakes an older follow-up": {
			[]text{f1, s1},
			protocol.ModeOneAtATime, protocol.ModeOneAtATime,
			protocol.KindSteer,
			[]text{s1},
		},
		"all takes only the steers": {
			[]text{s1, f1, s2},
			protocol.ModeAll, protocol.ModeAll,
			protocol.KindSteer,
			[]text{s1, s2},
		},
		"one at a time takes the oldest": {
			[]text{f1, f2},
			protocol.ModeAll, protocol.ModeOneAtATime,
			protocol.KindFollowUp,
			[]text{f1},
		},
		"all takes every follow-up in order": {
			[]text{f1, f2},
			protocol.ModeOneAtATime, protocol.ModeAll,
			protocol.KindFollowUp,
			[]text{f1, f2},
		},
		"a mode of one kind says nothing of another": {
			[]text{s1, s2, f1},
			protocol.ModeOneAtATime, protocol.ModeAll,
			protocol.KindSteer,
			[]text{s1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind, got := Next(c.pending, kindOf, c.steering, c.followUp)
			if !slices.Equal(got, c.want) || got != nil && kind != c.kind {
				t.Errorf("got %s %v, want %s %v", kind, got, c.kind, c.want)
			}
		})
	}
}

// Whatever waits is delivered once, in order within its kind, and no follow-up
// goes while a steer waits.
func TestDrainDeliversEachOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		modes := rapid.SampledFrom([]protocol.Mode{protocol.ModeOneAtATime, protocol.ModeAll})
		kinds := rapid.SliceOf(rapid.SampledFrom([]protocol.Kind{protocol.KindSteer, protocol.KindFollowUp})).Draw(t, "kinds")
		steering, followUp := modes.Draw(t, "steering"), modes.Draw(t, "followUp")
		var pending, want []text
		for i, k := range kinds {
			pending = append(pending, text{k, i})
		}
		for _, k := range []protocol.Kind{protocol.KindSteer, protocol.KindFollowUp} {
			for _, p := range pending {
				if p.kind == k {
					want = append(want, p)
				}
			}
		}
		var got []text
		for len(pending) > 0 {
			kind, batch := Next(pending, kindOf, steering, followUp)
			if len(batch) == 0 {
				t.Fatalf("%d texts wait and none is taken", len(pending))
			}
			for _, b := range batch {
				if b.kind != kind {
					t.Fatalf("a %s was taken as a %s", b.kind, kind)
				}
				pending = slices.DeleteFunc(pending, func(p text) bool { return p == b })
			}
			got = append(got, batch...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

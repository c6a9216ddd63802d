package session

import (
	"testing"
	"time"

	"noused/internal/model"
)

// No text is accepted and no run begins in the middle of a rewind: one whose end was lost, as a power failure left a
// hole there, is over. The run behind it was never taken up (found by the simulator).
func TestARewindIsOverOnceARunHasBegun(t *testing.T) {
	for _, next := range []Fact{
		Input{InputID: "in-1", Kind: "prompt", Command: "prompt", Text: "go", RunID: "run-1"}, RunStarted{RunID: "run-1"},
	} {
		s := NewState()
		before := RewindBegun{RewindID: "rew-1", What: "files"}
		for _, f := range []Fact{Created{SessionID: "ses-1"}, before, next} {
			if err := s.Apply(Record{Fact: f}); err != nil {
				t.Fatal(err)
			}
		}
		if s.Rewind != nil {
			t.Errorf("%T: %s is under way still", next, s.Rewind.RewindID)
		}
	}
}

// A rewind that begins is the one that is under way, also where the end of the one before it was lost: it was left out
// of what the session has changed (found by a review).
func TestARewindBehindOneWithoutAnEnd(t *testing.T) {
	s := NewState()
	for _, f := range []Fact{
		Created{SessionID: "ses-1"},
		RewindBegun{RewindID: "rew-1", What: "files"},
		RewindBegun{RewindID: "rew-2", What: "files", Undoes: "rew-1"},
		RewindEnded{RewindID: "rew-2"},
	} {
		if err := s.Apply(Record{Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Steps) != 1 || s.Steps[0].RewindID != "rew-2" || s.Rewind != nil {
		t.Errorf("got %+v, and %+v is under way; want rew-2, and nothing", s.Steps, s.Rewind)
	}
}

// A record of a turn that comes late is in the place of the one that said that there was none:
// what came after the turn is still after it.
func TestALateRecordOfATurnKeepsItsPlace(t *testing.T) {
	s := NewState()
	add := func(f Fact) {
		t.Helper()
		if err := s.Apply(Record{At: time.Unix(1, 0), Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	say := func(run, id, parent string) {
		add(MessageAdded{ID: id, ParentID: parent, RunID: run, Message: model.Message{Role: model.User, Text: id}})
	}
	add(Created{SessionID: "ses-1"})
	say("run-1", "m1", "")
	add(TurnChanged{RunID: "run-1", Turn: 1, Missing: "it was slow"})
	say("run-2", "m2", "m1")
	add(TurnChanged{RunID: "run-1", Turn: 1, Changes: "0123"})
	for to, want := range map[string]int{"m1": 0, "m2": 1, "": 1} {
		steps, err := s.StepsOf("", to)
		if err != nil || len(steps) != want {
			t.Errorf("before %q: got %+v, %v, want %d", to, steps, err, want)
		}
		if len(steps) == 1 && (steps[0].Changes != "0123" || steps[0].Missing != "") {
			t.Errorf("got %+v", steps[0])
		}
	}
	if steps, err := s.StepsOf("m2", ""); err != nil || len(steps) != 0 {
		t.Errorf("from m2: got %+v, %v", steps, err)
	}
}

package session

import (
	"testing"
	"time"

	"noused/internal/model"
)

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

package session

import (
	"os"
	"testing"

	"noused/internal/model"
)

// counting is a run of ses-1 with the children a and b in the background, and what came after.
func counting(after ...Fact) []Record {
	started := func(run string, nth int) ChildStarted {
		return ChildStarted{
			RunID: "run-1", CallID: "call-" + run, ChildID: "ses-" + run, ChildRunID: "run-" + run, New: true, Background: true,
			Nth: nth,
		}
	}
	facts := []Fact{
		Created{SessionID: "ses-1"},
		Input{InputID: "in-1", Kind: "prompt", Command: "prompt", Text: "go", RunID: "run-1"},
		RunStarted{RunID: "run-1"},
		started("a", 1), started("b", 2),
	}
	var records []Record
	for _, f := range append(facts, after...) {
		records = append(records, Record{At: t0, Fact: f})
	}
	return records
}

// A child in the background is all that a later daemon has of a tree whose other runs have ended: it knew its own
// number alone, and had children more than `total` (found by the simulator).
func TestWhatIsLeftOfATreeKnowsItsCount(t *testing.T) {
	ends := RunEnded{RunID: "run-1", StopReason: "aborted", Waits: true, Children: 2, Counted: 2}
	end := ChildEnded{CallID: "call-a", ChildRunID: "run-a", Children: 2, Counted: 5}
	told := Input{
		InputID: "in-2", Kind: "prompt", Command: CommandAgent, Text: "a has ended", RunID: "run-2",
		Key: ChildKey("ses-a", "run-a"),
	}
	for name, records := range map[string][]Record{
		"its run is over":           counting(ends, end, told),
		"its run goes on":           counting(end, ends, told),
		"a foreground child's tree": counting(RunEnded{RunID: "run-1", StopReason: "aborted", Waits: true, Counted: 5}, told),
	} {
		t.Run(name, func(t *testing.T) {
			left := foldOf(t, records).Background
			if len(left) != 1 || left[0].ChildRunID != "run-b" || left[0].Counted != 5 {
				t.Errorf("left are %+v, want run-b, which knows of 5 children", left)
			}
		})
	}
}

// A child that has ended counts once, whatever was known of its tree by then (found by a review).
func TestChildrenOfATreeCountOnce(t *testing.T) {
	third := ChildStarted{
		RunID: "run-1", CallID: "call-c", ChildID: "ses-c", ChildRunID: "run-c", New: true, Background: true, Nth: 3,
	}
	left := foldOf(t, counting(third,
		ChildEnded{CallID: "call-b", ChildRunID: "run-b", Children: 2, Counted: 5},
		ChildEnded{CallID: "call-a", ChildRunID: "run-a", Children: 3, Counted: 8},
	)).Background
	if i := len(left) - 1; i < 0 || left[i].ChildRunID != "run-c" || left[i].Counted != 8 {
		t.Errorf("left are %+v, want run-c, which knows of 8 children", left)
	}
}

// What a run's children have used and how many there were is known of each run that has ended, also when another one of
// its session has ended since: its parent learned of the latest alone (found by the simulator).
func TestARunThatHasEndedKeepsWhatItsChildrenHaveUsed(t *testing.T) {
	store := indexing(t)
	spent := model.Usage{InputTokens: 3, OutputTokens: 2, Cost: 7}
	text := lines(t, counting(
		RunEnded{RunID: "run-1", StopReason: "aborted", Waits: true, Spent: &spent, Children: 2, Counted: 4},
		Input{InputID: "in-2", Kind: "prompt", Command: "prompt", Text: "on", RunID: "run-2"}, RunStarted{RunID: "run-2"},
		RunEnded{RunID: "run-2", StopReason: "completed"},
	))
	writeJournal(t, store, text)
	if !indexed(t, store) {
		t.Fatal("it has no index")
	}
	got, err := read(t, store, 0, false)
	wantFold(t, "with its index", store, got, err)
	ended, ok := got.state.Ended("run-1")
	if !ok || ended.Spent == nil || *ended.Spent != spent || ended.Children != 2 || ended.Counted != 4 {
		t.Errorf("it has ended as %+v, %t", ended, ok)
	}
}

// A message of an older journal that tells the end of a child in the background says so, from memory, from the disk and
// with an index: it was shown as a person's text.
func TestAnOlderReportTellsItsChild(t *testing.T) {
	store := indexing(t)
	key := ChildKey("ses-a", "run-a")
	writeJournal(t, store, lines(t, counting(
		RunEnded{RunID: "run-1", StopReason: "completed"},
		Input{InputID: "in-2", Kind: "prompt", Command: CommandAgent, Text: "a has ended", RunID: "run-2", Key: key},
		RunStarted{RunID: "run-2"},
		MessageAdded{
			ID: "m1", RunID: "run-2", InputID: "in-2", Message: model.Message{Role: model.User, Text: "a has ended"},
		},
		RunEnded{RunID: "run-2", StopReason: "completed"},
	)))
	tells := func(s *State) (child string) {
		if err := store.Bodies(t.Context(), "ses-1", s.Entries(), func(_ *Entry, b *Body) error {
			child = b.Child
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return child
	}
	if !indexed(t, store) {
		t.Fatal("it has no index")
	}
	for _, withIndex := range []bool{true, false} {
		if !withIndex {
			if err := os.Remove(indexPath(store.path("ses-1"))); err != nil {
				t.Fatal(err)
			}
		}
		got, err := read(t, store, 0, false)
		wantFold(t, "read", store, got, err)
		for _, e := range got.state.Entries() {
			if child := tells(got.state); child != key {
				t.Errorf("index %t, in memory %t: it tells the end of %q", withIndex, e.Body() != nil, child)
			}
			e.body.Store(nil)
			if child := tells(got.state); child != key {
				t.Errorf("index %t, on the disk: it tells the end of %q", withIndex, child)
			}
		}
	}
}

// What ends late is kept once, while there is anything of its tree in the session, and no longer.
func TestWhatEndsLateIsKeptWhileItsTreeLives(t *testing.T) {
	late := ChildEnded{ChildRunID: "run-x", Root: "run-1", Children: 2, Counted: 7}
	told := func(name string) Input {
		return Input{
			InputID: "in-" + name, Kind: "prompt", Command: CommandAgent, Text: "it has ended", RunID: "run-of-" + name,
			Key: ChildKey("ses-"+name, "run-"+name),
		}
	}
	facts := []Fact{
		late, late,
		RunEnded{RunID: "run-1", StopReason: "completed", Waits: true},
		told("a"),
		RunStarted{RunID: "run-of-a"},
		RunEnded{RunID: "run-of-a", StopReason: "completed"},
		told("b"),
	}
	for n, want := range []int{0, 1, 1, 1, 1, 1, 1, 0} {
		if got := foldOf(t, counting(facts[:n]...)).Late; len(got) != want {
			t.Errorf("after %d facts it keeps %+v, want %d", n, got, want)
		}
	}
	if late := foldOf(t, counting(ChildEnded{ChildRunID: "run-x", Root: "run-2"})).Late; len(late) > 0 {
		t.Errorf("it keeps %+v of a tree that it has nothing of", late)
	}
}

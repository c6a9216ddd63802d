package session

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
)

// A changed byte costs the line that it is in: what no daemon has written is skipped, and
// told with its line and its reason.
func TestRecordsThatNoDaemonWroteAreSkipped(t *testing.T) {
	said := func(id, parent string, role model.Role) MessageAdded {
		return MessageAdded{ID: id, ParentID: parent, RunID: "run-1", Message: model.Message{Role: role, Text: "hm"}}
	}
	spent := said("m2", "m1", model.Assistant)
	spent.Usage = &model.Usage{InputTokens: 1, Cost: -1}
	calls := said("m2", "m1", model.Assistant)
	calls.Message.ToolCalls = make([]model.ToolCall, MaxCalls+1)
	asked := ApprovalAsked{ApprovalID: "apr-1", RunID: "run-1", Kind: "tool"}
	begun := []Fact{
		Created{SessionID: "ses-1"},
		RunStarted{RunID: "run-0"},
		RunEnded{RunID: "run-0"},
		Input{InputID: "in-1", RunID: "run-1"},
		RunStarted{RunID: "run-1"},
		said("m1", "", model.User),
		asked,
		ApprovalDecided{ApprovalID: "apr-1", RunID: "run-1", Outcome: "denied"},
	}
	for name, c := range map[string]struct {
		fact Fact
		want string
	}{
		"a message without an id":  {said("", "m1", model.Assistant), "has no id"},
		"a root without an id":     {said("", "", model.User), "has no id"},
		"a message twice":          {said("m1", "m1", model.User), "entry m1 is there already"},
		"a message of nobody":      {said("m2", "m1", "sys\x1btem"), `the role "sys\x1btem"`},
		"a message without a role": {said("m2", "m1", ""), `the role ""`},
		"too many calls":           {calls, "1025 tool calls, at most 1024"},
		"a cost below nothing":     {spent, "is negative"},
		"a summary without an id":  {Compacted{ParentID: "m1", FirstKeptEntryID: "m1"}, "has no id"},
		"a summary with an entry's id": {
			Compacted{ID: "m1", ParentID: "m1", FirstKeptEntryID: "m1"},
			"is there already",
		},
		"a summary that keeps itself": {
			Compacted{ID: "c1", ParentID: "m1", FirstKeptEntryID: "c1"},
			"keeps unknown entry",
		},
		"a summary with a negative context": {
			Compacted{ID: "c1", ParentID: "m1", FirstKeptEntryID: "m1", FixedTokens: -1},
			"is negative",
		},
		"an answer without an id":      {MessageStarted{RunID: "run-1"}, "has no id"},
		"an answer with an entry's id": {MessageStarted{ID: "m1", RunID: "run-1"}, "is there already"},
		"a leaf that is no entry":      {LeafSet{}, "unknown entry"},
		"the session created again":    {Created{SessionID: "ses-1", Workdir: "/"}, "was created before"},
		"a text without an id":         {Input{RunID: "run-1"}, "has no id"},
		"a text twice":                 {Input{InputID: "in-1", RunID: "run-1"}, `input "in-1" is there already`},
		"a run without an id":          {RunStarted{}, "has no id"},
		"a run that has ended":         {RunStarted{RunID: "run-0"}, `run "run-0" has ended before`},
		"a turn before the first":      {TurnStarted{RunID: "run-1", Turn: -1}, "has the number -1"},
		"a turn without a next one":    {TurnStarted{RunID: "run-1", Turn: math.MaxInt}, "has the number"},
		"a call without an id":         {ToolStarted{RunID: "run-1"}, "has no id"},
		"an approval without an id":    {ApprovalAsked{RunID: "run-1"}, "has no id"},
		"an approval twice":            {asked, `approval "apr-1" is there already`},
		"what was used, below nothing": {
			ApprovalAsked{ApprovalID: "apr-2", Used: Used{Cost: math.MinInt64}},
			"is negative",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var records []Record
			for _, f := range append(append(begun[:len(begun):len(begun)], c.fact), said("m9", "m1", model.User)) {
				records = append(records, Record{t0, f})
			}
			s := NewState()
			_, problems, err := fold(bytes.NewReader(lines(t, records)), "/j", s)
			if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "/j:9: ") ||
				!strings.Contains(problems[0].Error(), c.want) {
				t.Errorf("got %v, %v; want line 9 skipped, which %s", problems, err, c.want)
			}
			wantTree(t, s)
			if s.Leaf != "m9" || len(historyOf(s)) != 2 {
				t.Errorf("the leaf is %s, with %d messages; want what follows the line to be there", s.Leaf, len(historyOf(s)))
			}
		})
	}
}

// A message whose parent comes later, or is itself, is put where it can be.
func TestAParentThatIsNotBeforeItsChild(t *testing.T) {
	for _, parent := range []string{"m2", "m3", "other-session"} {
		s := NewState()
		_, problems, err := fold(bytes.NewReader(lines(t, []Record{
			{t0, Created{SessionID: "ses-1"}},
			{t0, user("m1", "", "", "a")},
			{t0, user("m2", parent, "", "b")},
			{t0, user("m3", "m2", "", "c")},
		})), "/j", s)
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), "/j:3: ") ||
			!strings.Contains(problems[0].Error(), "put after the last entry") {
			t.Errorf("got %v, %v", problems, err)
		}
		wantTree(t, s)
		if chain, _ := s.Chain(""); len(chain) != 3 {
			t.Errorf("%d entries are on the way to the root, want all three", len(chain))
		}
	}
}

// The year of a record is one that can be told: one that has five digits would keep every
// list that the session is in from being sent.
func TestARecordOfAYearThatCannotBeTold(t *testing.T) {
	good := string(lines(t, []Record{{t0, Created{SessionID: "ses-1"}}}))
	for _, at := range []string{"9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"} {
		line := fmt.Sprintf(`{"v":1,"at":%q,"type":"title_set","data":{"title":"x"}}`+"\n", at)
		s := NewState()
		_, problems, err := fold(strings.NewReader(good+line), "/j", s)
		if err != nil || len(problems) != 1 || s.Title != "" {
			t.Errorf("%s: got %v, %v and the title %q", at, problems, err, s.Title)
		}
		sum, err := summarise(strings.NewReader(good + line + strings.Replace(line, `"title_set","data":{"title":"x"}`,
			`"message","data":{}`, 1)))
		if _, bad := sum.UpdatedAt.MarshalJSON(); err != nil || bad != nil || sum.UpdatedAt.Sub(t0) > time.Second {
			t.Errorf("%s: got %v, %v, %v", at, sum.UpdatedAt, bad, err)
		}
	}
}

// A file of line ends has a problem in every byte: few are told, and the others counted.
func TestProblemsAreBounded(t *testing.T) {
	good := lines(t, []Record{{t0, Created{SessionID: "ses-1"}}})
	text := append(append(good, strings.Repeat("\n", 100_000)...), "torn"...)
	_, problems, err := fold(bytes.NewReader(text), "/j", NewState())
	if err != nil || len(problems) != MaxProblems+2 {
		t.Fatalf("got %d problems, %v", len(problems), err)
	}
	if got := problems[MaxProblems].Error(); !strings.Contains(got, "/j:102: ") ||
		!strings.Contains(got, "99900 more lines") {
		t.Errorf("got %s", got)
	}
	if got := problems[MaxProblems+1]; got.Line != 100_002 || got.Err != errTorn {
		t.Errorf("got %v", got)
	}
}

// The walks end also where the tree has been made a circle.
func TestWalksAreBounded(t *testing.T) {
	s := foldOf(t, []Record{{t0, user("m1", "", "", "a")}, {t0, user("m2", "m1", "", "b")}})
	s.Entry("m1").parent = s.Entry("m2")
	if chain, _ := s.Chain("m2"); len(chain) != 2 {
		t.Errorf("the way has %d entries", len(chain))
	}
	if p := s.pathTo("m2"); len(p.entries) != 2 {
		t.Errorf("the path has %d entries", len(p.entries))
	}
}

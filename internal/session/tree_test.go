package session

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"noused/internal/model"
)

func TestTokensAreTheProvidersWhereItCountsMore(t *testing.T) {
	s := NewState()
	add := func(f Fact) {
		t.Helper()
		if err := s.Apply(Record{Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	say := func(id string, role model.Role, text string, usage *model.Usage) {
		t.Helper()
		add(MessageAdded{ID: id, ParentID: s.Leaf, Message: model.Message{Role: role, Text: text}, Usage: usage})
	}
	want := func(n int64) {
		t.Helper()
		if got := s.Tokens(); got != n {
			t.Errorf("got %d tokens, want %d", got, n)
		}
	}
	say("m1", model.User, strings.Repeat("x", 400), nil)
	want(104)
	say("m2", model.Assistant, "yes", &model.Usage{InputTokens: 900, OutputTokens: 100})
	want(1000)
	say("m3", model.User, strings.Repeat("x", 40), nil)
	want(1014)
	// of words, as the offline model counts
	say("m4", model.Assistant, "no", &model.Usage{InputTokens: 1, OutputTokens: 1})
	want(104 + 5 + 14 + 5)
	add(Compacted{ID: "c1", ParentID: "m4", Summary: "hm", FirstKeptEntryID: "m3"})
	want(5 + 14 + 5)
	if got := s.After("m3", "hm"); got != s.Tokens() {
		t.Errorf("After told %d", got)
	}
	say("m5", model.User, "and?", nil)
	say("m6", model.Assistant, "well", &model.Usage{InputTokens: 300, OutputTokens: 10})
	want(310)
	add(LeafSet{LeafID: "m2"})
	want(1000)
}

// A summary is shown no images, so that they are no reason to cut the texts.
func TestFitDoesNotMindImages(t *testing.T) {
	long := strings.Repeat("x", 400)
	got := Fit([]model.Message{{Role: model.User, Text: long, Attachments: make([]model.Attachment, 16)}}, 1000)
	if got[0].Text != long || len(got[0].Attachments) != 16 {
		t.Errorf("%d bytes and %d images are left", len(got[0].Text), len(got[0].Attachments))
	}
}

// What is made to fit does, keeps every message in its place, and is sound.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var messages []model.Message
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			m := model.Message{Role: model.User, Text: strings.Repeat("é", rapid.IntRange(0, 5000).Draw(t, "text"))}
			if rapid.Bool().Draw(t, "call") {
				m.ToolCalls = []model.ToolCall{
					{Name: "t", Arguments: []byte(`{"x":"` + strings.Repeat("y", rapid.IntRange(0, 5000).Draw(t, "args")) + `"}`)},
				}
			}
			messages = append(messages, m)
		}
		before := Tokens(messages)
		most := rapid.Int64Range(1000, 20_000).Draw(t, "most")
		got := Fit(messages, most)
		if n := Tokens(got); n > max(most, 8*80) {
			t.Fatalf("%d tokens, at most %d were wanted", n, most)
		}
		if len(got) != len(messages) || Tokens(messages) != before {
			t.Fatalf("%d messages became %d, %d tokens %d", len(messages), len(got), before, Tokens(messages))
		}
		for _, m := range got {
			for _, c := range m.ToolCalls {
				if !jsontext.Value(c.Arguments).IsValid() {
					t.Fatalf("arguments %s", c.Arguments)
				}
			}
		}
	})
}

// What a run's end says of it is kept, also when the journal is read again.
func TestEndedRunsAreKept(t *testing.T) {
	s, began := NewState(), time.Unix(100, 0)
	for i, f := range []Fact{
		RunStarted{RunID: "r1"},
		TurnStarted{RunID: "r1", Turn: 1},
		TurnStarted{RunID: "r1", Turn: 2},
		MessageAdded{
			ID: "m1", RunID: "r1", Message: model.Message{Role: model.Assistant},
			Usage: &model.Usage{InputTokens: 3, OutputTokens: 2, Cost: 7},
		},
		RunEnded{RunID: "r1", StopReason: "error", Code: "step_limit", Error: "too many"},
	} {
		if _, ok := s.Ended("r1"); ok {
			t.Errorf("the run has ended before %T", f)
		}
		if err := s.Apply(Record{At: began.Add(time.Duration(i) * time.Second), Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := s.Ended("r1")
	if got.Turns != 2 || got.Took != 4*time.Second || got.Usage.Cost != 7 || got.Code != "step_limit" {
		t.Errorf("got %+v", got)
	}
}

// The calls of an answer that broke off go with it: no result of theirs is told, whether
// it is the last or was given anew.
func TestAnAnswerThatBrokeOffHasNoResults(t *testing.T) {
	broken := MessageAdded{
		ID: "m2", ParentID: "m1", RunID: "run-1", StopReason: model.StopError,
		Message: model.Message{
			Role: model.Assistant, Text: "half",
			ToolCalls: []model.ToolCall{{ID: "call-1", Name: "t.x", Arguments: []byte(`{}`)}},
		},
	}
	anew := MessageAdded{ID: "m3", ParentID: "m2", RunID: "run-1", Message: model.Message{
		Role: model.Assistant,
		Text: "whole",
	}}
	asked := model.Message{Role: model.User, Text: "do it"}
	twice := broken
	twice.ID, twice.ParentID, anew.ParentID = "m2b", "m2", "m2b"
	records := []Record{
		{t0, Created{SessionID: "ses-1"}},
		{t0, user("m1", "", "", "do it")},
		{t0, broken},
		{t0, twice},
		{t0, anew},
	}
	store := open(t, OSDisk{}, t.TempDir())
	for n, want := range map[int][]model.Message{3: {asked}, 4: {asked}, 5: {asked, anew.Message}} {
		c := foldOf(t, records[:n]).Conversation()
		got, _ := c.Held()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %d records, -want +got:\n%s", n, diff)
		}
		if got, err := store.Messages(t.Context(), "ses-1", c.Unread(), 0); err != nil || !cmp.Equal(got, want) {
			t.Errorf("after %d records, one by one: got %+v, %v", n, got, err)
		}
	}
}

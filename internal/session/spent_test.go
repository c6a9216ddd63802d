package session

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// A call that left no message counts in lists and in what was used when; what a tool
// patches counts for nothing, whatever it looks like.
func TestSpentIsCountedWhereverUsageIs(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at, used := time.Now(), model.Usage{InputTokens: 410, OutputTokens: 2}
	state, j, err := s.Create("ses-1", []Record{
		{at, Created{SessionID: "ses-1"}},
		{at, Patched{Patch: jsontext.Value(`{"a":{"patch":{},"usage":{"input_tokens":1000}}}`)}},
		{at, Patched{Patch: jsontext.Value(`{}`)}},
		{at, Spent("", used)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	sum, err := s.Summary(t.Context(), "ses-1")
	if err != nil {
		t.Fatal(err)
	}
	var calls model.Usage
	if _, err := s.Calls(t.Context(), "ses-1", NewCallReader(), func(c Call) { calls = calls.Add(c.Usage) }); err != nil {
		t.Fatal(err)
	}
	if state.Usage != used || sum.Usage != used || calls != used {
		t.Errorf("got %+v, %+v in a list, %+v of calls; want %+v", state.Usage, sum.Usage, calls, used)
	}
	if got := string(state.Patched()); got != `{"a":{"patch":{},"usage":{"input_tokens":1000}}}` {
		t.Errorf("the state is %s", got)
	}
}

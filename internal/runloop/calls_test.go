package runloop

import (
	"context"
	"iter"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
)

// caller asks for so many calls in one answer.
type caller struct{ calls int }

func (v caller) Stream(context.Context, model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for range v.calls {
			if !yield(model.Delta{ToolCall: &model.ToolCall{Name: "t.x"}}, nil) {
				return
			}
		}
		yield(model.Delta{Stop: model.StopToolCalls}, nil)
	}
}

// An answer with more calls than the journal takes ends its run, once, with that
// reason; the session goes on.
func TestAnAnswerWithTooManyCallsEndsItsRun(t *testing.T) {
	f := newFixture(t, t.TempDir(), caller{1025}, echoTool, newRecorder())
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil || st.LastRun == nil || st.LastRun.Error == nil || !strings.Contains(st.LastRun.Error.Message,
		"tool calls") {
		t.Errorf("it ended %+v, %v", st.LastRun, err)
	}
}

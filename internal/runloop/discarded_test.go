package runloop

import (
	"errors"
	"fmt"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
)

// What a summary used that came to nothing is counted, in the run and in the session.
func TestADiscardedSummaryIsCounted(t *testing.T) {
	w := small(t)
	w.turn(500)
	w.turn(500)
	w.say(model.Delta{Text: "they sp", Stop: model.StopLength, Usage: model.Usage{InputTokens: 410, OutputTokens: 2}})
	w.finish()
	end := w.events[len(w.events)-1].(protocol.AgentEnd)
	if end.Usage.InputTokens != 410 || end.Usage.OutputTokens != 2 {
		t.Errorf("the run used %+v, want the summary's tokens in it", end.Usage)
	}
	w.restart(nil)
	if got := w.m.s.Usage; got.InputTokens != 410 {
		t.Errorf("after a restart the session has used %+v", got)
	}
}

// A conversation that cannot be read is no fault of the model.
func TestAnUnreadableConversationIsASessionsError(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.step(modelDoneIn{w.work.gen, fmt.Errorf("the request: %w", &unreadError{errors.New("input/output error")})})
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.Error == nil || end.Error.Code != protocol.SessionError {
		t.Errorf("got %+v, want session_error", end.Error)
	}
}

package bridge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
)

// The whole way of a text: the answer comes as chunks, then the prompt is answered.
func TestAPromptIsAnswered(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	from := e.mark()
	if got := e.say(s, "?let me see\nhello world"); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	want := []string{"thought: let me see", "agent: hello world"}
	if diff := cmp.Diff(want, conversation(e.updates(s, from, -1))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

package runloop

import (
	"strings"
	"testing"

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// What get_messages reads from a journal has its room among what all clients have
// before it is read, until the reply is written.
func TestMessagesThatAreReadHaveTheirRoomBefore(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	var said []session.Fact
	parent := ""
	for _, id := range []string{"m1", "m2", "m3", "m4", "m5"} {
		said = append(said, session.MessageAdded{ID: id, ParentID: parent, Message: model.Message{Role: model.User, Text: strings.Repeat("x", 2<<20)}})
		parent = id
	}
	f.put("ses-1", said...)
	f.env.Held = budget.New(10 << 20)
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: "ses-1"}}
	first, err := f.getMessages(t.Context(), p)
	if err != nil || len(first.Messages) != 5 || first.Release == nil {
		t.Fatalf("got %d messages, %v", len(first.Messages), err)
	}
	if n := f.env.Held.Used(); n < 2<<20 {
		t.Errorf("%d bytes are counted", n)
	}
	if _, err := f.getMessages(t.Context(), p); err == nil || protocol.AsError(err).Reason() != protocol.TooManyPending {
		t.Errorf("the second one: %v", err)
	}
	first.Release()
	if n := f.env.Held.Used(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

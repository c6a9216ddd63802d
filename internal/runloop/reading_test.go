package runloop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/budget"
	wire "noused/internal/client"
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
		said = append(said, session.MessageAdded{ID: id, ParentID: parent, Message: model.Message{
			Role: model.User,
			Text: strings.Repeat("x", 2<<20),
		}})
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

// A conversation that is too long for one reply comes in pages, each entry and each run
// once, and as it was when the first was asked for.
func TestALongConversationComesInPages(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	var said []session.Fact
	parent := ""
	for n := range 68 {
		id, run := fmt.Sprintf("m%02d", n), fmt.Sprintf("run-%02d", n/10)
		if n%10 == 0 {
			said = append(said, session.RunStarted{RunID: run})
		}
		said = append(said, session.MessageAdded{
			ID: id, ParentID: parent, RunID: run,
			Message: model.Message{Role: model.User, Text: strings.Repeat("x", 1<<20)},
		})
		if n%10 == 9 || n == 67 {
			said = append(said, session.RunEnded{RunID: run, StopReason: "completed"})
		}
		parent = id
	}
	f.put("ses-1", said...)
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: "ses-1"}}
	if _, err := f.getMessages(t.Context(), p); err == nil || protocol.AsError(err).Reason() != protocol.TooManyPending {
		t.Fatalf("all at once: %v", err)
	}
	pages := 0
	all, err := wire.AllMessages(p, func(p protocol.GetMessagesParams) (protocol.Messages, error) {
		page, err := f.getMessages(t.Context(), p)
		if err != nil {
			return page, err
		}
		page.Release()
		page.Release = nil
		for _, raw := range page.Encoded {
			var run protocol.EndedRun
			if err := json.Unmarshal(raw, &run); err != nil {
				t.Fatal(err)
			}
			page.Runs = append(page.Runs, run)
		}
		if pages++; pages == 1 { // what is said meanwhile is behind the leaf of the first page
			_, err = requestAs[protocol.Leaf](t.Context(), f.Hub, "ses-1", func(t ticket) input { return leafIn{t, "m01"} })
		}
		return page, err
	})
	if err != nil || len(all.Messages) != 68 || len(all.Runs) != 7 || all.LeafID != "m67" || all.More || pages < 17 ||
		pages > 30 {
		t.Fatalf("got %d messages, %d runs to leaf %q in %d pages, %v", len(all.Messages), len(all.Runs), all.LeafID, pages,
			err)
	}
	for n, raw := range all.Messages {
		var m protocol.Message
		if err := json.Unmarshal(raw, &m); err != nil || m.ID != fmt.Sprintf("m%02d", n) {
			t.Errorf("message %d is %q, %v", n, m.ID, err)
		}
	}
	// limit counts from the cursor
	p.LeafID, p.After, p.Limit = "m67", new("m05"), new(2)
	page, err := f.getMessages(t.Context(), p)
	if err != nil || len(page.Messages) != 2 || !page.More {
		t.Fatalf("got %d messages, more: %v, %v", len(page.Messages), page.More, err)
	}
	var m protocol.Message
	if err := json.Unmarshal(page.Messages[0], &m); err != nil || m.ID != "m06" {
		t.Errorf("behind m05 is %q, %v", m.ID, err)
	}
	page.Release()
	p.LeafID, p.After = "m03", new("m05")
	if _, err := f.getMessages(t.Context(), p); err == nil || !strings.HasPrefix(err.Error(), "session_error: after:") {
		t.Errorf("after an entry that is not there: %v", err)
	}
}

package bridge

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// A snapshot whose state is older than its messages has a message that was being
// said in both: it is shown once.
func TestAMessageThatEndedMeanwhile(t *testing.T) {
	var out bytes.Buffer
	conn := acp.NewConn(strings.NewReader(""), &out)
	w := &window{b: &bridge{conn: conn}, id: "ses-1", ctx: context.Background(), known: true, draw: newDrawing()}
	s := follow.Snapshot{Messages: []jsontext.Value{
		jsontext.Value(`{"type":"message","id":"msg-1","role":"assistant","text":"one"}`),
		jsontext.Value(`{"type":"message","id":"msg-2","role":"assistant","text":"two"}`),
	}}
	s.State.Partial = &protocol.Partial{MessageID: "msg-1", Text: "on"}
	if err := w.drawAll(s, false, true); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	var shown []update
	for line := range bytes.Lines(out.Bytes()) {
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if u, ok := updateOf("ses-1", m); ok {
			shown = append(shown, u)
		}
	}
	if diff := cmp.Diff([]string{"agent: one", "agent: two"}, conversation(shown)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

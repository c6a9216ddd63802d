package session

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/protocol"
)

// Thinking that an older daemon kept goes back to its maker still.
func TestMessagesWithoutBlocks(t *testing.T) {
	line :=
		`{"v":1,"at":"2026-02-12T00:00:00Z","type":"message","data":{"id":"msg-1","run_id":"run-1","turn_kind":"prompt","message":{` +
			`"role":"assistant","text":"so","thinking":"hm!","tool_calls":[{"id":"call-1","name":"x","arguments":{}}],` +
			`"thinking_blocks":[{"maker":"anthropic api.anthropic.com","text":"hm","signature":"s"},{"maker":"anthropic api.anthropic.com","data":"d"}]}}}`
	r, err := decodeRecord([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := model.Message{
		Role: model.Assistant, Text: "so", Thinking: "hm", Maker: "messages api.anthropic.com claude",
		ToolCalls: []model.ToolCall{{ID: "call-1", Name: "x", Arguments: []byte("{}")}},
		Blocks: []model.Block{
			{Kind: model.ThinkingBlock, Bytes: 2, Data: []byte(`{"signature":"s"}`)},
			{Kind: model.OpaqueBlock, Data: []byte(`{"data":"d","type":"redacted_thinking"}`)},
			{Kind: model.TextBlock, Bytes: 2},
			{Kind: model.CallBlock},
		},
	}
	if diff := cmp.Diff(want, r.Fact.(MessageAdded).Message); diff != "" {
		t.Errorf("the message (-want +got):\n%s", diff)
	}
}

// What a maker attached is in the journal as it came: escapes, digits, order.
func TestBlocksAreKeptVerbatim(t *testing.T) {
	data := `{"signature":"a\/b\u00e9","n":1.0,"a":[1e3,{"z":null}]}`
	said := MessageAdded{ID: "m", Message: model.Message{
		Role: model.Assistant, Text: "so", Maker: "chat h m",
		Blocks: []model.Block{
			{Kind: model.TextBlock, Bytes: 2}, {Kind: model.OpaqueBlock, Data: []byte(data)},
		},
	}}
	line, err := appendRecord(nil, Record{Fact: said})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(line), data) {
		t.Errorf("the record has other bytes than %s: %s", data, line)
	}
	r, err := decodeRecord(line[:len(line)-1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(said, r.Fact); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// Journals say of a call whether it was run; older ones did in the words for the model alone.
func TestCallsThatWereNotRun(t *testing.T) {
	for _, c := range []struct {
		message, more string
		want          protocol.NotRun
	}{
		{`"text":"skipped: the user steered the run before this call"`, "", protocol.NotRunSteered},
		{`"text":"not run: the run was aborted"`, "", protocol.NotRunAborted},
		{`"text":"not run: the run was aborted","ok":true`, "", ""}, // what a tool said
		{`"text":"skipped: nothing"`, "", ""},
		{`"text":"any words"`, `,"not_run":"steered"`, protocol.NotRunSteered},
	} {
		r, err := decodeRecord([]byte(
			`{"v":1,"at":"2026-02-12T00:00:00Z","type":"message","data":{"id":"m","run_id":"r","turn_kind":"prompt",` +
				`"message":{"role":"tool","tool_call_id":"c",` + c.message + `}` + c.more + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Fact.(MessageAdded).NotRun; got != c.want {
			t.Errorf("%s%s: got %q, want %q", c.message, c.more, got, c.want)
		}
	}
}

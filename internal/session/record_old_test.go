package session

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
)

// Thinking that an older daemon kept goes back to its maker still.
func TestMessagesWithoutBlocks(t *testing.T) {
	line := `{"v":1,"at":"2026-02-12T00:00:00Z","type":"message","data":{"id":"msg-1","run_id":"run-1","turn_kind":"prompt","message":{` +
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
	said := MessageAdded{ID: "m", Message: model.Message{Role: model.Assistant, Text: "so", Maker: "chat h m", Blocks: []model.Block{
		{Kind: model.TextBlock, Bytes: 2}, {Kind: model.OpaqueBlock, Data: []byte(data)},
	}}}
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

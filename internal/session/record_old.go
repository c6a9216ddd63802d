package session

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
)

// oldThinking is a piece of signed thinking as journals have it that were
// written before messages had blocks.
type oldThinking struct {
	Maker     string `json:"maker"`
	Text      string `json:"text"`
	Signature string `json:"signature"`
	Data      string `json:"data"`
}

// oldNotRun are the results of calls that were not run as journals have them that were
// written before the record said so.
var oldNotRun = map[string]protocol.NotRun{
	"skipped: the user steered the run before this call": protocol.NotRunSteered,
	"not run: the run was aborted":                       protocol.NotRunAborted,
}

// decodeMessage reads a message, also one with thinking_blocks in place of
// blocks, and one that does not say that its call was not run.
func decodeMessage(data jsontext.Value) (Fact, error) {
	var f MessageAdded
	if err := json.Unmarshal(data, &f); err != nil {
		return f, err
	}
	if f.Message.Role == model.Tool && f.NotRun == "" && !f.Message.OK {
		f.NotRun = oldNotRun[f.Message.Text]
	}
	if f.Message.Role != model.Assistant || len(f.Message.Blocks) > 0 ||
		!bytes.Contains(data, []byte(`"thinking_blocks"`)) {
		return f, nil
	}
	var old struct {
		Message struct {
			Thinking []oldThinking `json:"thinking_blocks"`
		} `json:"message"`
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return f, err
	}
	if len(old.Message.Thinking) > 0 {
		mend(&f.Message, old.Message.Thinking)
	}
	return f, nil
}

// mend gives a message its blocks: the thinking came first, then the text, then
// the calls, whose own ids nobody kept. It was Anthropic's, whose models were all
// of one family.
func mend(m *model.Message, old []oldThinking) {
	thinking := ""
	for _, t := range old {
		b := model.Block{Kind: model.ThinkingBlock, Bytes: len(t.Text)}
		members := map[string]string{"signature": t.Signature}
		if t.Data != "" {
			b = model.Block{Kind: model.OpaqueBlock}
			members = map[string]string{"type": "redacted_thinking", "data": t.Data}
		}
		b.Data, _ = json.Marshal(members, json.Deterministic(true)) // of strings
		m.Blocks = append(m.Blocks, b)
		thinking += t.Text
	}
	if m.Text != "" {
		m.Blocks = append(m.Blocks, model.Block{Kind: model.TextBlock, Bytes: len(m.Text)})
	}
	for range m.ToolCalls {
		m.Blocks = append(m.Blocks, model.Block{Kind: model.CallBlock})
	}
	m.Maker = strings.Replace(old[0].Maker, "anthropic ", "messages ", 1) + " claude"
	m.Thinking = thinking
}

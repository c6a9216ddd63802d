package model_test

import (
	"testing"

	"noused/internal/model"
)

// Blocks that do not fit their message, as a damaged journal or a context
// module may have it, are not believed.
func TestPieces(t *testing.T) {
	message := model.Message{Text: "ab", Thinking: "h", ToolCalls: []model.ToolCall{{ID: "c"}}}
	block := func(kind model.BlockKind, n int) model.Block { return model.Block{Kind: kind, Bytes: n} }
	think, text, call := block(model.ThinkingBlock, 1), block(model.TextBlock, 2), block(model.CallBlock, 0)
	for name, c := range map[string]struct {
		blocks []model.Block
		fits   bool
	}{
		"in order":         {[]model.Block{think, text, call}, true},
		"in another order": {[]model.Block{call, text, think}, true},
		"in pieces": {[]model.Block{
			block(model.TextBlock, 1), think, block(model.TextBlock, 1), call,
			block(model.OpaqueBlock, 0),
		}, true},
		"none":            {nil, false},
		"too long":        {[]model.Block{think, block(model.TextBlock, 3), call}, false},
		"too short":       {[]model.Block{think, block(model.TextBlock, 1), call}, false},
		"negative":        {[]model.Block{think, block(model.TextBlock, -1), text, call}, false},
		"a call too many": {[]model.Block{think, text, call, call}, false},
		"no call":         {[]model.Block{think, text}, false},
		"of no kind":      {[]model.Block{think, text, call, block("", 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := message
			m.Blocks = c.blocks
			pieces, fits := m.Pieces()
			if fits != c.fits {
				t.Fatalf("fits: got %t, want %t", fits, c.fits)
			}
			said, calls := "", 0
			for _, p := range pieces {
				if p.Kind == model.TextBlock {
					said += p.Text
				}
				if p.Call != nil {
					calls++
				}
			}
			if said != m.Text || calls != 1 {
				t.Errorf("the pieces say %q with %d calls", said, calls)
			}
		})
	}
}

package model

import "encoding/json"

// BlockKind says what a block of an assistant message is.
type BlockKind string

// The kinds of blocks. An opaque block is only its maker's own data: reasoning
// that is encrypted, for one.
const (
	TextBlock     BlockKind = "text"
	ThinkingBlock BlockKind = "thinking"
	CallBlock     BlockKind = "call"
	OpaqueBlock   BlockKind = "opaque"
)

// Block is one piece of an assistant message; a message's blocks stand in the
// order in which they came (models-today.md §1). A text or a thinking block is
// the next Bytes bytes of the message's Text or Thinking, a call block its next
// tool call, with the id that the maker gave it. Data is what the maker attached
// to the block, JSON as it came. It goes back to that maker and to no other.
type Block struct {
	Kind  BlockKind       `json:"kind"`
	Bytes int             `json:"bytes,omitzero"`
	ID    string          `json:"id,omitzero"`
	Data  json.RawMessage `json:"data,omitzero"`
}

// Piece is a block with what it stands for: Text of a text or thinking block,
// Call of a call block, which still has our id.
type Piece struct {
	Block
	Text string
	Call *ToolCall
}

// Pieces returns an assistant message's blocks with what they stand for. A
// message whose blocks do not fit it, or that has none, is its text and its
// calls: fits is false then.
func (m *Message) Pieces() (pieces []Piece, fits bool) {
	text, thinking, calls := m.Text, m.Thinking, m.ToolCalls
	for _, b := range m.Blocks {
		p := Piece{Block: b}
		switch {
		case b.Kind == TextBlock && b.Bytes >= 0 && b.Bytes <= len(text):
			p.Text, text = text[:b.Bytes], text[b.Bytes:]
		case b.Kind == ThinkingBlock && b.Bytes >= 0 && b.Bytes <= len(thinking):
			p.Text, thinking = thinking[:b.Bytes], thinking[b.Bytes:]
		case b.Kind == CallBlock && len(calls) > 0:
			p.Call, calls = &calls[0], calls[1:]
		case b.Kind == OpaqueBlock:
		default:
			return m.plain(), false
		}
		pieces = append(pieces, p)
	}
	if text != "" || thinking != "" || len(calls) > 0 || len(m.Blocks) == 0 {
		return m.plain(), false
	}
	return pieces, true
}

// plain are the text and the calls, which any model can read.
func (m *Message) plain() []Piece {
	var pieces []Piece
	if m.Text != "" {
		pieces = append(pieces, Piece{Block: Block{Kind: TextBlock, Bytes: len(m.Text)}, Text: m.Text})
	}
	for i := range m.ToolCalls {
		pieces = append(pieces, Piece{Block: Block{Kind: CallBlock}, Call: &m.ToolCalls[i]})
	}
	return pieces
}

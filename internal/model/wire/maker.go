package wire

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Maker is the label of what a model said over a wire ("chat", "messages" or
// "responses"): what it signed or encrypted can be read by nobody else. The
// models of one family at one host read each other's.
func (c *Client) Maker(wire string) string {
	return wire + " " + c.Host() + " " + family(c.options.Model)
}

// family is what a model's name begins with, without whose it is and which
// version: claude of anthropic/claude-sonnet-4-5.
func family(name string) string {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	letters := strings.IndexFunc(name, func(r rune) bool { return !unicode.IsLetter(r) })
	if letters >= 0 {
		name = name[:letters]
	}
	switch name {
	case "o", "chatgpt", "codex": // o3, for one, shares its reasoning with gpt-5
		return "gpt"
	}
	return name
}

// Tally collects the blocks of a message as it arrives. Pieces of one kind that
// follow each other are one block, until Close.
type Tally struct {
	blocks []model.Block
	closed bool
}

// Add counts a piece of text or thinking that is handed on.
func (t *Tally) Add(kind model.BlockKind, text string) {
	if text == "" {
		return
	}
	if n := len(t.blocks); n > 0 && t.blocks[n-1].Kind == kind && !t.closed {
		t.blocks[n-1].Bytes += len(text)
		return
	}
	t.Open(model.Block{Kind: kind, Bytes: len(text)})
}

// Open begins a block.
func (t *Tally) Open(b model.Block) {
	t.blocks, t.closed = append(t.blocks, b), false
}

// Close ends the last block.
func (t *Tally) Close() { t.closed = true }

// Last is the block that was begun last, nil before the first.
func (t *Tally) Last() *model.Block {
	if len(t.blocks) == 0 {
		return nil
	}
	return &t.blocks[len(t.blocks)-1]
}

// Blocks returns the blocks in order.
func (t *Tally) Blocks() []model.Block { return t.blocks }

// Attach is v, a struct, as the data of a block; nil where nothing is in it.
func Attach(v any) []byte {
	data, err := json.Marshal(v, verbatim)
	if err != nil || string(data) == "{}" {
		return nil
	}
	return data
}

// Attached reads a block's data into v. What is missing stays as it is.
func Attached(data []byte, v any) {
	if len(data) > 0 {
		_ = json.Unmarshal(data, v, lenient) // our own, from the journal: what can be read is
	}
}

// verbatim is how JSON of others is written: its strings as they came, with a
// byte that is no UTF-8 mended, as one in a tool's result must not stop the
// session.
var verbatim = json.JoinOptions(jsontext.PreserveRawStrings(true), jsontext.AllowInvalidUTF8(true))

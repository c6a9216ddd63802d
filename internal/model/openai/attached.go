package openai

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// The data of the blocks of this wire, as the journal keeps it.
type (
	// thought says where a thinking block stood: in the member of that name, or in
	// the content, between Open and Close.
	thought struct {
		Member string `json:"member"`
		Open   string `json:"open,omitzero"`
		Close  string `json:"close,omitzero"`
	}
	// called are the members of a tool call that we do not use. Written are its
	// arguments as the model wrote them, where that is more than their JSON says:
	// with spaces between the values.
	called struct {
		Type    string         `json:"type,omitzero"`
		Written string         `json:"written_arguments,omitzero"`
		Rest    jsontext.Value `json:",embed"`
	}
	// attached is what came with a message as a whole: reasoning that is signed or
	// encrypted (OpenRouter, Vercel), a signature of the text (Gemini).
	attached struct {
		ReasoningDetails []jsontext.Value `json:"reasoning_details,omitempty"`
		ExtraContent     jsontext.Value   `json:"extra_content,omitzero"`
	}
)

// Places of thinking inside the content.
const (
	inContent = "content"
	inParts   = "parts"
)

// maxMembers is how many members an entry of reasoning_details has at most.
const maxMembers = 64

// details are the entries of reasoning_details, as they come in pieces.
type details struct{ list []*detail }

// detail is one entry: its members, and the texts among them that grow.
type detail struct {
	members wire.Object
	texts   map[string]*strings.Builder
}

// add puts a piece where it belongs. Pieces that follow each other and have one
// type and index are one entry. False: there are too many entries, or members of
// one.
func (d *details) add(v jsontext.Value) bool {
	piece := wire.Members(v)
	if piece == nil {
		return true
	}
	if n := len(d.list); n == 0 || !d.list[n-1].goesOn(piece) {
		d.list = append(d.list, &detail{texts: map[string]*strings.Builder{}})
	}
	to := d.list[len(d.list)-1]
	if len(d.list) > wire.MaxBlocks || len(to.members)+len(piece) > 2*maxMembers {
		return false
	}
	for _, m := range piece {
		if (m.Name != "text" && m.Name != "summary") || m.Value.Kind() != jsontext.KindString {
			to.members = to.members.Put(m)
			continue
		}
		if to.texts[m.Name] == nil {
			to.texts[m.Name] = &strings.Builder{}
			to.members = to.members.Put(m)
		}
		to.texts[m.Name].WriteString(wire.Text(m.Value))
	}
	return len(to.members) <= maxMembers
}

func (d *detail) goesOn(piece wire.Object) bool {
	same := func(name string) bool { return string(d.members.Get(name)) == string(piece.Get(name)) }
	id := len(d.members.Get("id")) == 0 || len(piece.Get("id")) == 0 || same("id")
	return id && same("type") && same("index") && wire.Text(piece.Get("type")) != "reasoning.encrypted"
}

// values are the entries as JSON.
func (d *details) values() (out []jsontext.Value) {
	for _, e := range d.list {
		for name, text := range e.texts {
			quoted, _ := jsontext.AppendQuote(nil, text.String())
			e.members = e.members.Put(wire.Member{Name: name, Value: quoted})
		}
		out = append(out, e.members.JSON())
	}
	return out
}

// piece is a part of a content: text, or thinking.
type piece struct {
	text     string
	thinking bool
}

// typed is a typed part of a content that comes.
type typed struct {
	Type     wire.Str       `json:"type"`
	Text     wire.Str       `json:"text"`
	Thinking jsontext.Value `json:"thinking"`
}

// partsOf reads typed parts: {"type":"text","text":…} and
// {"type":"thinking","thinking":[parts] or a text}. Of parts inside of those only
// texts count.
func partsOf(v jsontext.Value) (out []piece) {
	for _, p := range partList(v) {
		switch {
		case p.V.Text != "" && p.V.Type != "thinking":
			out = append(out, piece{string(p.V.Text), false})
		case p.V.Thinking.Kind() == jsontext.KindString:
			out = append(out, piece{wire.Text(p.V.Thinking), true})
		case p.V.Thinking.Kind() == jsontext.KindBeginArray:
			for _, inner := range partList(p.V.Thinking) {
				if text := string(inner.V.Text); text != "" {
					out = append(out, piece{text, true})
				}
			}
		}
	}
	return out
}

func partList(v jsontext.Value) (parts []wire.Maybe[typed]) {
	if wire.Read(v, &parts) != nil {
		return nil
	}
	return parts
}

const thinkOpen, thinkClose = "<think>", "</think>"

// maxBlank is about how much may stand before a tag or behind one, in bytes.
const maxBlank = 4 << 10

// splitter finds <think>…</think> at the beginning of a content that comes in
// pieces. It holds back what may become a tag.
type splitter struct {
	state       int // 0 before the text, 1 inside the tags, 2 after the closing one, 3 in the text
	held        string
	open, close string
}

// split returns what a piece of content adds.
func (t *splitter) split(text string) (out []piece) {
	t.held += text
	for t.held != "" {
		switch t.state {
		case 0:
			blank := len(t.held) - len(strings.TrimLeft(t.held, " \t\r\n"))
			rest := t.held[blank:]
			switch {
			case strings.HasPrefix(rest, thinkOpen):
				t.open, t.held, t.state = t.held[:blank+len(thinkOpen)], rest[len(thinkOpen):], 1
				continue
			case strings.HasPrefix(thinkOpen, rest) && len(t.held) < maxBlank:
				return out // may become the tag
			}
			t.state = 3
		case 1:
			i := strings.Index(t.held, thinkClose)
			if i < 0 {
				keep := tagBegins(t.held)
				if keep == len(t.held) {
					return out
				}
				out = append(out, piece{t.held[:len(t.held)-keep], true})
				t.held = t.held[len(t.held)-keep:]
				return out
			}
			if i > 0 {
				out = append(out, piece{t.held[:i], true})
			}
			t.close, t.held, t.state = thinkClose, t.held[i+len(thinkClose):], 2
		case 2:
			rest := strings.TrimLeft(t.held, " \t\r\n")
			if len(t.close)+len(t.held)-len(rest) > maxBlank { // it counts as text does
				t.state = 3
				continue
			}
			t.close += t.held[:len(t.held)-len(rest)]
			if t.held = rest; rest != "" {
				t.state = 3
			}
		default:
			out = append(out, piece{t.held, false})
			t.held = ""
		}
	}
	return out
}

// rest returns what was held back when the content ends.
func (t *splitter) rest() []piece {
	held := t.held
	t.held = ""
	if held == "" {
		return nil
	}
	return []piece{{held, t.state == 1}}
}

// block is the place of the thinking that stood between the tags, -1 if none
// did.
func (t *splitter) block(blocks []model.Block) int {
	for i, b := range blocks {
		var at thought
		if wire.Attached(b.Data, &at); t.open != "" && b.Kind == model.ThinkingBlock && at.Member == inContent {
			return i
		}
	}
	return -1
}

// tagBegins is how many bytes at the end of a text may be the beginning of the
// closing tag.
func tagBegins(text string) int {
	for n := min(len(text), len(thinkClose)-1); n > 0; n-- {
		if strings.HasSuffix(text, thinkClose[:n]) {
			return n
		}
	}
	return 0
}

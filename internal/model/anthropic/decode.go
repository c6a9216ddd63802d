package anthropic

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// event is any of the stream's events; Type says which members it has.
type event struct {
	Type         wire.Str                `json:"type"`
	Index        wire.Maybe[*wire.Count] `json:"index"`
	ContentBlock jsontext.Value          `json:"content_block"`
	Delta        wire.Maybe[delta]       `json:"delta"`
	Error        jsontext.Value          `json:"error"`
	Usage        wire.Maybe[*usage]      `json:"usage"`
	Message      wire.Maybe[struct {
		Usage wire.Maybe[*usage] `json:"usage"`
	}] `json:"message"`
}

type delta struct {
	Type        wire.Str       `json:"type"`
	Text        wire.Str       `json:"text"`
	Thinking    wire.Str       `json:"thinking"`
	Signature   wire.Str       `json:"signature"`
	PartialJSON wire.Str       `json:"partial_json"`
	Citation    jsontext.Value `json:"citation"`
	StopReason  wire.Str       `json:"stop_reason"`
}

// usage is said in parts: what is absent later was said before.
type usage struct {
	InputTokens   *wire.Count `json:"input_tokens"`
	CacheCreation *wire.Count `json:"cache_creation_input_tokens"`
	CacheRead     *wire.Count `json:"cache_read_input_tokens"`
	OutputTokens  *wire.Count `json:"output_tokens"`
}

// decoder decodes an answer of that maker.
func decoder(names wire.Names, maker string) wire.Decoder {
	return func(in wire.Answer) iter.Seq2[model.Delta, error] {
		return func(yield func(model.Delta, error) bool) {
			s := state{load: wire.Load{Hold: in.Hold}}
			for e, err := range in.Events {
				var d model.Delta
				stopped := false
				if err == nil {
					d, stopped, err = s.decodeEvent(e)
				}
				switch {
				case err != nil:
					s.fail(err, yield)
					return
				case stopped:
					s.end(names, maker, yield)
					return
				case d.Text != "" || d.Thinking != "":
					if !yield(d, nil) {
						return
					}
				}
			}
			s.fail(wire.Truncated(s.odd), yield)
		}
	}
}

// state is what has come of an answer.
type state struct {
	tally  wire.Tally
	blocks []*open
	load   wire.Load // of arguments, signatures and what else was attached
	mixed  bool
	reason string
	usage  usage
	odd    string // why the first event that could not be read was not
}

// open is a content block. Its members are what it began with, but for its text.
type open struct {
	index     *wire.Count
	kind      string
	members   wire.Object
	signature strings.Builder
	signed    bool // in pieces
	citations []jsontext.Value
	input     []byte
	at        int // its place among the tally's blocks
}

// decodeEvent returns what an event has to hand on at once, and whether it is the
// last. One that cannot be read is passed over.
func (s *state) decodeEvent(e wire.Event) (d model.Delta, stopped bool, err error) {
	if len(bytes.TrimSpace(e.Data)) == 0 {
		return d, false, nil
	}
	var ev event
	if err := wire.Decode(e, &ev); err != nil {
		s.odd = cmp.Or(s.odd, err.Error())
		return d, false, nil
	}
	switch cmp.Or(string(ev.Type), e.Type) {
	case "message_start":
		if len(s.blocks) > 0 {
			return d, false, wire.BeginsAgain()
		}
		s.count(ev.Message.V.Usage.V)
	case "content_block_start":
		d, err = s.beginBlock(ev)
		return d, false, err
	case "content_block_delta":
		d, err = s.extend(ev)
		return d, false, err
	case "message_delta":
		s.reason = cmp.Or(string(ev.Delta.V.StopReason), s.reason)
		s.count(ev.Usage.V)
	case "message_stop":
		return d, true, nil
	case "error":
		if kind := ev.Error.Kind(); kind == jsontext.KindBeginObject || kind == jsontext.KindString {
			return d, false, wire.Failure(ev.Error)
		}
		return d, false, wire.Failure(jsontext.Value(e.Data))
	}
	return d, false, nil // pings, ends of blocks, and what will come to be
}

func (s *state) count(u *usage) {
	if u == nil {
		return
	}
	for _, p := range []struct{ to, from **wire.Count }{
		{&s.usage.InputTokens, &u.InputTokens},
		{&s.usage.CacheCreation, &u.CacheCreation},
		{&s.usage.CacheRead, &u.CacheRead},
		{&s.usage.OutputTokens, &u.OutputTokens},
	} {
		if *p.from != nil {
			*p.to = *p.from
		}
	}
}

// kinds are those of the content blocks whose text we read; any other is its
// maker's own.
var kinds = map[string]model.BlockKind{
	"text": model.TextBlock, "thinking": model.ThinkingBlock,
	"tool_use": model.CallBlock,
}

func (s *state) beginBlock(ev event) (d model.Delta, err error) {
	if len(s.blocks) == wire.MaxCalls {
		return d, wire.TooMuch()
	}
	members := wire.Members(ev.ContentBlock)
	if err := s.load.Add(len(ev.ContentBlock)); err != nil {
		return d, err
	}
	b := &open{index: ev.Index.V, kind: wire.Text(members.Get("type")), members: members, at: len(s.blocks)}
	s.blocks = append(s.blocks, b)
	kind, known := kinds[b.kind]
	if !known {
		kind = model.OpaqueBlock
		s.mixed = s.mixed || b.kind == "" // goes back to nobody
	}
	text, thinking := "", ""
	switch kind {
	case model.TextBlock:
		text = wire.Text(members.Get("text"))
	case model.ThinkingBlock:
		thinking = wire.Text(members.Get("thinking"))
	}
	s.tally.Open(model.Block{Kind: kind, Bytes: len(text) + len(thinking)})
	return model.Delta{Text: text, Thinking: thinking}, nil
}

func (s *state) extend(ev event) (d model.Delta, err error) {
	delta := ev.Delta.V
	if err := s.load.Add(len(delta.PartialJSON) + len(delta.Signature) + len(delta.Citation)); err != nil {
		return d, err
	}
	b := s.find(ev.Index.V)
	switch delta.Type {
	case "text_delta":
		s.add(b, model.TextBlock, string(delta.Text))
		return model.Delta{Text: string(delta.Text)}, nil
	case "thinking_delta":
		s.add(b, model.ThinkingBlock, string(delta.Thinking))
		return model.Delta{Thinking: string(delta.Thinking)}, nil
	case "signature_delta":
		if b != nil {
			b.signature.WriteString(string(delta.Signature))
			b.signed = true
		}
	case "citations_delta":
		if b != nil && len(delta.Citation) > 0 {
			b.citations = append(b.citations, delta.Citation.Clone())
		}
	case "input_json_delta":
		if b == nil {
			return d, &wire.Error{Message: "an event of the answer is not what it should be: arguments of no tool call"}
		}
		b.input = append(b.input, delta.PartialJSON...)
	}
	return d, nil
}

// add counts a piece of text or thinking for its block. Pieces out of the order
// of their blocks cannot be told apart afterwards.
func (s *state) add(b *open, kind model.BlockKind, text string) {
	if b == nil || b != s.blocks[len(s.blocks)-1] || kinds[b.kind] != kind {
		s.mixed = s.mixed || text != ""
		return
	}
	s.tally.Last().Bytes += len(text)
}

// find returns the last block with the index, or the last of all where the
// server does not number them.
func (s *state) find(index *wire.Count) *open {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		if b := s.blocks[i]; index == nil || b.index == nil || *b.index == *index {
			return b
		}
	}
	return nil
}

// fail ends an answer, and says what it has cost so far.
func (s *state) fail(err error, yield func(model.Delta, error) bool) {
	wire.Fail(s.total(), err, yield)
}

// end hands on the calls and why the message stopped, with the blocks as they
// came.
func (s *state) end(names wire.Names, maker string, yield func(model.Delta, error) bool) {
	stop, err := s.stop()
	if err != nil {
		s.fail(err, yield)
		return
	}
	blocks := s.tally.Blocks()
	if last := s.tally.Last(); stop == model.StopLength && last != nil && last.Kind == model.ThinkingBlock {
		s.mixed = true // it was cut before it was signed, and would be refused
	}
	for _, b := range s.blocks {
		to := &blocks[b.at]
		to.Data = b.data()
		if to.Kind != model.CallBlock {
			continue
		}
		to.ID = wire.Text(b.members.Get("id"))
		call := &model.ToolCall{ID: to.ID, Name: names.Ours(wire.Text(b.members.Get("name"))), Arguments: b.arguments()}
		if !yield(model.Delta{ToolCall: call}, nil) {
			return
		}
	}
	if s.mixed {
		maker, blocks = "", nil
	}
	yield(model.Delta{Stop: stop, Usage: s.total(), Maker: maker, Blocks: blocks}, nil)
}

// arguments are a tool_use's, in pieces or sent whole.
func (b *open) arguments() []byte {
	if len(b.input) > 0 {
		return b.input
	}
	return []byte(wire.Text(b.members.Get("input")))
}

// data is what the maker attached to a block: all its members but those that
// the message has, and a block of a kind of its own whole.
func (b *open) data() []byte {
	members, out := b.members, wire.Object{}
	if b.signed {
		signature, _ := jsontext.AppendQuote(nil, wire.Text(members.Get("signature"))+b.signature.String())
		members = members.Put(wire.Member{Name: "signature", Value: signature})
	}
	if b.citations != nil {
		members = members.Put(wire.Member{Name: "citations", Value: wire.Array(b.citations)})
	}
	_, known := kinds[b.kind]
	if !known && len(b.input) > 0 {
		members = members.Put(wire.Member{Name: "input", Value: b.input})
	}
	for _, m := range members {
		if own := m.Name == "type" || m.Name == "text" || m.Name == "thinking" || m.Name == "id" || m.Name == "name" ||
			m.Name == "input"; !own || !known {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out.JSON()
}

// stop says why the message ended. A reason that is not known is no success.
func (s *state) stop() (model.StopReason, error) {
	switch s.reason {
	case "refusal":
		return "", wire.Refused(s.reason, "the model refused to go on")
	case "max_tokens", "model_context_window_exceeded":
		return model.StopLength, nil
	case "", "end_turn", "tool_use", "stop_sequence", "pause_turn", "stop":
	default:
		return "", &wire.Error{Code: s.reason, Message: fmt.Sprintf("the provider ended its answer with %q", s.reason)}
	}
	for _, b := range s.blocks {
		if kinds[b.kind] == model.CallBlock {
			return model.StopToolCalls, nil
		}
	}
	return model.StopEnd, nil
}

// total is the usage, whose input counts what the cache held and took up too.
func (s *state) total() model.Usage {
	n := func(p *wire.Count) int64 {
		if p == nil {
			return 0
		}
		return int64(*p)
	}
	u := s.usage
	input := model.Usage{InputTokens: n(u.InputTokens)}.Add(model.Usage{InputTokens: n(u.CacheCreation)}).
		Add(model.Usage{InputTokens: n(u.CacheRead)})
	return model.Usage{
		InputTokens: input.InputTokens, OutputTokens: n(u.OutputTokens), CachedTokens: n(u.CacheRead),
		CacheWriteTokens: n(u.CacheCreation),
	}
}

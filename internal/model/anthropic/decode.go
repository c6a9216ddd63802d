package anthropic

import (
	"cmp"
	"encoding/json"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// event is any of the stream's events; Type says which members it has.
type event struct {
	Type         string         `json:"type"`
	Index        *int           `json:"index"`
	ContentBlock contentBlock   `json:"content_block"`
	Delta        delta          `json:"delta"`
	Error        jsontext.Value `json:"error"`
	Usage        *usage         `json:"usage"`
	Message      struct {
		Usage *usage `json:"usage"`
	} `json:"message"`
}

type contentBlock struct {
	Type      string         `json:"type"`
	Text      string         `json:"text"`
	Thinking  string         `json:"thinking"`
	Signature string         `json:"signature"`
	Data      string         `json:"data"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
}

type delta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	PartialJSON string `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

// usage is said in parts: what is absent later was said before.
type usage struct {
	InputTokens   *int64 `json:"input_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
	OutputTokens  *int64 `json:"output_tokens"`
}

// decoder decodes an answer; maker is put into its thinking blocks.
func decoder(names wire.Names, maker string) wire.Decoder {
	return func(events iter.Seq2[wire.Event, error]) iter.Seq2[model.Delta, error] {
		return func(yield func(model.Delta, error) bool) {
			var s state
			for e, err := range events {
				var d model.Delta
				stopped := false
				if err == nil {
					d, stopped, err = s.take(e)
				}
				switch {
				case err != nil:
					yield(model.Delta{}, err)
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
			yield(model.Delta{}, wire.Truncated(""))
		}
	}
}

// state is what has come of an answer.
type state struct {
	blocks []*open
	size   int // bytes of arguments and signatures
	reason string
	usage  usage
}

// open is a content block: what of it is handed on at the end.
type open struct {
	index *int
	contentBlock
	thinking  strings.Builder
	signature strings.Builder
	input     []byte
}

// take returns what an event has to hand on at once, and whether it is the
// last.
func (s *state) take(e wire.Event) (d model.Delta, stopped bool, err error) {
	if strings.TrimSpace(e.Data) == "" {
		return d, false, nil
	}
	var ev event
	if err := wire.Decode(e, &ev); err != nil {
		return d, false, err
	}
	switch cmp.Or(ev.Type, e.Type) {
	case "message_start":
		s.count(ev.Message.Usage)
	case "content_block_start":
		return s.begin(ev)
	case "content_block_delta":
		return s.extend(ev)
	case "message_delta":
		s.reason = cmp.Or(ev.Delta.StopReason, s.reason)
		s.count(ev.Usage)
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
	for _, p := range []struct{ to, from **int64 }{
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

func (s *state) begin(ev event) (d model.Delta, stopped bool, err error) {
	if len(s.blocks) == wire.MaxCalls {
		return d, false, wire.TooMuch()
	}
	b := &open{index: ev.Index, contentBlock: ev.ContentBlock}
	s.blocks = append(s.blocks, b)
	b.thinking.WriteString(b.Thinking)
	b.signature.WriteString(b.Signature)
	if s.size += len(b.Input) + len(b.Signature) + len(b.Data); s.size > wire.MaxContent {
		return d, false, wire.TooMuch()
	}
	if b.Thinking != "" {
		return model.Delta{Thinking: b.Thinking}, false, nil
	}
	return model.Delta{Text: b.Text}, false, nil
}

func (s *state) extend(ev event) (d model.Delta, stopped bool, err error) {
	if s.size += len(ev.Delta.PartialJSON) + len(ev.Delta.Signature); s.size > wire.MaxContent {
		return d, false, wire.TooMuch()
	}
	b := s.find(ev.Index)
	switch ev.Delta.Type {
	case "text_delta":
		return model.Delta{Text: ev.Delta.Text}, false, nil
	case "thinking_delta":
		if b != nil {
			b.thinking.WriteString(ev.Delta.Thinking)
		}
		return model.Delta{Thinking: ev.Delta.Thinking}, false, nil
	case "signature_delta":
		if b != nil {
			b.signature.WriteString(ev.Delta.Signature)
		}
	case "input_json_delta":
		if b == nil {
			return d, false, &wire.Error{Message: "an event of the answer is not what it should be: arguments of no tool call"}
		}
		b.input = append(b.input, ev.Delta.PartialJSON...)
	}
	return d, false, nil
}

// find returns the last block with the index, or the last of all where the
// server does not number them.
func (s *state) find(index *int) *open {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		if b := s.blocks[i]; index == nil || b.index == nil || *b.index == *index {
			return b
		}
	}
	return nil
}

// end hands on the blocks and the calls, and why the message stopped.
func (s *state) end(names wire.Names, maker string, yield func(model.Delta, error) bool) {
	if s.reason == "refusal" {
		yield(model.Delta{}, &wire.Error{Code: s.reason, Message: "the model refused to go on"})
		return
	}
	var thinking, calls []model.Delta
	for _, b := range s.blocks {
		switch b.Type {
		case "thinking":
			if signature := b.signature.String(); signature != "" {
				thinking = append(thinking, model.Delta{ThinkingBlock: &model.ThinkingBlock{Maker: maker, Text: b.thinking.String(), Signature: signature}})
			}
		case "redacted_thinking":
			thinking = append(thinking, model.Delta{ThinkingBlock: &model.ThinkingBlock{Maker: maker, Data: b.Data}})
		case "tool_use":
			arguments := b.input
			if len(arguments) == 0 {
				arguments = []byte(wire.Text(b.Input)) // sent whole
			}
			calls = append(calls, model.Delta{ToolCall: &model.ToolCall{ID: b.ID, Name: names.Ours(b.Name), Arguments: json.RawMessage(arguments)}})
		}
	}
	for _, d := range append(thinking, calls...) {
		if !yield(d, nil) {
			return
		}
	}
	stop := model.StopEnd
	switch {
	case s.reason == "max_tokens" || s.reason == "model_context_window_exceeded":
		stop = model.StopLength
	case len(calls) > 0:
		stop = model.StopToolCalls
	}
	yield(model.Delta{Stop: stop, Usage: s.total()}, nil)
}

// total is the usage, whose input counts what the cache held and took up too.
func (s *state) total() model.Usage {
	n := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	u := s.usage
	return model.Usage{
		InputTokens: n(u.InputTokens) + n(u.CacheCreation) + n(u.CacheRead), OutputTokens: n(u.OutputTokens), CachedTokens: n(u.CacheRead),
	}
}

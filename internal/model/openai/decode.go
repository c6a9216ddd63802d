package openai

import (
	"cmp"
	"encoding/json"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

type chunk struct {
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content string `json:"content"`
	Refusal string `json:"refusal"`
	// Thinking has one name or the other, or both with the same in them.
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"`
	ToolCalls        []fragment `json:"tool_calls"`
}

// fragment is a piece of a tool call. Arguments are a piece of text; some
// servers send the object itself.
type fragment struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	Details          struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// decoder decodes an answer. After the finish reason only the usage is waited
// for, and done without if the stream fails.
func decoder(names wire.Names) wire.Decoder {
	return func(events iter.Seq2[wire.Event, error]) iter.Seq2[model.Delta, error] {
		return func(yield func(model.Delta, error) bool) {
			var s state
			for e, err := range events {
				if err != nil && s.finish != "" {
					break
				}
				if err == nil && strings.TrimSpace(e.Data) == "[DONE]" {
					break
				}
				var deltas []model.Delta
				if err == nil {
					deltas, err = s.take(e)
				}
				for _, d := range deltas {
					if !yield(d, nil) {
						return
					}
				}
				if err != nil {
					yield(model.Delta{}, err)
					return
				}
				if s.finish != "" && s.usage != (model.Usage{}) {
					break // some servers keep the stream open
				}
			}
			s.end(names, yield)
		}
	}
}

// state is what has come of an answer.
type state struct {
	calls  calls
	finish string
	usage  model.Usage
}

// take returns what an event has to hand on at once.
func (s *state) take(e wire.Event) ([]model.Delta, error) {
	if strings.TrimSpace(e.Data) == "" {
		return nil, nil
	}
	var c chunk
	if err := wire.Decode(e, &c); err != nil {
		return nil, err
	}
	if kind := c.Error.Kind(); kind == jsontext.KindBeginObject || kind == jsontext.KindString || e.Type == "error" {
		if kind == jsontext.KindInvalid {
			return nil, wire.Failure(jsontext.Value(e.Data))
		}
		return nil, wire.Failure(c.Error)
	}
	if u := c.Usage; u != nil {
		s.usage = model.Usage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, CachedTokens: u.Details.CachedTokens}
	}
	var out []model.Delta
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue
		}
		d := ch.Delta
		if thinking := cmp.Or(d.ReasoningContent, d.Reasoning); thinking != "" {
			out = append(out, model.Delta{Thinking: thinking})
		}
		if text := d.Content + d.Refusal; text != "" {
			out = append(out, model.Delta{Text: text})
		}
		for _, f := range d.ToolCalls {
			if err := s.calls.add(f); err != nil {
				return out, err
			}
		}
		s.finish = cmp.Or(ch.FinishReason, s.finish)
	}
	return out, nil
}

// end hands on the calls and why the message stopped.
func (s *state) end(names wire.Names, yield func(model.Delta, error) bool) {
	stop := model.StopEnd
	switch s.finish {
	case "":
		yield(model.Delta{}, wire.Truncated(""))
		return
	case "error":
		yield(model.Delta{}, &wire.Error{Message: "the provider gave up in the middle of its answer"})
		return
	case "content_filter":
		yield(model.Delta{}, &wire.Error{Code: s.finish, Message: "the provider's content filter stopped the answer"})
		return
	case "length", "max_tokens", "model_length":
		stop = model.StopLength
	default:
		if len(s.calls.list) > 0 {
			stop = model.StopToolCalls
		}
	}
	for _, c := range s.calls.list {
		if !yield(model.Delta{ToolCall: &model.ToolCall{ID: c.id, Name: names.Ours(c.name), Arguments: json.RawMessage(c.arguments)}}, nil) {
			return
		}
	}
	yield(model.Delta{Stop: stop, Usage: s.usage}, nil)
}

// calls are the tool calls of an answer, in the order in which they began.
type calls struct {
	list []*call
	size int // bytes of arguments
}

type call struct {
	index     *int
	id, name  string
	arguments []byte
}

// add puts a fragment where it belongs. Real servers number the calls, or give
// each the number 0 and an id of its own, or neither, or send calls whole.
func (c *calls) add(f fragment) error {
	arguments := wire.Text(f.Function.Arguments)
	if c.size += len(arguments); c.size > wire.MaxContent {
		return wire.TooMuch()
	}
	to := c.open(f, arguments)
	if to == nil {
		if len(c.list) == wire.MaxCalls {
			return wire.TooMuch()
		}
		to = &call{index: f.Index}
		c.list = append(c.list, to)
	}
	to.id, to.name = cmp.Or(to.id, f.ID), cmp.Or(to.name, f.Function.Name)
	to.arguments = append(to.arguments, arguments...)
	return nil
}

// open returns the call that a fragment goes on with, nil if it begins one.
func (c *calls) open(f fragment, arguments string) *call {
	var to *call // with the fragment's id, else the last one
	for i := len(c.list) - 1; i >= 0; i-- {
		o := c.list[i]
		if f.Index != nil && o.index != nil && *o.index != *f.Index {
			continue
		}
		if f.ID != "" && o.id == f.ID {
			to = o
			break
		}
		if to == nil {
			to = o
		}
	}
	name := f.Function.Name
	switch {
	case to == nil || name == "" || to.name == "": // gateways make up an id for each fragment
		return to
	case f.ID != "" && to.id != "" && f.ID != to.id, name != to.name:
		return nil
	case whole(to.arguments) && strings.HasPrefix(strings.TrimLeft(arguments, " \t\r\n"), "{"):
		return nil
	}
	return to
}

// whole reports that arguments need no more.
func whole(arguments []byte) bool {
	n := len(arguments)
	return n > 0 && arguments[n-1] == '}' && jsontext.Value(arguments).IsValid()
}

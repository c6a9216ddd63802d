package openai

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

type chunk struct {
	Choices wire.Maybe[[]wire.Maybe[choice]] `json:"choices"`
	Usage   wire.Maybe[*usage]               `json:"usage"`
	Groq    wire.Maybe[struct {
		Usage wire.Maybe[*usage] `json:"usage"`
	}] `json:"x_groq"`
	Error jsontext.Value `json:"error"`
}

type choice struct {
	Index        wire.Count         `json:"index"`
	Delta        wire.Maybe[delta]  `json:"delta"`
	FinishReason wire.Str           `json:"finish_reason"`
	Usage        wire.Maybe[*usage] `json:"usage"`
}

// delta has thinking under one name, or under several with the same in them.
type delta struct {
	Content          jsontext.Value                     `json:"content"` // a text, or typed parts
	Refusal          wire.Str                           `json:"refusal"`
	ReasoningContent wire.Str                           `json:"reasoning_content"`
	Reasoning        wire.Str                           `json:"reasoning"`
	ReasoningText    wire.Str                           `json:"reasoning_text"`
	ReasoningDetails wire.Maybe[[]jsontext.Value]       `json:"reasoning_details"`
	ExtraContent     jsontext.Value                     `json:"extra_content"`
	ToolCalls        wire.Maybe[[]wire.Maybe[fragment]] `json:"tool_calls"`
}

// thought is the thinking of a delta, and the member that has it.
func (d *delta) thought() (member, text string) {
	for _, m := range []struct {
		name string
		text wire.Str
	}{{"reasoning_content", d.ReasoningContent}, {"reasoning", d.Reasoning}, {"reasoning_text", d.ReasoningText}} {
		if m.text != "" {
			return m.name, string(m.text)
		}
	}
	return "", ""
}

// fragment is a piece of a tool call. Arguments are a piece of text; some
// servers send the object itself. What else is in it goes back with the call.
type fragment struct {
	Index    wire.Maybe[*wire.Count] `json:"index"`
	ID       wire.Str                `json:"id"`
	Type     wire.Str                `json:"type"`
	Function wire.Maybe[struct {
		Name      wire.Str       `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	}] `json:"function"`
	Rest jsontext.Value `json:",embed"`
}

type usage struct {
	PromptTokens     wire.Count `json:"prompt_tokens"`
	CompletionTokens wire.Count `json:"completion_tokens"`
	Details          wire.Maybe[struct {
		CachedTokens     wire.Count `json:"cached_tokens"`
		CacheWriteTokens wire.Count `json:"cache_write_tokens"`
	}] `json:"prompt_tokens_details"`
	Output wire.Maybe[struct {
		ReasoningTokens wire.Count `json:"reasoning_tokens"`
	}] `json:"completion_tokens_details"`
}

// lastTime is how long the usage may take after the finish reason, or what a server
// sends of the message behind it.
const lastTime = 5 * time.Second

// decoder decodes an answer of that maker. After the finish reason only the
// usage is waited for, and done without if the stream fails or it takes too long.
func decoder(names wire.Names, maker string) wire.Decoder {
	return func(in wire.Answer) iter.Seq2[model.Delta, error] {
		return func(yield func(model.Delta, error) bool) {
			s := state{load: wire.Load{Hold: in.Hold}, calls: calls{load: wire.Load{Hold: in.Hold}}}
			for e, err := range in.Events {
				if err != nil && s.finish != "" {
					break
				}
				if err == nil && string(bytes.TrimSpace(e.Data)) == "[DONE]" {
					s.done = true
					break
				}
				var deltas []model.Delta
				s.more = s.finish == ""
				if err == nil {
					deltas, err = s.decodeEvent(e)
				}
				for _, d := range deltas {
					if !yield(d, nil) {
						return
					}
				}
				if err != nil {
					wire.Fail(s.usage, err, yield)
					return
				}
				if s.finish != "" && s.usage != (model.Usage{}) {
					break // some servers keep the stream open
				}
				if s.finished() && s.more {
					in.EndIn(lastTime)
				}
			}
			s.end(names, maker, yield)
		}
	}
}

// state is what has come of an answer.
type state struct {
	tally   wire.Tally
	think   splitter
	member  string // that the open thinking came under
	details details
	extra   jsontext.Value // extra_content of the message
	calls   calls
	load    wire.Load // of details and extra
	finish  string
	more    bool   // of the message has come, or came before the finish reason
	done    bool   // [DONE] came
	odd     string // why the first event that could not be read was not
	usage   model.Usage
}

// decodeEvent returns what an event has to hand on at once. One that cannot be read is
// passed over.
func (s *state) decodeEvent(e wire.Event) ([]model.Delta, error) {
	if len(bytes.TrimSpace(e.Data)) == 0 {
		return nil, nil
	}
	var c chunk
	if err := wire.Decode(e, &c); err != nil {
		s.odd = cmp.Or(s.odd, err.Error())
		return nil, nil
	}
	s.count(c.Usage.V)
	s.count(c.Groq.V.Usage.V)
	if kind := c.Error.Kind(); kind == jsontext.KindBeginObject || kind == jsontext.KindString || e.Type == "error" {
		if s.finish != "" {
			return nil, nil
		}
		if kind == jsontext.KindInvalid {
			return nil, wire.Failure(jsontext.Value(e.Data))
		}
		return nil, wire.Failure(c.Error)
	}
	var out []model.Delta
	for _, ch := range c.Choices.V {
		if ch.V.Index != 0 {
			continue
		}
		s.count(ch.V.Usage.V)
		deltas, err := s.choose(&ch.V.Delta.V)
		s.more = s.more || len(deltas)+len(ch.V.Delta.V.ToolCalls.V) > 0
		if out = append(out, deltas...); err != nil {
			return out, err
		}
		s.finish = cmp.Or(string(ch.V.FinishReason), s.finish)
	}
	return out, nil
}

func (s *state) count(u *usage) {
	if u != nil {
		s.usage = model.Usage{
			InputTokens: int64(u.PromptTokens), OutputTokens: int64(u.CompletionTokens),
			CachedTokens: int64(u.Details.V.CachedTokens), ReasoningTokens: int64(u.Output.V.ReasoningTokens),
			CacheWriteTokens: int64(u.Details.V.CacheWriteTokens),
		}
	}
}

func (s *state) choose(d *delta) (out []model.Delta, err error) {
	if member, text := d.thought(); text != "" {
		out = append(out, s.thought(member, text))
	}
	out = append(out, s.content(d.Content)...)
	if d.Refusal != "" {
		out = append(out, s.text(string(d.Refusal)))
	}
	if err := s.load.Add(len(d.ExtraContent)); err != nil {
		return out, err
	}
	for _, detail := range d.ReasoningDetails.V {
		if err := s.load.Add(len(detail)); err != nil {
			return out, err
		}
		if !s.details.add(detail) {
			return out, wire.TooMuch()
		}
	}
	if d.ExtraContent.Kind() == jsontext.KindBeginObject {
		s.extra = d.ExtraContent.Clone()
	}
	if len(s.tally.Blocks())+len(s.details.list) > wire.MaxBlocks {
		return out, wire.TooMuch()
	}
	for _, f := range d.ToolCalls.V {
		if err := s.calls.add(f.V, &s.tally); err != nil {
			return out, err
		}
	}
	return out, nil
}

// thought hands on thinking that came under the member.
func (s *state) thought(member, text string) model.Delta {
	if member != s.member {
		s.tally.Close()
		s.member = member
	}
	s.tally.Add(model.ThinkingBlock, text)
	if b := s.tally.Last(); b.Data == nil {
		b.Data = wire.Attach(thought{Member: member})
	}
	return model.Delta{Thinking: text}
}

func (s *state) text(text string) model.Delta {
	s.tally.Add(model.TextBlock, text)
	return model.Delta{Text: text}
}

// content hands on the content of a delta: a text, in which thinking may stand
// at the beginning, or typed parts (Mistral).
func (s *state) content(v jsontext.Value) (out []model.Delta) {
	switch v.Kind() {
	case jsontext.KindString:
		for _, piece := range s.think.split(wire.Text(v)) {
			if piece.thinking {
				out = append(out, s.thought(inContent, piece.text))
			} else {
				out = append(out, s.text(piece.text))
			}
		}
	case jsontext.KindBeginArray:
		for _, p := range partsOf(v) {
			if p.thinking {
				out = append(out, s.thought(inParts, p.text))
			} else {
				out = append(out, s.text(p.text))
			}
		}
	}
	return out
}

// end hands on the calls and why the message stopped.
func (s *state) end(names wire.Names, maker string, yield func(model.Delta, error) bool) {
	for _, piece := range s.think.rest() {
		d := s.text
		if piece.thinking {
			d = func(text string) model.Delta { return s.thought(inContent, text) }
		}
		if !yield(d(piece.text), nil) {
			return
		}
	}
	stop, err := s.stop()
	if err != nil {
		wire.Fail(s.usage, err, yield)
		return
	}
	s.attach()
	for _, c := range s.calls.list {
		if !yield(model.Delta{ToolCall: &model.ToolCall{ID: c.id, Name: names.Ours(c.name), Arguments: c.arguments}}, nil) {
			return
		}
	}
	yield(model.Delta{Stop: stop, Usage: s.usage, Maker: maker, Blocks: s.tally.Blocks()}, nil)
}

// The finish reasons of a message that is complete, and of one that was cut.
var (
	complete = []string{
		"stop", "tool_calls", "tool_call", "function_call", "end_turn", "end", "eos", "eos_token",
		"stop_sequence", "tool_use", "complete", "completed",
	}
	cut = []string{"length", "max_tokens", "model_length", "max_output_tokens"}
)

// finished reports a finish reason that is known: some servers send others, such as "null",
// with each piece.
func (s *state) finished() bool {
	finish := strings.ToLower(s.finish)
	return slices.Contains(complete, finish) || slices.Contains(cut, finish)
}

// stop says why the message ended. A reason that is not known is no success.
func (s *state) stop() (model.StopReason, error) {
	finish := strings.ToLower(s.finish)
	switch {
	case finish == "" && s.done && s.calls.whole():
		finish = "stop" // the text is complete, and so are the calls
	case finish == "":
		return "", wire.Truncated(s.odd)
	case finish == "error":
		return "", &wire.Error{Message: "the provider gave up in the middle of its answer"}
	case finish == "content_filter":
		return "", wire.Refused(finish, "the provider's content filter stopped the answer")
	}
	switch {
	case slices.Contains(cut, finish):
		return model.StopLength, nil
	case !slices.Contains(complete, finish):
		return "", &wire.Error{Code: s.finish, Message: fmt.Sprintf("the provider ended its answer with %q", s.finish)}
	case len(s.calls.list) > 0:
		return model.StopToolCalls, nil
	}
	return model.StopEnd, nil
}

// attach puts what the maker attached to the blocks it belongs to.
func (s *state) attach() {
	blocks := s.tally.Blocks()
	if at := s.think.block(blocks); at >= 0 {
		blocks[at].Data = wire.Attach(thought{Member: inContent, Open: s.think.open, Close: s.think.close})
	}
	for _, c := range s.calls.list {
		blocks[c.block].ID = c.id
		blocks[c.block].Data = wire.Attach(called{Type: c.kind, Written: written(c.arguments), Rest: c.rest.JSON()})
	}
	if data := wire.Attach(attached{s.details.values(), s.extra}); data != nil {
		s.tally.Open(model.Block{Kind: model.OpaqueBlock, Data: data})
	}
}

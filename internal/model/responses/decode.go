package responses

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
	Type        wire.Str                `json:"type"`
	OutputIndex wire.Maybe[*wire.Count] `json:"output_index"`
	Delta       wire.Str                `json:"delta"`
	Item        jsontext.Value          `json:"item"`
	Error       jsontext.Value          `json:"error"`
	Response    wire.Maybe[response]    `json:"response"`
}

type response struct {
	Status     wire.Str                     `json:"status"`
	Output     wire.Maybe[[]jsontext.Value] `json:"output"`
	Error      jsontext.Value               `json:"error"`
	Incomplete wire.Maybe[struct {
		Reason wire.Str `json:"reason"`
	}] `json:"incomplete_details"`
	Usage wire.Maybe[*usage] `json:"usage"`
}

type usage struct {
	InputTokens  wire.Count `json:"input_tokens"`
	OutputTokens wire.Count `json:"output_tokens"`
	Input        wire.Maybe[struct {
		CachedTokens     wire.Count `json:"cached_tokens"`
		CacheWriteTokens wire.Count `json:"cache_write_tokens"`
	}] `json:"input_tokens_details"`
	Output wire.Maybe[struct {
		ReasoningTokens wire.Count `json:"reasoning_tokens"`
	}] `json:"output_tokens_details"`
}

// item is what we read of an output item. It goes back as it came.
type item struct {
	Type      wire.Str              `json:"type"`
	Status    wire.Str              `json:"status"`
	CallID    wire.Str              `json:"call_id"`
	ID        wire.Str              `json:"id"`
	Name      wire.Str              `json:"name"`
	Arguments jsontext.Value        `json:"arguments"`
	Content   wire.Maybe[[]content] `json:"content"`
	Summary   wire.Maybe[[]content] `json:"summary"`
}

type content struct {
	Text    wire.Str `json:"text"`
	Refusal wire.Str `json:"refusal"`
}

// text is all that the parts say.
func text(parts []content, between string) string {
	var said []string
	for _, p := range parts {
		if t := cmp.Or(string(p.Text), string(p.Refusal)); t != "" {
			said = append(said, t)
		}
	}
	return strings.Join(said, between)
}

// kinds are those of the items that we read; any other is its maker's own.
var kinds = map[wire.Str]model.BlockKind{
	"message": model.TextBlock, "reasoning": model.ThinkingBlock,
	"function_call": model.CallBlock,
}

// decoder decodes an answer of that maker.
func decoder(names wire.Names, maker string) wire.Decoder {
	return func(in wire.Answer) iter.Seq2[model.Delta, error] {
		return func(yield func(model.Delta, error) bool) {
			s := state{names: names, maker: maker, load: wire.Load{Hold: in.Hold}}
			for e, err := range in.Events {
				var deltas []model.Delta
				if err == nil {
					deltas, err = s.decodeEvent(e)
				}
				for _, d := range deltas {
					if !yield(d, nil) || d.Stop != "" {
						return
					}
				}
				if err != nil {
					wire.Fail(s.usage, err, yield)
					return
				}
			}
			wire.Fail(s.usage, wire.Truncated(s.odd), yield)
		}
	}
}

// state is what has come of an answer.
type state struct {
	names wire.Names
	maker string
	tally wire.Tally
	items []*output
	load  wire.Load // of items
	mixed bool
	odd   string // why the first event that could not be read was not
	usage model.Usage
}

// output is an output item on its way.
type output struct {
	index *wire.Count
	kind  model.BlockKind
	said  bool // some of its text was handed on
	part  bool // a further part of the thinking has begun
	done  bool
	item  item
	at    int // its place among the tally's blocks
}

// decodeEvent returns what an event has to hand on. One that cannot be read is passed
// over.
func (s *state) decodeEvent(e wire.Event) ([]model.Delta, error) {
	if data := string(bytes.TrimSpace(e.Data)); data == "" || data == "[DONE]" {
		return nil, nil
	}
	var ev event
	if err := wire.Decode(e, &ev); err != nil {
		s.odd = cmp.Or(s.odd, err.Error())
		return nil, nil
	}
	s.count(ev.Response.V.Usage.V)
	switch kind := cmp.Or(string(ev.Type), e.Type); kind {
	case "response.created":
		if len(s.items) > 0 {
			return nil, wire.BeginsAgain()
		}
	case "response.output_item.added":
		_, err := s.beginOutput(ev.OutputIndex.V, ev.Item)
		return nil, err
	case "response.output_item.done":
		return s.finish(ev.OutputIndex.V, ev.Item)
	case "response.output_text.delta", "response.refusal.delta":
		return s.extend(ev, model.TextBlock)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return s.extend(ev, model.ThinkingBlock)
	case "response.reasoning_summary_part.added":
		if o := s.find(ev.OutputIndex.V); o != nil {
			o.part = o.said
		}
	case "response.completed", "response.incomplete", "response.done":
		return s.end(ev.Response.V)
	case "response.failed", "response.cancelled":
		if err := ev.Response.V.Error; err.Kind() == jsontext.KindBeginObject {
			return nil, wire.Failure(err)
		}
		return nil, &wire.Error{Message: "the provider gave up in the middle of its answer"}
	case "error":
		if ev.Error.Kind() == jsontext.KindBeginObject || ev.Error.Kind() == jsontext.KindString {
			return nil, wire.Failure(ev.Error)
		}
		return nil, wire.Failure(jsontext.Value(e.Data))
	}
	return nil, nil // what is said twice, and what will come to be
}

// count takes the usage; where there is none the former stays.
func (s *state) count(u *usage) {
	if u != nil {
		s.usage = model.Usage{
			InputTokens: int64(u.InputTokens), OutputTokens: int64(u.OutputTokens),
			CachedTokens: int64(u.Input.V.CachedTokens), ReasoningTokens: int64(u.Output.V.ReasoningTokens),
			CacheWriteTokens: int64(u.Input.V.CacheWriteTokens),
		}
	}
}

// beginOutput opens the block of an item.
func (s *state) beginOutput(index *wire.Count, v jsontext.Value) (*output, error) {
	if len(s.items) == wire.MaxCalls {
		return nil, wire.TooMuch()
	}
	if err := s.load.Add(len(v)); err != nil {
		return nil, err
	}
	var it item
	if wire.Read(v, &it) != nil {
		it = item{}
	}
	o := &output{index: index, kind: model.OpaqueBlock, at: len(s.items), item: it}
	if kind, known := kinds[it.Type]; known {
		o.kind = kind
	}
	s.items = append(s.items, o)
	s.tally.Open(model.Block{Kind: o.kind})
	return o, nil
}

// find returns the item with that index, or the last one that is not done where
// the server does not number them.
func (s *state) find(index *wire.Count) *output {
	for i := len(s.items) - 1; i >= 0; i-- {
		if o := s.items[i]; index == nil && !o.done || index != nil && o.index != nil && *o.index == *index {
			return o
		}
	}
	return nil
}

// extend hands on a piece of text or thinking.
func (s *state) extend(ev event, kind model.BlockKind) ([]model.Delta, error) {
	o := s.find(ev.OutputIndex.V)
	if o == nil { // it was not announced
		var err error
		if o, err = s.beginOutput(ev.OutputIndex.V, nil); err != nil {
			return nil, err
		}
		o.kind, s.tally.Last().Kind = kind, kind
	}
	text := string(ev.Delta)
	if o.part && text != "" {
		text, o.part = "\n\n"+text, false
	}
	return s.say(o, kind, text), nil
}

// say hands on what an item says. A piece out of the order of the items cannot
// be told apart afterwards.
func (s *state) say(o *output, kind model.BlockKind, text string) []model.Delta {
	if text == "" {
		return nil
	}
	o.said = true
	if o == s.items[len(s.items)-1] && o.kind == kind {
		s.tally.Last().Bytes += len(text)
	} else {
		s.mixed = true
	}
	if kind == model.ThinkingBlock {
		return []model.Delta{{Thinking: text}}
	}
	return []model.Delta{{Text: text}}
}

// finish keeps an item that is whole, and hands on its text where that did not
// come in pieces.
func (s *state) finish(index *wire.Count, v jsontext.Value) ([]model.Delta, error) {
	if err := s.load.Add(len(v)); err != nil {
		return nil, err
	}
	var it item
	if wire.Read(v, &it) != nil {
		it = item{}
	}
	o := s.find(index)
	switch {
	case o != nil && o.done && it.CallID != "" && it.CallID == o.item.CallID:
		return nil, nil // it is reported twice
	case o == nil || o.done:
		var err error
		if o, err = s.beginOutput(index, v); err != nil {
			return nil, err
		}
	}
	o.done, o.item = true, it
	if kind, known := kinds[it.Type]; known && o.kind != kind {
		s.mixed = s.mixed || o.said // it turned out to be something else
		o.kind, s.tally.Blocks()[o.at].Kind = kind, kind
	}
	if it.Status != "incomplete" { // such a one is not taken back
		s.tally.Blocks()[o.at].Data = []byte(v.Clone())
	}
	switch {
	case o.said:
		return nil, nil
	case o.kind == model.TextBlock:
		return s.say(o, o.kind, text(it.Content.V, "")), nil
	case o.kind == model.ThinkingBlock:
		return s.say(o, o.kind, cmp.Or(text(it.Summary.V, "\n\n"), text(it.Content.V, "\n\n"))), nil
	}
	return nil, nil
}

// end hands on the calls and why the message stopped.
func (s *state) end(r response) (out []model.Delta, err error) {
	if len(s.items) == 0 { // it came all at once
		for _, v := range r.Output.V {
			deltas, err := s.finish(nil, v)
			if out = append(out, deltas...); err != nil {
				return out, err
			}
		}
	}
	stop := model.StopEnd
	switch reason := r.Incomplete.V.Reason; {
	case r.Status == "failed" && r.Error.Kind() == jsontext.KindBeginObject:
		return out, wire.Failure(r.Error)
	case r.Status != "incomplete" && reason == "":
	case reason == "max_output_tokens", reason == "max_tokens":
		stop = model.StopLength
	case reason == "content_filter":
		return out, wire.Refused(string(reason), "the provider's content filter stopped the answer")
	default:
		return out, &wire.Error{Code: string(reason), Message: fmt.Sprintf("the provider ended its answer with %q",
			cmp.Or(reason, r.Status))}
	}
	blocks := s.tally.Blocks()
	for _, o := range s.items {
		if o.kind != model.CallBlock {
			continue
		}
		if stop == model.StopEnd {
			stop = model.StopToolCalls
		}
		b := &blocks[o.at]
		b.ID = string(cmp.Or(o.item.CallID, o.item.ID))
		arguments := []byte(wire.Text(o.item.Arguments))
		if !jsontext.Value(arguments).IsValid() {
			b.Data = nil // is not taken back
		}
		out = append(out, model.Delta{ToolCall: &model.ToolCall{
			ID: b.ID, Name: s.names.Ours(string(o.item.Name)),
			Arguments: arguments,
		}})
	}
	last := model.Delta{Stop: stop, Maker: s.maker, Blocks: blocks, Usage: s.usage}
	if s.mixed {
		last.Maker, last.Blocks = "", nil
	}
	return append(out, last), nil
}

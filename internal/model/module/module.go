// Package module lets an Amplifier provider module be the model (tools.md §4):
// one request, op "generate", and the whole message back.
//
// Concurrency: any number of streams may run at once, as far as the module
// itself does.
//
// It refuses to retry: nobody knows what the first attempt cost.
package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// Invoke asks the provider module: args and the result are JSON.
type Invoke func(ctx context.Context, op string, args jsontext.Value) (jsontext.Value, error)

// Model is a provider module.
type Model struct {
	Invoke Invoke
}

// request is the args of generate.
type request struct {
	Messages []model.Message `json:"messages"`
	Tools    []spec          `json:"tools"`
	System   string          `json:"system"`
}

type spec struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Params      jsontext.Value `json:"params"`
}

// answer is the result of generate. StopReason is "end", "tool_calls" or
// "length"; absent, it follows from the calls.
type answer struct {
	Text       string           `json:"text"`
	Thinking   string           `json:"thinking"`
	ToolCalls  []model.ToolCall `json:"tool_calls"`
	StopReason string           `json:"stop_reason"`
	Usage      usage            `json:"usage"`
}

// usage is model.Usage as far as it can be read: what is odd in it must not cost
// the message.
type usage model.Usage

// UnmarshalJSON reads any value.
func (u *usage) UnmarshalJSON(text []byte) error {
	var n struct {
		Input     wire.Count `json:"input_tokens"`
		Output    wire.Count `json:"output_tokens"`
		Cached    wire.Count `json:"cached_tokens"`
		Reasoning wire.Count `json:"reasoning_tokens"`
	}
	if wire.Read(text, &n) == nil {
		*u = usage{
			InputTokens: int64(n.Input), OutputTokens: int64(n.Output), CachedTokens: int64(n.Cached),
			ReasoningTokens: int64(n.Reasoning),
		}
	}
	return nil
}

// Stream yields the module's message: its thinking, its text, its calls.
func (m Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		got, err := m.generate(ctx, req)
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		if got.Thinking != "" && !yield(model.Delta{Thinking: got.Thinking}, nil) {
			return
		}
		if got.Text != "" && !yield(model.Delta{Text: got.Text}, nil) {
			return
		}
		for _, call := range got.ToolCalls {
			if !yield(model.Delta{ToolCall: &call}, nil) {
				return
			}
		}
		yield(model.Delta{Stop: model.StopReason(got.StopReason), Usage: model.Usage(got.Usage)}, nil)
	}
}

// problem says in the module's words what the decoder says in Go's.
func problem(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return t.Field + ": cannot be a JSON " + t.Value
	}
	return err.Error()
}

// embed has a message hold what its attachments show: a module gets it in one JSON
// text.
func embed(m *model.Message) (err error) {
	m.Attachments = slices.Clone(m.Attachments)
	for i := range m.Attachments {
		if m.Attachments[i].Data, err = m.Attachments[i].Content(); err != nil {
			return fmt.Errorf("%s: %w", m.Attachments[i].Title(), err)
		}
	}
	return nil
}

// arguments are those of generate, as JSON.
func arguments(req model.Request) ([]byte, error) {
	req, done, err := req.Loaded(0)
	if err != nil {
		return nil, err
	}
	defer done()
	out := request{Messages: make([]model.Message, len(req.Messages)), Tools: []spec{}, System: wire.WithOutput(req, true)}
	for i, msg := range req.Messages {
		msg.Maker, msg.Blocks = "", nil // they go to the provider that made them and to no other
		if err := embed(&msg); err != nil {
			return nil, err
		}
		out.Messages[i] = msg
	}
	for _, t := range req.Tools {
		out.Tools = append(out.Tools, spec{t.Name, t.Description, jsontext.Value(t.Params)})
	}
	return json.Marshal(out)
}

func (m Model) generate(ctx context.Context, req model.Request) (answer, error) {
	args, err := arguments(req)
	if err != nil {
		return answer{}, err
	}
	result, err := m.Invoke(ctx, "generate", args)
	if err != nil {
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		return answer{}, err
	}
	var got answer
	if err := json.Unmarshal(result, &got); err != nil {
		return answer{}, fmt.Errorf("the result of generate is not what it should be: %s", problem(err))
	}
	for i, call := range got.ToolCalls {
		if call.Name == "" {
			return answer{}, fmt.Errorf("the result of generate is not what it should be: tool_calls.%d has no name", i)
		}
	}
	switch model.StopReason(got.StopReason) {
	case model.StopEnd, model.StopToolCalls, model.StopLength:
	case "":
		got.StopReason = string(model.StopEnd)
	default:
		return answer{}, fmt.Errorf("the result of generate is not what it should be: stop_reason is %.40q", got.StopReason)
	}
	if len(got.ToolCalls) > 0 && got.StopReason == string(model.StopEnd) {
		got.StopReason = string(model.StopToolCalls)
	}
	return got, nil
}

// Package responses speaks OpenAI's Responses API, which its own current models
// want for tools, and Azure's (models-today.md §2).
//
// Concurrency: any number of streams may run at once.
//
// It refuses to leave anything with the server: requests are not stored, and
// what the model thought comes back encrypted and goes along with the next
// request, as it came.
package responses

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// BaseURL is OpenAI's own.
const BaseURL = "https://api.openai.com/v1"

// wireName is this wire's part of a maker's label.
const wireName = "responses"

var defaults = wire.Defaults{
	BaseURL: BaseURL, Reserved: []string{"include", "input", "instructions", "model", "store", "stream", "tools"},
	Other: `this was asked over the Responses API; wire = "chat" asks over chat completions`,
}

// Model is one model of one server.
type Model struct {
	client *wire.Client
	// What the server refused to be asked for: models that do not reason have
	// nothing to encrypt, and some accounts may not see summaries.
	noSecrets, noSummary, noReasoning atomic.Bool
}

// New returns a model, or an error that names the option that is wrong. Without
// a BaseURL it is OpenAI's.
func New(o wire.Options) (*Model, error) {
	client, err := wire.New(o, defaults)
	if err != nil {
		return nil, err
	}
	return &Model{client: client}, nil
}

// Close closes the connections that are kept for later streams.
func (m *Model) Close() { m.client.Close() }

// Stream yields one assistant message: text and summaries of the thinking as
// they come, then the tool calls, then Stop with the usage and the blocks. It
// ends when ctx does, with its cause. Errors are *wire.Error;
// model.ErrContextTooLong and model.ErrTruncated are told apart with errors.Is.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return wire.Stream(ctx, m.client, wire.Wire[*request]{
		Path: "responses", Header: wire.Bearer(m.client.Options()), Encode: m.encode, Learn: m.learn,
		Decode: func(names wire.Names) wire.Decoder { return decoder(names, m.client.Maker(wireName)) },
	}, req)
}

// noInclude are the ways of saying that encrypted reasoning cannot be asked for.
// The word alone is in other refusals.
var noInclude = []string{
	"encrypted content is not supported", "'include", `"include`, "`include", "include:",
	"include[",
}

// learn reports whether a refusal was about something that the next request is
// made without.
func (m *Model) learn(why *wire.Error, sent *request) bool {
	text := strings.ToLower(why.Message)
	switch {
	case strings.Contains(text, "summar") && sent.Reasoning != nil && sent.Reasoning.Summary != "":
		m.noSummary.Store(true)
	case len(sent.Include) > 0 && slices.ContainsFunc(noInclude, func(s string) bool { return strings.Contains(text, s) }):
		m.noSecrets.Store(true)
	case strings.Contains(text, "reasoning") && strings.Contains(text, "support") && sent.Reasoning != nil &&
		sent.Reasoning.Effort == "":
		m.noReasoning.Store(true)
	default:
		return false
	}
	return true
}

// Package openai speaks the chat completions of OpenAI, and of everything that
// speaks them too: Ollama, llama.cpp, vLLM, LM Studio, OpenRouter, Gemini's
// compatible endpoint (models.md).
//
// Concurrency: any number of streams may run at once.
//
// It refuses to be strict about what servers send: tool calls come in four
// ways, usage at any time or never. About the end it is: no finish reason, no
// message.
package openai

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// BaseURL is OpenAI's own.
const BaseURL = "https://api.openai.com/v1"

var defaults = wire.Defaults{
	BaseURL: BaseURL, Reserved: []string{"messages", "model", "stream", "tools"},
	Other: `this was asked over chat completions; wire = "responses" asks over the Responses API`,
}

// Model is one model of one server.
type Model struct {
	client *wire.Client
	// What the server refused: to be asked for usage, and marks for its cache.
	noUsage, noMarks atomic.Bool
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

// Stream yields one assistant message: text and thinking as they come, then the
// tool calls, then Stop with the usage. It ends when ctx does, with its cause.
// Errors are *wire.Error; model.ErrContextTooLong and model.ErrTruncated are
// told apart with errors.Is.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return wire.Stream(ctx, m.client, wire.Wire[*request]{
		Path: "chat/completions", Header: wire.Bearer(m.client.Options()), Encode: m.encode, Learn: m.learn,
		Decode: func(names wire.Names) wire.Decoder { return decoder(names, m.client.Maker(wireName)) },
	}, req)
}

// Models asks a server for its models, sorted by their names; Model of the options
// is not looked at. What bounds it, and its errors, are those of wire.Models.
func Models(ctx context.Context, o wire.Options) ([]wire.Listed, error) {
	list := defaults
	list.Other = ""
	return wire.Models(ctx, o, list, "models", wire.Bearer(o))
}

// learn reports whether a refusal was about something that the next request is
// made without.
func (m *Model) learn(why *wire.Error, sent *request) bool {
	switch {
	case sent.StreamOptions != nil && (strings.Contains(why.Message, "stream_options") ||
		strings.Contains(why.Message, "include_usage")):
		m.noUsage.Store(true)
	case sent.marked && strings.Contains(why.Message, "cache_control"):
		m.noMarks.Store(true)
	default:
		return false
	}
	return true
}

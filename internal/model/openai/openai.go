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
	"errors"
	"iter"
	"net/http"
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
	// noUsage is set when the server refused to be asked for usage.
	noUsage atomic.Bool
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
	return func(yield func(model.Delta, error) bool) {
		names := wire.NewNames(req)
		header := wire.Bearer(m.client.Options())
		for {
			usage, refused := !m.noUsage.Load(), false
			body := encode(m.client, req, names, usage)
			for d, err := range m.client.Stream(ctx, "chat/completions", header, body, decoder(names, m.client.Maker(wireName))) {
				if refused = usage && refusesUsage(err); refused {
					m.noUsage.Store(true)
					break
				}
				if !yield(d, err) {
					return
				}
			}
			if !refused {
				return
			}
		}
	}
}

// Models asks a server for the names of its models, sorted; Model of the options
// is not looked at. What bounds it, and its errors, are those of wire.Models.
func Models(ctx context.Context, o wire.Options) ([]string, error) {
	list := defaults
	list.Other = ""
	return wire.Models(ctx, o, list, "models", wire.Bearer(o))
}

// refusesUsage reports an error of a server that knows no stream_options.
func refusesUsage(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) &&
		(strings.Contains(e.Message, "stream_options") || strings.Contains(e.Message, "include_usage"))
}

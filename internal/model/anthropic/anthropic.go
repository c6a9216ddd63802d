// Package anthropic speaks Anthropic's messages (models.md).
//
// Concurrency: any number of streams may run at once.
//
// It refuses to take a message for complete that has no message_stop, and to
// send thinking to anybody but the host that signed it.
package anthropic

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// BaseURL is Anthropic's own; /v1 need not be there.
const BaseURL = "https://api.anthropic.com"

// DefaultMaxOutputTokens is sent where nothing is configured: the API wants a
// number, and a model that can do less refuses with one it can.
const DefaultMaxOutputTokens = 32000

var defaults = wire.Defaults{BaseURL: BaseURL, Reserved: []string{"messages", "model", "stream", "system", "tools"}}

// Model is one model of one server.
type Model struct {
	client *wire.Client
}

// New returns a model, or an error that names the option that is wrong. Without
// a BaseURL it is Anthropic's.
func New(o wire.Options) (*Model, error) {
	client, err := wire.New(root(o), defaults)
	if err != nil {
		return nil, err
	}
	return &Model{client: client}, nil
}

// Close closes the connections that are kept for later streams.
func (m *Model) Close() { m.client.Close() }

// Stream yields one assistant message: text and thinking as they come, then the
// tool calls, then Stop with the usage and the blocks. It ends when ctx
// does, with its cause. Errors are *wire.Error; model.ErrContextTooLong and
// model.ErrTruncated are told apart with errors.Is.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return wire.Stream(ctx, m.client, wire.Wire[*request]{
		Path: "v1/messages", Header: authorized(m.client.Options()),
		Encode: func(req model.Request, names wire.Names) *request { return encode(m.client, req, names) },
		Decode: func(names wire.Names) wire.Decoder { return decoder(names, m.client.Maker(wireName)) },
	}, req)
}

// Models asks a server for its models, sorted by their names; Model of the options
// is not looked at. What bounds it, and its errors, are those of wire.Models.
func Models(ctx context.Context, o wire.Options) ([]wire.Listed, error) {
	return wire.Models(ctx, root(o), defaults, "v1/models?limit=1000", authorized(o)) // 20 without a limit
}

// root has the base URL without its /v1.
func root(o wire.Options) wire.Options {
	if u, err := url.Parse(o.BaseURL); err == nil {
		u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
		o.BaseURL = u.String()
	}
	return o
}

func authorized(o wire.Options) http.Header {
	header := http.Header{"Anthropic-Version": {"2023-06-01"}}
	if o.APIKey != "" {
		header.Set("X-Api-Key", o.APIKey)
	}
	return header
}

// wireName is this wire's part of a maker's label.
const wireName = "messages"

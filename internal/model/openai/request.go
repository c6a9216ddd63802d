package openai

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

type request struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	Tools         []tool         `json:"tools,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitzero"`
	// OpenAI's newer models refuse max_tokens, most other servers know nothing else.
	MaxTokens           int `json:"max_tokens,omitzero"`
	MaxCompletionTokens int `json:"max_completion_tokens,omitzero"`
	effort

	ResponseFormat *responseFormat `json:"response_format,omitzero"`

	marked bool // for a cache
	shown  wire.Pictures
}

// Shown are the pictures.
func (r *request) Shown() *wire.Pictures { return &r.shown }

// Forget keeps what learn looks at.
func (r *request) Forget() { *r = request{StreamOptions: r.StreamOptions, marked: r.marked} }

// responseFormat is what the answer has to be like.
type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema wire.Output `json:"json_schema"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// message has a string, a list of parts or null for its content. Thinking goes
// back under the name that it came with, and may be empty.
type message struct {
	Role             string     `json:"role"`
	Content          any        `json:"content"`
	ReasoningContent *string    `json:"reasoning_content,omitzero"`
	Reasoning        *string    `json:"reasoning,omitzero"`
	ReasoningText    *string    `json:"reasoning_text,omitzero"`
	ToolCalls        []toolCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitzero"`
	Name             string     `json:"name,omitzero"`
	attached
}

type part struct {
	Type         string        `json:"type"`
	Text         string        `json:"text,omitzero"`
	Thinking     []part        `json:"thinking,omitempty"`
	ImageURL     *imageURL     `json:"image_url,omitzero"`
	CacheControl *cacheControl `json:"cache_control,omitzero"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type imageURL struct {
	URL string `json:"url"`
}

type toolCall struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Function function       `json:"function"`
	Rest     jsontext.Value `json:",embed"`
}

// function has its arguments as a text.
type function struct {
	Name      string      `json:"name"`
	Arguments wire.Quoted `json:"arguments"`
}

type tool struct {
	Type     string `json:"type"`
	Function spec   `json:"function"`
}

type spec struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters"`
}

func (m *Model) encode(req model.Request, names wire.Names) *request {
	c := m.client
	o := c.Options()
	req.Repair.Bridged = req.Repair.Bridged || mistral(o.Model, c.Host())
	req.Repair.PlainSchemas = req.Repair.PlainSchemas || gemini(o.Model, c.Host())
	req.Messages = shownAfter(req)
	out := &request{Model: o.Model, Stream: true}
	if req.Output != nil && !req.Repair.ToldOutput && !req.Summary {
		out.ResponseFormat = &responseFormat{"json_schema", wire.NativeOutput(req.Output)}
		// Many servers take the field and do nothing about it.
		req.Repair.ToldOutput = c.Host() != "api.openai.com"
	}
	system, messages, tools := wire.Ask(req, c.Maker(wireName))
	out.Messages = make([]message, 0, len(messages)+1)
	if c.Host() == "api.openai.com" {
		out.MaxCompletionTokens = o.MaxOutputTokens
	} else {
		out.MaxTokens = o.MaxOutputTokens
	}
	if !m.noUsage.Load() {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if system != "" {
		out.Messages = append(out.Messages, message{Role: "system", Content: system})
	}
	for i := range messages {
		out.Messages = append(out.Messages, encodeMessage(&messages[i], names, &out.shown))
	}
	out.think(c.Options().Model, c.Host())
	out.effort = effortOf(req.Effort)
	if out.marked = marks(c) && !m.noMarks.Load(); out.marked {
		out.mark()
	}
	for _, t := range tools {
		out.Tools = append(out.Tools, tool{Type: "function", Function: spec{
			Name: names.There(t.Name), Description: t.Description, Parameters: wire.Schema(t.Params),
		}})
	}
	return out
}

func encodeMessage(m *wire.Entry, names wire.Names, shown *wire.Pictures) message {
	switch m.Role {
	case model.Tool:
		return message{Role: "tool", Content: m.Text, ToolCallID: m.ToolCallID, Name: names.There(m.ToolName)}
	case model.Assistant:
		return said(m, names)
	}
	if len(m.Attachments) == 0 {
		return message{Role: "user", Content: m.Text}
	}
	var parts []part
	if m.Text != "" {
		parts = append(parts, part{Type: "text", Text: m.Text})
	}
	for _, a := range m.Attachments {
		if !strings.HasPrefix(a.MediaType, "image/") {
			parts = append(parts, part{Type: "text", Text: wire.LeftOut(a)})
			continue
		}
		parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{
			URL: "data:" + a.MediaType + ";base64," + shown.Base64(a),
		}})
	}
	return message{Role: "user", Content: parts}
}

package anthropic

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

type request struct {
	Model      string      `json:"model"`
	MaxTokens  int         `json:"max_tokens"`
	System     []block     `json:"system,omitempty"`
	Messages   []message   `json:"messages"`
	Tools      []tool      `json:"tools,omitempty"`
	ToolChoice *toolChoice `json:"tool_choice,omitzero"`
	Stream     bool        `json:"stream"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a piece of content: Text; ID, Name and Input of a tool_use;
// ToolUseID, Content and IsError of a tool_result; Source of an image or
// document; Thinking and Signature, or Data of a redacted_thinking.
type block struct {
	Type         string         `json:"type"`
	Text         string         `json:"text,omitzero"`
	ID           string         `json:"id,omitzero"`
	Name         string         `json:"name,omitzero"`
	Input        jsontext.Value `json:"input,omitzero"`
	ToolUseID    string         `json:"tool_use_id,omitzero"`
	Content      string         `json:"content,omitzero"`
	IsError      bool           `json:"is_error,omitzero"`
	Source       *source        `json:"source,omitzero"`
	Thinking     *string        `json:"thinking,omitzero"` // may be empty and has to be there
	Signature    string         `json:"signature,omitzero"`
	Data         string         `json:"data,omitzero"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // base64
}

type cacheControl struct {
	Type string `json:"type"`
}

type tool struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	InputSchema jsontext.Value `json:"input_schema"`
}

type toolChoice struct {
	Type string `json:"type"`
}

func encode(c *wire.Client, req model.Request, names wire.Names) request {
	o := c.Options()
	system, messages, tools := wire.Ask(req)
	out := request{Model: o.Model, MaxTokens: o.MaxOutputTokens, Messages: []message{}, Stream: true}
	if out.MaxTokens == 0 {
		out.MaxTokens = DefaultMaxOutputTokens
	}
	for _, m := range messages {
		out.add(m, names, maker(c))
	}
	for _, t := range tools {
		out.Tools = append(out.Tools, tool{names.There(t.Name), t.Description, wire.Schema(t.Params)})
	}
	if len(tools) == 0 {
		out.recall(messages, names)
	}
	// The next request begins like this one: what is marked need not be read anew.
	if system != "" {
		out.System = []block{{Type: "text", Text: system, CacheControl: &cacheControl{"ephemeral"}}}
	}
	if n := len(out.Messages); n > 0 {
		content := out.Messages[n-1].Content
		content[len(content)-1].CacheControl = &cacheControl{"ephemeral"}
	}
	return out
}

// add appends a message. User messages that follow each other, and the results
// of tools before them, become one of several blocks: roles take turns here.
func (r *request) add(m model.Message, names wire.Names, maker string) {
	role, content := "user", []block(nil)
	switch m.Role {
	case model.Tool:
		content = []block{{Type: "tool_result", ToolUseID: m.ToolCallID, Content: m.Text, IsError: !m.OK}}
	case model.Assistant:
		role, content = "assistant", said(m, names, maker)
	default:
		content = shown(m)
	}
	if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == role {
		r.Messages[n-1].Content = append(r.Messages[n-1].Content, content...)
		return
	}
	r.Messages = append(r.Messages, message{role, content})
}

// said is the content of an assistant message: the thinking that this provider
// made, the text, the calls. It is never empty (wire.Conversation).
func said(m model.Message, names wire.Names, maker string) (content []block) {
	for _, t := range m.ThinkingBlocks {
		switch {
		case t.Maker != maker:
		case t.Data != "":
			content = append(content, block{Type: "redacted_thinking", Data: t.Data})
		default:
			content = append(content, block{Type: "thinking", Thinking: &t.Text, Signature: t.Signature})
		}
	}
	if strings.TrimSpace(m.Text) != "" { // a blank text is refused
		content = append(content, block{Type: "text", Text: m.Text})
	}
	for _, c := range m.ToolCalls {
		content = append(content, block{Type: "tool_use", ID: c.ID, Name: names.There(c.Name), Input: jsontext.Value(c.Arguments)})
	}
	return content
}

// shown is the content of a user message, never empty.
func shown(m model.Message) (content []block) {
	for _, a := range m.Attachments {
		switch {
		case strings.HasPrefix(a.MediaType, "image/"):
			content = append(content, block{Type: "image", Source: &source{"base64", a.MediaType, a.Data}})
		case a.MediaType == "application/pdf":
			content = append(content, block{Type: "document", Source: &source{"base64", a.MediaType, a.Data}})
		default:
			content = append(content, block{Type: "text", Text: wire.LeftOut(a)})
		}
	}
	switch {
	case strings.TrimSpace(m.Text) != "":
		content = append(content, block{Type: "text", Text: m.Text})
	case len(content) == 0:
		content = []block{{Type: "text", Text: "(nothing)"}}
	}
	return content
}

// recall names the tools that were called, where there are none to call now: a
// conversation with calls is refused when there are no tools at all.
func (r *request) recall(messages []model.Message, names wire.Names) {
	known := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			if name := names.There(c.Name); !known[name] {
				known[name] = true
				r.Tools = append(r.Tools, tool{name, "Not available any more.", wire.Schema(nil)})
				r.ToolChoice = &toolChoice{"none"}
			}
		}
	}
}

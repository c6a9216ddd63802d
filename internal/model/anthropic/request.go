package anthropic

import (
	"slices"
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

	Thinking     *thinking     `json:"thinking,omitzero"`
	OutputConfig *outputConfig `json:"output_config,omitzero"`

	shown wire.Pictures
}

// Shown are the pictures.
func (r *request) Shown() *wire.Pictures { return &r.shown }

// Forget keeps nothing: no refusal is learned from.
func (r *request) Forget() { *r = request{} }

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a piece of content: Text; ID, Name and Input of a tool_use;
// ToolUseID, Content and IsError of a tool_result; Source of an image or
// document; Thinking. Rest is what the maker attached, which may be all of it.
type block struct {
	Type         string         `json:"type,omitzero"`
	Text         string         `json:"text,omitzero"`
	ID           string         `json:"id,omitzero"`
	Name         string         `json:"name,omitzero"`
	Input        jsontext.Value `json:"input,omitzero"`
	ToolUseID    string         `json:"tool_use_id,omitzero"`
	Content      any            `json:"content,omitzero"` // a text, or blocks where there are images
	IsError      bool           `json:"is_error,omitzero"`
	Source       *source        `json:"source,omitzero"`
	Thinking     *string        `json:"thinking,omitzero"` // may be empty and has to be there
	Rest         jsontext.Value `json:",embed"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"` // base64
}

type cacheControl struct {
	Type string `json:"type"`
}

type tool struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitzero"`
	InputSchema  jsontext.Value `json:"input_schema"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

type toolChoice struct {
	Type string `json:"type"`
}

func encode(c *wire.Client, req model.Request, names wire.Names) *request {
	o := c.Options()
	system, messages, tools := wire.Ask(req, c.Maker(wireName))
	out := &request{
		Model: o.Model, MaxTokens: o.MaxOutputTokens, Messages: make([]message, 0, len(messages)),
		Stream: true,
	}
	for _, m := range messages {
		out.add(m, names)
	}
	out.think(req.Effort, req.OutputLimit)
	if req.Output != nil && !req.Repair.ToldOutput && !req.Summary {
		if out.OutputConfig == nil {
			out.OutputConfig = &outputConfig{}
		}
		out.OutputConfig.Format = &outputFormat{"json_schema", wire.NativeOutput(req.Output).Schema}
	}
	for _, t := range tools {
		out.Tools = append(out.Tools, tool{
			Name: names.There(t.Name), Description: t.Description,
			InputSchema: wire.Schema(t.Params),
		})
	}
	if len(tools) == 0 {
		out.recall(messages, names)
	}
	if system != "" {
		out.System = []block{{Type: "text", Text: system}}
	}
	out.mark()
	return out
}

// mark marks what the next request begins with too, so that it is not read anew:
// the tools, the system prompt, and what the user's side said last and before
// that, since the server looks for what it knows in the twenty blocks before a
// mark only. These are the four marks that a request may have. An answer of the
// model, and so its thinking, has none.
func (r *request) mark() {
	mark := &cacheControl{"ephemeral"}
	if n := len(r.Tools); n > 0 {
		r.Tools[n-1].CacheControl = mark
	}
	if n := len(r.System); n > 0 {
		r.System[n-1].CacheControl = mark
	}
	left := 2
	for _, m := range slices.Backward(r.Messages) {
		if n := len(m.Content); m.Role == "user" && left > 0 {
			m.Content[n-1].CacheControl = mark
			left--
		}
	}
}

// add appends a message. User messages that follow each other, and the results
// of tools before them, become one of several blocks: roles take turns here.
func (r *request) add(m wire.Entry, names wire.Names) {
	role, content := "user", []block(nil)
	switch m.Role {
	case model.Tool:
		content = []block{{
			Type: "tool_result", ToolUseID: m.ToolCallID, Content: answered(m.Message, &r.shown),
			IsError: !m.OK,
		}}
	case model.Assistant:
		role, content = "assistant", said(m, names)
	default:
		content = shown(m.Message, &r.shown)
	}
	if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == role {
		r.Messages[n-1].Content = append(r.Messages[n-1].Content, content...)
		return
	}
	r.Messages = append(r.Messages, message{role, content})
}

// said is the content of an assistant message: its blocks in order, each with
// what this provider attached to it. It is never empty (wire.Conversation).
func said(e wire.Entry, names wire.Names) (content []block) {
	for _, p := range e.Pieces {
		b := block{Rest: jsontext.Value(p.Data)}
		switch p.Kind {
		case model.TextBlock:
			if strings.TrimSpace(p.Text) == "" { // is refused
				continue
			}
			b.Type, b.Text = "text", p.Text
		case model.ThinkingBlock:
			b.Type, b.Thinking = "thinking", &p.Text
		case model.CallBlock:
			b.Type, b.ID, b.Name, b.Input = "tool_use", p.Call.ID, names.There(p.Call.Name), jsontext.Value(p.Call.Arguments)
		}
		content = append(content, b)
	}
	return content
}

// answered is the content of a tool's result: nothing, its text, or its images and
// its text.
func answered(m model.Message, pictures *wire.Pictures) any {
	switch {
	case len(m.Attachments) > 0:
		return shown(m, pictures)
	case m.Text == "":
		return nil
	}
	return m.Text
}

// shown is the content of a user message, never empty.
func shown(m model.Message, pictures *wire.Pictures) (content []block) {
	for _, a := range m.Attachments {
		switch {
		case strings.HasPrefix(a.MediaType, "image/"):
			content = append(content, block{Type: "image", Source: &source{"base64", a.MediaType, pictures.Base64(a)}})
		case a.MediaType == "application/pdf":
			content = append(content, block{Type: "document", Source: &source{"base64", a.MediaType, pictures.Base64(a)}})
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
func (r *request) recall(messages []wire.Entry, names wire.Names) {
	known := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			if name := names.There(c.Name); !known[name] {
				known[name] = true
				r.Tools = append(r.Tools, tool{Name: name, Description: "Not available any more.", InputSchema: wire.Schema(nil)})
				r.ToolChoice = &toolChoice{"none"}
			}
		}
	}
}

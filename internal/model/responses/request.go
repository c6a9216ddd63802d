package responses

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

type request struct {
	Model           string     `json:"model"`
	Instructions    string     `json:"instructions,omitzero"`
	Input           []any      `json:"input"`
	Tools           []tool     `json:"tools,omitempty"`
	Reasoning       *reasoning `json:"reasoning,omitzero"`
	Include         []string   `json:"include,omitempty"`
	MaxOutputTokens int        `json:"max_output_tokens,omitzero"`
	PromptCacheKey  string     `json:"prompt_cache_key,omitzero"`
	Text            *textForm  `json:"text,omitzero"`
	Store           bool       `json:"store"`
	Stream          bool       `json:"stream"`

	shown wire.Pictures
}

// Shown are the pictures.
func (r *request) Shown() *wire.Pictures { return &r.shown }

// Forget keeps what learn looks at.
func (r *request) Forget() { *r = request{Include: r.Include, Reasoning: r.Reasoning} }

// textForm is what the answer has to be like.
type textForm struct {
	Format format `json:"format"`
}

type format struct {
	Type string `json:"type"`
	wire.Output
}

type reasoning struct {
	Effort  string `json:"effort,omitzero"`
	Summary string `json:"summary,omitzero"`
}

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      bool           `json:"strict"`
}

// message is an item of somebody's words: a text, or a list of parts.
type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

type part struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitzero"`
	ImageURL string `json:"image_url,omitzero"`
}

type functionCall struct {
	Type      string      `json:"type"`
	CallID    string      `json:"call_id"`
	Name      string      `json:"name"`
	Arguments wire.Quoted `json:"arguments"`
}

type functionOutput struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output any    `json:"output"` // a text, or a list of parts
}

func (m *Model) encode(req model.Request, names wire.Names) *request {
	o := m.client.Options()
	system, messages, tools := wire.Ask(req, m.client.Maker(wireName))
	out := &request{
		Model: o.Model, Instructions: system, Input: make([]any, 0, len(messages)), MaxOutputTokens: o.MaxOutputTokens,
		PromptCacheKey: req.SessionID, Stream: true,
	}
	if !m.noReasoning.Load() || req.Effort.Level != "" {
		out.Reasoning = &reasoning{Effort: req.Effort.Said()}
		if !m.noSummary.Load() && !req.Summary {
			out.Reasoning.Summary = "auto"
		}
		if *out.Reasoning == (reasoning{}) {
			out.Reasoning = nil
		}
	}
	if !m.noSecrets.Load() {
		out.Include = []string{"reasoning.encrypted_content"}
	}
	if req.Output != nil && !req.Repair.ToldOutput && !req.Summary {
		out.Text = &textForm{format{"json_schema", wire.NativeOutput(req.Output)}}
	}
	for _, e := range messages {
		out.add(e, names)
	}
	for _, t := range tools {
		out.Tools = append(out.Tools, tool{
			Type: "function", Name: names.There(t.Name), Description: t.Description,
			Parameters: wire.Schema(t.Params),
		})
	}
	return out
}

// put appends an item.
func (r *request) put(item any) { r.Input = append(r.Input, item) }

func (r *request) add(e wire.Entry, names wire.Names) {
	switch e.Role {
	case model.Tool:
		r.put(functionOutput{"function_call_output", e.ToolCallID, shown(e.Message, &r.shown)})
	case model.Assistant:
		r.said(e, names)
	default:
		r.put(message{"user", shown(e.Message, &r.shown)})
	}
}

// said appends the items of an assistant message: those of this server as they
// came, but for a call whose id its result cannot name.
func (r *request) said(e wire.Entry, names wire.Names) {
	for _, p := range e.Pieces {
		switch {
		case len(p.Data) > 0 && (p.Call == nil || wire.Text(wire.Members(jsontext.Value(p.Data)).Get("call_id")) ==
			p.Call.ID):
			r.put(jsontext.Value(p.Data))
		case p.Kind == model.TextBlock && strings.TrimSpace(p.Text) != "":
			r.put(message{"assistant", p.Text})
		case p.Kind == model.CallBlock:
			r.put(functionCall{"function_call", p.Call.ID, names.There(p.Call.Name), wire.Quoted(p.Call.Arguments)})
		}
	}
}

// shown is what a user message or a result has: its text, or the text and what goes with it.
func shown(m model.Message, pictures *wire.Pictures) any {
	if len(m.Attachments) == 0 {
		return m.Text
	}
	var parts []part
	if m.Text != "" {
		parts = append(parts, part{Type: "input_text", Text: m.Text})
	}
	for _, a := range m.Attachments {
		if !strings.HasPrefix(a.MediaType, "image/") {
			parts = append(parts, part{Type: "input_text", Text: wire.LeftOut(a)})
			continue
		}
		parts = append(parts, part{Type: "input_image", ImageURL: "data:" + a.MediaType + ";base64," + pictures.Base64(a)})
	}
	return parts
}

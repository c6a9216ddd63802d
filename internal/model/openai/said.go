package openai

import (
	"cmp"
	"strings"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// wireName is this wire's part of a maker's label.
const wireName = "chat"

// said is an assistant message. What this server made goes back as it came: the
// thinking where it stood, and what was attached.
func said(e *wire.Entry, names wire.Names) message {
	out := message{Role: "assistant"}
	var text string
	var parts []part
	typed := false
	for _, p := range e.Pieces {
		switch p.Kind {
		case model.TextBlock:
			text += p.Text // the only one, mostly
			if len(e.Pieces) > 1 {
				parts = append(parts, part{Type: "text", Text: p.Text})
			}
		case model.ThinkingBlock:
			at := thought{}
			wire.Attached(p.Data, &at)
			switch member := out.thinking(at.Member); {
			case member != nil:
				thinking := p.Text
				if *member != nil {
					thinking = **member + thinking
				}
				*member = &thinking
			case at.Member == inContent:
				text += at.Open + p.Text + at.Close
			case at.Member == inParts:
				typed = true
				parts = append(parts, part{Type: "thinking", Thinking: []part{{Type: "text", Text: p.Text}}})
			}
		case model.CallBlock:
			out.ToolCalls = append(out.ToolCalls, made(p, names))
		case model.OpaqueBlock:
			wire.Attached(p.Data, &out.attached)
		}
	}
	switch {
	case typed:
		out.Content = parts
	case text != "":
		out.Content = text
	}
	return out
}

// made is a tool call, with what its maker attached.
func made(p model.Piece, names wire.Names) toolCall {
	var with called
	wire.Attached(p.Data, &with)
	return toolCall{
		ID: p.Call.ID, Type: cmp.Or(with.Type, "function"), Rest: with.Rest,
		Function: function{Name: names.There(p.Call.Name), Arguments: argumentsOf(with, p.Call)},
	}
}

// thinking is the member of that name, nil if it is not one for thinking.
func (m *message) thinking(name string) **string {
	switch name {
	case "reasoning_content":
		return &m.ReasoningContent
	case "reasoning":
		return &m.Reasoning
	case "reasoning_text":
		return &m.ReasoningText
	}
	return nil
}

// think gives an empty thought to the messages of tool exchanges that have none,
// where the vendor refuses a history without: those of other makers. What was
// sent before this server said under which name it thinks stays as it was, so
// that requests begin alike; it has taken that.
func (r *request) think(name, host string) {
	member, empty, exchange := thinksIn(name, host), "", false
	for i := range r.Messages {
		m := &r.Messages[i]
		member = cmp.Or(m.thinksIn(), member)
		switch exchange = exchange && m.Role != "user" || len(m.ToolCalls) > 0; {
		case m.Role != "assistant" || !exchange || member == "":
		case *m.thinking(member) == nil:
			*m.thinking(member) = &empty
		}
	}
}

// thinksIn is the member that the message has its thinking in, "" if none.
func (m *message) thinksIn() string {
	for _, member := range []string{"reasoning_content", "reasoning", "reasoning_text"} {
		if *m.thinking(member) != nil {
			return member
		}
	}
	return ""
}

// thinksIn is the member that a vendor wants thinking in, "" where nothing is
// known.
func thinksIn(name, host string) string {
	for _, vendor := range []string{"deepseek", "moonshot", "kimi", "glm", "grok"} {
		if strings.Contains(strings.ToLower(name), vendor) || strings.Contains(host, vendor) {
			return "reasoning_content"
		}
	}
	if strings.HasSuffix(host, "z.ai") || strings.HasSuffix(host, "bigmodel.cn") || strings.HasSuffix(host, "x.ai") {
		return "reasoning_content"
	}
	return ""
}

// mistral reports a server that wants a word of the assistant's between a tool's
// result and the user.
func mistral(name, host string) bool {
	name = strings.ToLower(name)
	for _, family := range []string{"mistral", "ministral", "magistral", "codestral", "devstral", "pixtral"} {
		if strings.Contains(name, family) || strings.Contains(host, family) {
			return true
		}
	}
	return false
}

// gemini reports a server that knows a part of JSON Schema only, and refuses
// every request with more of it in a tool.
func gemini(name, host string) bool {
	return strings.Contains(strings.ToLower(name), "gemini") || strings.HasSuffix(host, ".googleapis.com")
}

// argumentsOf are a call's, as they were written.
func argumentsOf(with called, c *model.ToolCall) wire.Quoted {
	if with.Written != "" {
		return wire.Quoted(with.Written)
	}
	return wire.Quoted(c.Arguments)
}

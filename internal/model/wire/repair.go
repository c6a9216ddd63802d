package wire

import (
	"fmt"
	"slices"
	"strings"

	"noused/internal/model"
)

// repaired are the messages and the tools of a request as its Repair has them,
// and whose blocks go back.
func repaired(req model.Request, maker string) ([]model.Message, []model.ToolSpec, string) {
	messages, tools, r := req.Messages, req.Tools, req.Repair
	if r.NoImages || r.PlainCalls {
		messages = slices.Clone(messages)
	}
	if r.NoImages {
		for i := range messages {
			messages[i] = withoutImages(messages[i])
		}
	}
	if r.PlainCalls {
		for i := range messages {
			messages[i] = told(messages[i])
		}
	}
	if r.NoOpaque || r.PlainCalls {
		maker = ""
	}
	if r.PlainSchemas {
		tools = slices.Clone(tools)
		for i := range tools {
			tools[i].Params = []byte(PlainSchema(tools[i].Params))
		}
	}
	return messages, tools, maker
}

// withoutImages is a message that describes its images in words.
func withoutImages(m model.Message) model.Message {
	for _, a := range m.Attachments {
		m.Text = strings.TrimPrefix(m.Text+fmt.Sprintf("\n[%s (%s) is not shown: this model takes no images]", a.Title(),
			a.MediaType), "\n")
	}
	m.Attachments = nil
	return m
}

// told is a message whose calls, or the result that it is, are told as text.
func told(m model.Message) model.Message {
	if m.Role == model.Tool {
		return model.Message{
			Role: model.User, Text: fmt.Sprintf("[%s answered]\n%s", m.ToolName, m.Text),
			Attachments: m.Attachments,
		}
	}
	for _, c := range m.ToolCalls {
		m.Text = strings.TrimPrefix(m.Text+fmt.Sprintf("\n[called %s with %s]", c.Name, c.Arguments), "\n")
	}
	m.ToolCalls = nil
	return m
}

// bridged has the assistant say a word between a tool's result and the user,
// for servers that want it (Mistral).
func bridged(entries []Entry) []Entry {
	var out []Entry
	for i, e := range entries {
		if i > 0 && e.Role == model.User && entries[i-1].Role == model.Tool {
			const word = "The tool has answered."
			said := model.Message{Role: model.Assistant, Text: word}
			out = append(out, entry(said, ""))
		}
		out = append(out, e)
	}
	return out
}

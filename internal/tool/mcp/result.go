package mcp

import (
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/model"
	"noused/internal/tool"
)

// made turns a result into ours (mcp.md §3).
func (c *call) made(from *sdk.CallToolResult) model.ToolResult {
	var texts []string
	for _, part := range from.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	text := strings.Join(texts, "\n")
	r := model.ToolResult{OK: true, Text: text}
	if from.IsError {
		if text == "" {
			text = "the tool reported a failure"
		}
		r = model.Failed(tool.ToolFailed, text)
	}
	if from.StructuredContent != nil {
		if value, err := jsonx.Marshal(from.StructuredContent, jsonx.Deterministic(true), jsontext.AllowInvalidUTF8(true)); err == nil {
			r.Value = []byte(value)
		}
	}
	if r.Text == "" {
		r.Text = "done"
	}
	return r
}

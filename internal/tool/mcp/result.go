package mcp

import (
	"fmt"
	"reflect"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/tool"
)

const (
	// maxFiles is how many files one result comes with.
	maxFiles = 64
	// maxValue bounds a structured result, in bytes; a longer one is a file.
	maxValue = 1 << 20
	// maxAbout bounds what a server says of a file.
	maxAbout = 1 << 10
)

// result is what a server's result comes to: ours, and files that are reported.
type result struct {
	c      *call
	texts  []string
	assets []model.Asset
	images []string
	left   int // files that were too many
}

// made turns a server's result into ours (mcp.md §3), and tells nothing yet.
func (c *call) made(from *sdk.CallToolResult) (model.ToolResult, []model.Asset) {
	m := &result{c: c}
	for _, part := range from.Content {
		m.add(part)
	}
	value := m.value(from)
	if m.left > 0 {
		m.texts = append(m.texts, fmt.Sprintf("[%d more files are left out: a result comes with %d at most]", m.left,
			maxFiles))
	}
	text := strings.Join(m.texts, "\n")
	if text == "" && value != nil {
		text = string(value)
	}
	r := model.ToolResult{OK: true, Text: text}
	switch {
	case from.IsError && text == "":
		r = model.Failed(tool.ToolFailed, "the tool reported a failure")
	case from.IsError:
		r = model.Failed(tool.ToolFailed, text)
	case text == "":
		r.Text = "done"
	}
	r.Value, r.Images = []byte(value), m.images
	return r, m.assets
}

// add takes one part of a result.
func (m *result) add(part sdk.Content) {
	switch p := part.(type) {
	case *sdk.TextContent:
		m.texts = append(m.texts, p.Text)
	case *sdk.ImageContent:
		m.keep("image", p.MIMEType, "", "", p.Data)
	case *sdk.AudioContent:
		m.keep("audio", p.MIMEType, "", "", p.Data)
	case *sdk.ResourceLink:
		about := p.Name
		if p.Description != "" {
			about += ": " + p.Description
		}
		m.keep("link", "text/uri-list", p.URI, about, []byte(p.URI+"\r\n"))
	case *sdk.EmbeddedResource:
		switch r := p.Resource; {
		case r == nil:
		case r.Blob != nil:
			m.keep("resource", r.MIMEType, r.URI, "", r.Blob)
		default:
			m.keep("resource", textual(r.MIMEType), r.URI, "", []byte(r.Text))
		}
	default:
		m.texts = append(m.texts, fmt.Sprintf("[a part of the result is left out: %T]", part))
	}
}

func textual(mediaType string) string {
	if mediaType == "" {
		return "text/plain"
	}
	return mediaType
}

// keep puts a part into a file of its own, and says in the text where it is.
func (m *result) keep(kind, mediaType, uri, about string, content []byte) {
	if len(m.assets) == maxFiles {
		m.left++
		return
	}
	if mediaType = format.Clip(mediaType, maxAbout); mediaType == "" {
		mediaType = "application/octet-stream"
	}
	uri, about = format.Clip(uri, maxAbout), format.Clip(about, maxAbout)
	path, err := m.c.l.h.files.write(m.c.inv.SessionID, mediaType, content)
	if err != nil {
		m.texts = append(m.texts, fmt.Sprintf("[%s, %s, %d bytes: cannot be kept: %v]", kind, mediaType, len(content), err))
		return
	}
	id := fmt.Sprintf("%s-%d", m.c.inv.ID, len(m.assets)+1)
	seen := tool.Visible(mediaType)
	asset := model.Asset{ID: id, Kind: kind, MediaType: mediaType, Path: path, Tool: m.c.l.h.desc.Name, Supported: seen ||
		strings.HasPrefix(mediaType, "text/")}
	if text, err := jsonx.Marshal(struct {
		URI   string `json:"uri,omitzero"`
		About string `json:"description,omitzero"`
	}{uri, about}); err == nil && uri != "" {
		asset.Metadata = []byte(text)
	}
	m.assets = append(m.assets, asset)
	if seen {
		m.images = append(m.images, path)
	}
	said := fmt.Sprintf("%s, %s, %d bytes: %s", kind, mediaType, len(content), path)
	if uri != "" {
		said = strings.TrimSpace(fmt.Sprintf("%s %s %s", kind, uri, about)) + ": " + path
	}
	m.texts = append(m.texts, "["+said+"]")
}

// value is the structured result as the server wrote it, as far as that is known: one
// of the texts is the same by the protocol, and has numbers as they came.
func (m *result) value(from *sdk.CallToolResult) jsontext.Value {
	if from.StructuredContent == nil {
		return nil
	}
	var value jsontext.Value
	for _, part := range from.Content {
		var same any
		if t, ok := part.(*sdk.TextContent); ok && jsonx.Unmarshal([]byte(t.Text), &same) == nil &&
			reflect.DeepEqual(same, from.StructuredContent) {
			value = jsontext.Value(t.Text)
			break
		}
	}
	if value == nil {
		var err error
		if value, err = jsonx.Marshal(from.StructuredContent, jsonx.Deterministic(true),
			jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil
		}
	}
	if len(value) > maxValue {
		m.keep("value", "application/json", "", "", value)
		return nil
	}
	return value
}

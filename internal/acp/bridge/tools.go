package bridge

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/regular"
)

// kinds are what editors know of the tools that come with the daemon.
var kinds = map[string]string{
	"read": "read", "ls": "read", "write": "edit", "edit": "edit",
	"grep": "search", "find": "search", "bash": "execute", "job": "execute", "todo": "think",
}

func kindOf(name string) string {
	if kind, ok := kinds[name]; ok {
		return kind
	}
	if strings.Contains(name, "fetch") {
		return "fetch"
	}
	return "other"
}

// known are the arguments that something can be made of.
type known struct {
	Path    *string `json:"path"`
	Offset  int64   `json:"offset"`
	Command string  `json:"command"`
	Pattern string  `json:"pattern"`
	Content *string `json:"content"`
	replacement
	Edits []replacement `json:"edits"`
}

type replacement struct {
	Old *string `json:"old_text"`
	New *string `json:"new_text"`
}

// describe is a call as editors show it.
func describe(c protocol.ToolCall, workdir string) acp.ToolCall {
	out := acp.ToolCall{ID: c.ID, Kind: kindOf(c.Name), Title: c.Name, RawInput: c.Arguments}
	if !c.Arguments.IsValid(jsontext.AllowDuplicateNames(true)) {
		out.RawInput = nil
	}
	if _, ours := kinds[c.Name]; !ours {
		out.Title = line(c.Name + " " + string(bytes.TrimSpace(c.Arguments)))
		return out
	}
	var a known
	if json.Unmarshal(c.Arguments, &a) != nil {
		return out
	}
	what := a.Pattern
	if a.Path != nil && *a.Path != "" {
		at := absolute(workdir, *a.Path)
		out.Locations = []acp.Location{{Path: at, Line: a.Offset}}
		out.Content = a.diffs(c.Name, at)
		what = strings.TrimSpace(what + " " + *a.Path)
	}
	if a.Command != "" {
		what = a.Command
	}
	out.Title = line(c.Name + " " + what)
	return out
}

// diffs are the changes that a call means to make.
func (a known) diffs(name, path string) (list []acp.ToolContent) {
	add := func(was, is *string) {
		if is != nil {
			list = append(list, acp.ToolContent{Type: "diff", Path: path, Old: was, New: is})
		}
	}
	switch name {
	case "write":
		add(nil, a.Content)
	case "edit":
		add(a.Old, a.New)
		for _, e := range a.Edits {
			add(e.Old, e.New)
		}
	}
	return list
}

func absolute(workdir, path string) string {
	if filepath.IsAbs(path) || workdir == "" {
		return filepath.Clean(path)
	}
	return filepath.Join(workdir, path)
}

func fileURI(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// maxTitle bounds a title, in characters.
const maxTitle = 160

// line is the beginning of a text in one line, as much as a title may have, and how
// much more there is. An editor may draw what it is told; so what it would not show
// is written as its number.
func line(text string) string {
	text = strings.TrimSpace(text)
	shown, left := plaintext.RevealHead(text, maxTitle)
	if left > 0 {
		shown += fmt.Sprintf(" … %d bytes more", left)
	}
	return shown
}

// output is what a call gave, as it is.
type output struct {
	OK      bool              `json:"ok"`
	Result  string            `json:"result"`
	Outputs map[string]string `json:"outputs,omitzero"`
}

func rawOutput(ok bool, result string, outputs map[string]string) jsontext.Value {
	out, err := json.Marshal(output{ok, result, outputs}, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		return nil
	}
	return out
}

// result shows how a call ended. A change that was made is shown as such; of
// everything else the text is.
func (w *window) result(id string, ok bool, raw jsontext.Value, text string, images []protocol.Attachment) {
	c := w.draw.calls[id]
	delete(w.draw.calls, id)
	w.draw.entries[id] = true
	out := acp.ToolCall{Update: acp.ToolCallUpdate, ID: id, Status: acp.Failed, RawOutput: raw}
	if c == nil { // a call that the editor does not know
		out.Update, out.Title, out.Kind = acp.NewToolCall, "tool", "other"
	}
	if ok {
		out.Status = acp.Completed
	}
	if c != nil && ok {
		out.Content = c.Content
	}
	if len(out.Content) == 0 {
		out.Content = []acp.ToolContent{acp.ToolText(text)}
	}
	room := int64(maxImages)
	for _, a := range images {
		block := w.image(a, &room)
		out.Content = append(out.Content, acp.ToolContent{Type: "content", Content: &block})
	}
	w.update(out)
}

// maxImages is how much of a call's images an editor is sent, in bytes before base64: less
// than it may leave unread. Of the others it is told where they are.
const maxImages = 2 << 20

// image is an image of a tool's as the editor can show it, as far as there is room.
func (w *window) image(a protocol.Attachment, room *int64) acp.ContentBlock {
	if !w.b.Local || !acp.IsImage(a.MediaType) || a.Size > *room {
		return linkTo(a)
	}
	data, err := regular.ReadOwn(a.Path, *room)
	if err != nil {
		w.b.Log("%v", err)
		return linkTo(a)
	}
	*room -= int64(len(data))
	text := base64.StdEncoding.EncodeToString(data)
	return acp.ContentBlock{Type: "image", Data: &text, MimeType: a.MediaType, URI: fileURI(a.Path)}
}

package acp

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// InitializeParams opens a connection.
type InitializeParams struct {
	ProtocolVersion *int           `json:"protocolVersion"`
	Capabilities    jsontext.Value `json:"clientCapabilities"`
}

func (p InitializeParams) check() *Error {
	switch {
	case p.ProtocolVersion == nil:
		return Errorf(InvalidParams, "protocolVersion: missing")
	case *p.ProtocolVersion < 0 || *p.ProtocolVersion > 65535:
		return Errorf(InvalidParams, "protocolVersion: want 0 to 65535")
	default:
		return nil
	}
}

// Shows tells whether the client shows notices and forms. A capability of another
// shape is none.
func (p InitializeParams) Shows() (notices, forms bool) {
	var c struct {
		Session     jsontext.Value `json:"session"`
		Elicitation jsontext.Value `json:"elicitation"`
	}
	if p.Capabilities == nil || json.Unmarshal(p.Capabilities, &c) != nil {
		return false, false
	}
	return isObject(c.Session, "notices"), isObject(c.Elicitation, "form")
}

func isObject(v jsontext.Value, name string) bool {
	var members map[string]jsontext.Value
	return v != nil && json.Unmarshal(v, &members) == nil && members[name].Kind() == '{'
}

// AuthenticateParams chooses a way to authenticate. There is none.
type AuthenticateParams struct {
	MethodID *string `json:"methodId"`
}

func (p AuthenticateParams) check() *Error { return need("methodId", p.MethodID) }

// OpenParams are those of session/new, and with a SessionID of session/load and
// session/resume.
type OpenParams struct {
	SessionID  *string      `json:"sessionId"`
	CWD        *string      `json:"cwd"`
	MCPServers *[]MCPServer `json:"mcpServers"`
}

// NewParams, LoadParams and ResumeParams differ in what has to be there.
type (
	NewParams    struct{ OpenParams }
	LoadParams   struct{ OpenParams }
	ResumeParams struct{ OpenParams }
)

func (p NewParams) check() *Error { return first(p.folder(), p.servers(true)) }

func (p LoadParams) check() *Error {
	return first(need("sessionId", p.SessionID), p.folder(), p.servers(true))
}

func (p ResumeParams) check() *Error {
	return first(need("sessionId", p.SessionID), p.folder(), p.servers(false))
}

func (p OpenParams) folder() *Error { return first(need("cwd", p.CWD), absolute("cwd", p.CWD)) }

func absolute(name string, path *string) *Error {
	if path != nil && !filepath.IsAbs(*path) {
		return Errorf(InvalidParams, "%s: want an absolute path", name)
	}
	return nil
}

func (p OpenParams) servers(must bool) *Error {
	if p.MCPServers == nil {
		if must {
			return Errorf(InvalidParams, "mcpServers: missing")
		}
		return nil
	}
	for i, s := range *p.MCPServers {
		if err := s.check(fmt.Sprintf("mcpServers.%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// MCPServer is a server that the session's tools come from, a program or with Type
// "http" an address.
type MCPServer struct {
	Type    string   `json:"type"`
	Name    *string  `json:"name"`
	Command *string  `json:"command"`
	Args    []string `json:"args"`
	Env     []Pair   `json:"env"`
	URL     *string  `json:"url"`
	Headers []Pair   `json:"headers"`
}

// Pair is an environment variable or a header.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (s MCPServer) check(at string) *Error {
	if err := need(at+".name", s.Name); err != nil {
		return err
	}
	switch s.Type {
	case "http":
		return need(at+".url", s.URL)
	case "", "stdio":
		return need(at+".command", s.Command)
	case "sse":
		return Errorf(InvalidParams, "%s.type: sse is not spoken; http is the newer way to the same servers", at)
	default:
		return Errorf(InvalidParams, "%s.type: %.40q is unknown", at, s.Type)
	}
}

// ListParams asks for a page of sessions, of those of a folder with CWD.
type ListParams struct {
	CWD    *string `json:"cwd"`
	Cursor *string `json:"cursor"`
}

func (p ListParams) check() *Error { return absolute("cwd", p.CWD) }

// SessionParams name a session only.
type SessionParams struct {
	SessionID *string `json:"sessionId"`
}

func (p SessionParams) check() *Error { return need("sessionId", p.SessionID) }

// SetModeParams chooses a mode.
type SetModeParams struct {
	SessionID *string `json:"sessionId"`
	ModeID    *string `json:"modeId"`
}

func (p SetModeParams) check() *Error {
	return first(need("sessionId", p.SessionID), need("modeId", p.ModeID))
}

// SetConfigOptionParams chooses the value of an option.
type SetConfigOptionParams struct {
	SessionID *string `json:"sessionId"`
	ConfigID  *string `json:"configId"`
	Value     *string `json:"value"`
}

func (p SetConfigOptionParams) check() *Error {
	return first(need("sessionId", p.SessionID), need("configId", p.ConfigID), need("value", p.Value))
}

// CancelRequestParams takes a request back.
type CancelRequestParams struct {
	RequestID jsontext.Value `json:"requestId"`
}

func (p CancelRequestParams) check() *Error {
	if p.RequestID == nil {
		return Errorf(InvalidParams, "requestId: missing")
	}
	return nil
}

// PromptParams is a text with what belongs to it.
type PromptParams struct {
	SessionID *string        `json:"sessionId"`
	Prompt    []ContentBlock `json:"prompt"`
}

func (p PromptParams) check() *Error {
	if err := need("sessionId", p.SessionID); err != nil {
		return err
	}
	if len(p.Prompt) == 0 {
		return Errorf(InvalidParams, "prompt: want at least one content block")
	}
	for i, b := range p.Prompt {
		if err := b.check(fmt.Sprintf("prompt.%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// ContentBlock is a part of a message. Which fields there are goes by Type.
type ContentBlock struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitzero"`
	Data     *string   `json:"data,omitzero"`
	MimeType string    `json:"mimeType,omitzero"`
	Name     string    `json:"name,omitzero"`
	URI      string    `json:"uri,omitzero"`
	Size     int64     `json:"size,omitzero"`
	Resource *Resource `json:"resource,omitzero"`
}

// Resource is a file with what it holds, as a text or in base64.
type Resource struct {
	URI      string  `json:"uri"`
	MimeType string  `json:"mimeType,omitzero"`
	Text     *string `json:"text,omitzero"`
	Blob     *string `json:"blob,omitzero"`
}

func (b ContentBlock) check(at string) *Error {
	switch b.Type {
	case "text":
		if b.Text == nil {
			return Errorf(InvalidParams, "%s.text: missing", at)
		}
	case "image":
		return image(at+".data", at+".mimeType", b.Data, b.MimeType)
	case "resource_link":
		return need(at+".uri", &b.URI)
	case "resource":
		return b.Resource.check(at + ".resource")
	case "":
		return Errorf(InvalidParams, "%s.type: missing", at)
	default:
		return Errorf(InvalidParams, "%s.type: %.40q is not taken; text, image, resource and resource_link are", at, b.Type)
	}
	return nil
}

// imageTypes are what models are shown.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// IsImage tells whether models are shown files of such a type.
func IsImage(mimeType string) bool { return slices.Contains(imageTypes, mimeType) }

func image(dataAt, typeAt string, data *string, mimeType string) *Error {
	if err := need(dataAt, data); err != nil {
		return err
	}
	if _, err := base64.StdEncoding.DecodeString(*data); err != nil {
		return Errorf(InvalidParams, "%s: is not base64", dataAt)
	}
	if !IsImage(mimeType) {
		return Errorf(InvalidParams, "%s: %.40q is not taken; image/png, image/jpeg, image/gif and image/webp are", typeAt,
			mimeType)
	}
	return nil
}

func (r *Resource) check(at string) *Error {
	switch {
	case r == nil:
		return Errorf(InvalidParams, "%s: missing", at)
	case r.URI == "":
		return need(at+".uri", &r.URI)
	case r.Text != nil:
		return nil
	case r.Blob == nil:
		return Errorf(InvalidParams, "%s.text: missing", at)
	case !IsImage(r.MimeType):
		return Errorf(InvalidParams, "%s.blob: only images are taken; link to the file", at)
	default:
		return image(at+".blob", at+".mimeType", r.Blob, r.MimeType)
	}
}

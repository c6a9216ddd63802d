package tool

import (
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/mcpfile"
	"noused/internal/policy"
)

// ServerDescriptor describes an MCP server that another file than a descriptor has,
// or no file, as a descriptor of protocol mcp would. Its variables have been
// expanded. Relative paths are meant from dir.
func ServerDescriptor(s mcpfile.Server, file, dir, workdir string, environ []string) (*Descriptor, error) {
	source, err := json.Marshal(s, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	spoken := MCP
	doc := &document{
		Name: s.Name, Kind: KindTool, Protocol: &spoken, Capabilities: []string{}, Env: s.Env, Headers: s.Headers,
		Tools:   s.Tools,
		Timeout: given(s.Timeout), Trust: given(s.Trust), Sandbox: given(s.Sandbox), SandboxWrite: s.SandboxWrite,
		literal: true,
		Transport: &transportDoc{Transport: Transport{
			Type: "stdio", Command: append([]string{s.Command}, s.Args...),
		}},
	}
	if doc.Cwd = s.Cwd; s.Cwd != mcpfile.CwdSession {
		doc.Cwd, doc.Workdir = "", s.Cwd
	}
	if s.URL != "" {
		doc.Transport = &transportDoc{Transport: Transport{Type: "http", URL: s.URL}}
	}
	d, err := describe(doc, s.Name+string(source), dir, workdir, environ)
	if err != nil {
		return nil, err
	}
	d.File = file
	return d, nil
}

// EntryDescriptor describes an entry of mcp.json or .mcp.json. The error is an
// [*mcpfile.Error].
func EntryDescriptor(s mcpfile.Server, dir, workdir string, environ []string) (*Descriptor, error) {
	expanded, err := s.Expand(func(name string) (string, bool) { return variable(environ, name) })
	if err != nil {
		return nil, err
	}
	d, err := ServerDescriptor(expanded, s.Place.File, dir, workdir, environ)
	if err != nil {
		return nil, &mcpfile.Error{Place: s.Place, Server: s.Name, Reason: err.Error()}
	}
	return d, nil
}

// given is a field of a document, absent where it is empty.
func given(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// value is one of env or headers with its variables expanded.
func (doc *document) value(value string, environ []string) string {
	if doc.literal {
		return value
	}
	return expand(value, environ)
}

// setServer sets what only an MCP server has, and its own defaults (mcp.md §1).
func (d *Descriptor) setServer(doc *document, environ []string) error {
	if d.Protocol != MCP {
		for name, set := range map[string]bool{
			"headers": doc.Headers != nil, "tools": doc.Tools != nil,
			"trust": doc.Trust != nil,
		} {
			if set {
				return field(name, "belongs to protocol %s", MCP)
			}
		}
		return nil
	}
	d.Timeout, d.MaxOutput, d.Tools = DefaultIdle, DefaultMessage, doc.Tools
	trust := ""
	if err := override(&trust, "trust", doc.Trust, string(policy.TrustAll), string(policy.TrustNone)); err != nil {
		return err
	}
	d.Trust = policy.Trust(trust)
	return d.setHeaders(doc, environ)
}

func (d *Descriptor) setHeaders(doc *document, environ []string) error {
	d.Headers = make(map[string]string, len(doc.Headers))
	for name, value := range doc.Headers {
		if name == "" || strings.ContainsFunc(name, notInHeaderName) {
			return field("headers", "%q is no name of a header", name)
		}
		value = doc.value(value, environ)
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return field("headers."+name, "has a control character")
		}
		d.Headers[name] = value
	}
	return nil
}

// notInHeaderName reports what is no part of a token (RFC 9110 §5.6.2).
func notInHeaderName(r rune) bool {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

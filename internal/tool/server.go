package tool

import (
	"strings"

	"noused/internal/policy"
)

// setServer sets what only an MCP server has, and its own defaults (mcp.md §1).
func (d *Descriptor) setServer(doc *document, environ []string) error {
	if d.Protocol != MCP {
		for name, set := range map[string]bool{"headers": doc.Headers != nil, "tools": doc.Tools != nil, "trust": doc.Trust != nil} {
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
	return d.setHeaders(doc.Headers, environ)
}

func (d *Descriptor) setHeaders(headers map[string]string, environ []string) error {
	d.Headers = make(map[string]string, len(headers))
	for name, value := range headers {
		if name == "" || strings.ContainsFunc(name, notInHeaderName) {
			return field("headers", "%q is no name of a header", name)
		}
		value = expand(value, environ)
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

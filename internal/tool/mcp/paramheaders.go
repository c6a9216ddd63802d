package mcp

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxParamHeaders bounds what the headers of a call's arguments take, in bytes.
const maxParamHeaders = 8 << 10

// annotated is a schema, as far as it says which arguments a newer server wants in a header
// (MCP 2026-07-28, x-mcp-header).
type annotated struct {
	Header     jsontext.Value            `json:"x-mcp-header"`
	Properties map[string]jsontext.Value `json:"properties"`
}

// putParams sets the headers that the tool of a call wants its arguments in.
func (l *link) putParams(h http.Header, req *jsonrpc.Request) {
	var call struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	}
	if req.Method != "tools/call" || jsonx.Unmarshal(req.Params, &call) != nil {
		return
	}
	known, _ := l.h.manifestCache.known()
	if known == nil {
		return
	}
	for _, o := range known.Operations {
		if o.Name == call.Name && bytes.Contains(o.Params, []byte("x-mcp-header")) {
			left := maxParamHeaders
			putParam(h, o.Params, call.Arguments, &left)
		}
	}
}

// putParam sets the header of one argument, or of those inside of it.
func putParam(h http.Header, schema, value jsontext.Value, left *int) {
	var s annotated
	if len(value) == 0 || jsonx.Unmarshal(schema, &s) != nil {
		return
	}
	var name string
	if jsonx.Unmarshal(s.Header, &name) == nil && name != "" {
		text, ok := primitive(value)
		if text = headerSafe(text); ok && len(text) <= *left && !strings.ContainsFunc(name, notInToken) {
			h.Set("Mcp-Param-"+name, text)
			*left -= len(text)
		}
	}
	var inside map[string]jsontext.Value
	if len(s.Properties) == 0 || value.Kind() != '{' || jsonx.Unmarshal(value, &inside) != nil {
		return
	}
	for property, schema := range s.Properties {
		putParam(h, schema, inside[property], left)
	}
}

// primitive is a value as a header has it: a text, a truth value, or a whole number that
// every JSON reader takes for the same.
func primitive(value jsontext.Value) (text string, ok bool) {
	switch value.Kind() {
	case '"':
		return text, jsonx.Unmarshal(value, &text) == nil
	case 't', 'f':
		return string(value), true
	case '0':
		n, err := strconv.ParseFloat(string(value), 64)
		if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53-1 {
			return "", false
		}
		return strconv.FormatInt(int64(n), 10), true
	}
	return "", false
}

// notInToken reports what is no part of a header's name.
func notInToken(c rune) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

package mcp

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

// newer is a server that speaks 2026-07-28 alone, as strictly as that is written: what has
// no version in its header is refused.
type newer struct {
	t     *testing.T
	login bool // it wants one
	tools string

	mu   sync.Mutex
	head http.Header // of the last call
}

func (s *newer) serve(w http.ResponseWriter, r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
	}
	_ = jsonx.Unmarshal(body, &m)
	if got := r.Header.Get("Mcp-Method"); got != m.Method {
		s.t.Errorf("%s %s has the header Mcp-Method %q", r.Method, m.Method, got)
	}
	w.Header().Set("Content-Type", "application/json")
	answer := func(result string) { _, _ = io.WriteString(w, message(m.ID, result)) }
	switch {
	case r.Header.Get("Mcp-Protocol-Version") != "2026-07-28":
		w.WriteHeader(http.StatusBadRequest)
		_,
			_ = io.WriteString(w,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Missing MCP-Protocol-Version header"}}`)
	case s.login:
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://127.0.0.1/x"`)
		w.WriteHeader(http.StatusUnauthorized)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover":
		answer(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"newer","version":"1"}}`)
	case m.Method == "tools/list":
		answer(s.tools)
	case m.Method == "tools/call":
		s.mu.Lock()
		s.head = r.Header.Clone()
		s.mu.Unlock()
		answer(`{"content":[{"type":"text","text":"did it"}]}`)
	default:
		answer(`{}`)
	}
	return true
}

// A server that takes the newer handshake alone, and wants a login, is one that wants a login:
// the refusal of the older one, which is tried once more, does not hide that.
func TestANewerServerThatWantsALogin(t *testing.T) {
	s := newStrict(t)
	s.instead = (&newer{t: t, login: true}).serve
	b := mount(t, at(s.URL))
	b.fails("needs_login", "the server answers 401")
	if got := b.Servers(model.Scope{}); len(got) != 1 || got[0].State != model.ServerNeedsLogin {
		t.Errorf("got %+v", got)
	}
}

// Arguments that a newer server wants in headers are there, as it reads them.
func TestArgumentsInHeaders(t *testing.T) {
	n := &newer{t: t, tools: `{"tools":[{"name":"run","inputSchema":{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},"name":{"type":"string","x-mcp-header":"Name"},"n":{"type":"integer","x-mcp-header":"Count"},
		"on":{"type":"boolean","x-mcp-header":"On"},"none":{"type":"string","x-mcp-header":"None"},"long":{"type":"string","x-mcp-header":"Long"},
		"in":{"type":"object","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}},"plain":{"type":"string"}}}}]}`}
	s := newStrict(t)
	s.instead = n.serve
	b := mount(t, at(s.URL))
	long := string(bytes.Repeat([]byte("x"), maxParamHeaders))
	r := b.Call(t.Context(), tooltest.Invocation("x.run",
		`{"region":"eu west","name":"Grüße","n":7.0,"on":true,"in":{"deep":"down"},"plain":"p","long":"`+long+`x"}`), nil)
	if !r.OK || r.Text != "did it" {
		t.Fatalf("got %+v", r)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	want := map[string]string{
		"Region": "eu west", "Name": "=?base64?R3LDvMOfZQ==?=", "Count": "7", "On": "true", "Deep": "down", "None": "",
		"Long": "", "Plain": "",
	}
	for name, value := range want {
		if got := n.head.Get("Mcp-Param-" + name); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
	if got := n.head.Get("Mcp-Name"); got != "run" {
		t.Errorf("the call's name is %q", got)
	}
}

package bridge

import (
	"strings"
	"testing"

	"noused/internal/acp"
)

// Whatever is wrong with a message has its code, and the field is named.
func TestWrongMessages(t *testing.T) {
	d := startDaemon(t, "")
	e := openEditor(t, d.Socket)
	wrong := func(line string, code acp.Code, want string) {
		t.Helper()
		from := e.mark()
		e.write(line)
		m, _ := e.await(from, "an error for "+line, func(m message) bool { return m.Error != nil })
		if m.Error.Code != code || !strings.Contains(m.Error.Message, want) {
			t.Errorf("%s: got %d %q, want %d with %q", line, m.Error.Code, m.Error.Message, code, want)
		}
	}
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":"x","method":"` + method + `","params":` + params + `}`
	}
	wrong(call(acp.SessionNew, `{"cwd":"/","mcpServers":[]}`), acp.InvalidRequest, "initialize comes first")
	wrong(call(acp.Initialize, `{}`), acp.InvalidParams, "protocolVersion: missing")
	wrong(call(acp.Initialize, `{"protocolVersion":"1"}`), acp.InvalidParams, "protocolVersion: has the wrong type")
	wrong(call(acp.Initialize, `{"protocolVersion":70000}`), acp.InvalidParams, "protocolVersion: want 0 to 65535")
	e.must(acp.Initialize, `{"protocolVersion":7,"clientCapabilities":[1]}`)
	wrong(call(acp.Initialize, `{"protocolVersion":1}`), acp.InvalidRequest, "initialized before")
	s := e.open(d.Dir)
	id := func(more string) string { return `{"sessionId":"` + s + `"` + more + `}` }

	for _, tc := range []struct {
		line string
		code acp.Code
		want string
	}{
		{`{"jsonrpc":`, acp.ParseError, "not JSON"},
		{`hello`, acp.ParseError, "not JSON"},
		{`{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"x"}`, acp.ParseError, "duplicate"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", acp.ParseError, "UTF-8"},
		{`[{"jsonrpc":"2.0","id":1,"method":"session/list"}]`, acp.InvalidRequest, "one JSON object"},
		{`17`, acp.InvalidRequest, "one JSON object"},
		{`{"id":1,"method":"session/list"}`, acp.InvalidRequest, "jsonrpc"},
		{`{"jsonrpc":"1.0","id":1,"method":"session/list"}`, acp.InvalidRequest, "jsonrpc"},
		{`{"jsonrpc":"2.0","id":1}`, acp.InvalidRequest, "method: missing"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, acp.InvalidRequest, "method: missing"},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, acp.InvalidRequest, "method: has the wrong type"},
		{`{"jsonrpc":"2.0","id":1.5,"method":"session/list"}`, acp.InvalidRequest, "id: "},
		{`{"jsonrpc":"2.0","id":{},"method":"session/list"}`, acp.InvalidRequest, "id: "},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 300) + `","method":"session/list"}`, acp.InvalidRequest, "id: "},
		{call("session/fork", `{}`), acp.MethodNotFound, `"session/fork"`},
		{call("session/close", id("")), acp.MethodNotFound, "session/close"},
		{call("_other/thing", `{}`), acp.MethodNotFound, "_other/thing"},
		{call(acp.SessionCancel, id("")), acp.InvalidRequest, "notification"},
		{call(acp.Authenticate, `{"methodId":"password"}`), acp.InvalidParams, "methodId"},
		{call(acp.SessionNew, `[]`), acp.InvalidParams, "params: want an object"},
		{call(acp.SessionNew, `{"mcpServers":[]}`), acp.InvalidParams, "cwd: missing"},
		{call(acp.SessionNew, `{"cwd":"src","mcpServers":[]}`), acp.InvalidParams, "cwd: want an absolute path"},
		{call(acp.SessionNew, `{"cwd":`+quote(d.Dir+"/none")+`,"mcpServers":[]}`), acp.InvalidParams, "cwd: "},
		{call(acp.SessionNew, `{"cwd":"/"}`), acp.InvalidParams, "mcpServers: missing"},
		{call(acp.SessionNew, `{"cwd":"/","mcpServers":[{"name":"x"}]}`), acp.InvalidParams, "mcpServers.0.command: missing"},
		{
			call(acp.SessionNew, `{"cwd":"/","mcpServers":[{"name":"x","type":"sse","url":"http://h","headers":[]}]}`),
			acp.InvalidParams, "mcpServers.0.type: sse",
		},
		{
			call(acp.SessionNew, `{"cwd":"/","mcpServers":[{"name":1}]}`), acp.InvalidParams,
			"mcpServers.0.name: has the wrong type",
		},
		{call(acp.SessionLoad, `{"cwd":"/","mcpServers":[]}`), acp.InvalidParams, "sessionId: missing"},
		{call(acp.SessionLoad, `{"sessionId":"ses-none","cwd":"/","mcpServers":[]}`), acp.ResourceNotFound, "sessionId: "},
		{call(acp.SessionResume, `{"sessionId":"ses-none","cwd":"/"}`), acp.ResourceNotFound, "sessionId: "},
		{call(acp.SessionDelete, `{"sessionId":"ses-none"}`), acp.ResourceNotFound, "sessionId: "},
		{call(acp.SessionList, `{"cwd":"here"}`), acp.InvalidParams, "cwd: want an absolute path"},
		{call(acp.SessionPrompt, textPrompt("ses-none", "x")), acp.ResourceNotFound, "sessionId: "},
		{call(acp.SessionPrompt, `{"prompt":[]}`), acp.InvalidParams, "sessionId: missing"},
		{call(acp.SessionPrompt, id(``)), acp.InvalidParams, "prompt: want"},
		{call(acp.SessionPrompt, id(`,"prompt":"hello"`)), acp.InvalidParams, "prompt: has the wrong type"},
		{call(acp.SessionPrompt, id(`,"prompt":[{"type":"text"}]`)), acp.InvalidParams, "prompt.0.text: missing"},
		{call(acp.SessionPrompt, id(`,"prompt":[{"type":"text","text":" "}]`)), acp.InvalidParams, "prompt: want a text"},
		{call(acp.SessionPrompt, id(`,"prompt":[{"text":"x"}]`)), acp.InvalidParams, "prompt.0.type: missing"},
		{
			call(acp.SessionPrompt, id(`,"prompt":[{"type":"audio","data":"","mimeType":"audio/wav"}]`)), acp.InvalidParams,
			`prompt.0.type: "audio"`,
		},
		{
			call(acp.SessionPrompt, id(`,"prompt":[{"type":"image","data":"AAAA","mimeType":"image/tiff"}]`)), acp.InvalidParams,
			"prompt.0.mimeType",
		},
		{
			call(acp.SessionPrompt, id(`,"prompt":[{"type":"image","data":"#","mimeType":"image/png"}]`)), acp.InvalidParams,
			"prompt.0.data: is not base64",
		},
		{
			call(acp.SessionPrompt, id(`,"prompt":[{"type":"image","data":"AAAA","mimeType":"image/png"}]`)), acp.InvalidParams,
			"prompt.0.data: ",
		},
		{call(acp.SessionPrompt, id(`,"prompt":[{"type":"resource"}]`)), acp.InvalidParams, "prompt.0.resource: missing"},
		{
			call(acp.SessionPrompt, id(`,"prompt":[{"type":"resource","resource":{"uri":"x","blob":"AAAA"}}]`)),
			acp.InvalidParams, "prompt.0.resource.blob",
		},
		{call(acp.SessionPrompt, id(`,"prompt":[{"type":"resource_link","name":"x"}]`)), acp.InvalidParams, "prompt.0.uri"},
		{call(acp.SessionPrompt, id(`,"prompt":[{"type":"text","text":"/skill:none"}]`)), acp.InvalidParams, "none"},
		{call(acp.SetMode, id(``)), acp.InvalidParams, "modeId: missing"},
		{call(acp.SetMode, id(`,"modeId":"yolo"`)), acp.InvalidParams, "modeId: "},
		{call(acp.SetConfigOption, id(`,"configId":"colour","value":"red"`)), acp.InvalidParams, "configId: "},
		{call(acp.SetConfigOption, id(`,"configId":"model"`)), acp.InvalidParams, "value: missing"},
		{call(acp.SetConfigOption, id(`,"configId":"model","value":"nonsense"`)), acp.InvalidParams, "value: "},
		{call(acp.SetConfigOption, id(`,"configId":"effort","value":"extreme"`)), acp.InvalidParams, "value: "},
		{call(acp.SetConfigOption, id(`,"configId":"steering","value":"some"`)), acp.InvalidParams, "value: "},
		{call(acp.Steer, id(``)), acp.InvalidParams, "prompt: want"},
		{strings.Repeat("x", 17<<20), acp.InvalidRequest, "longer than"},
	} {
		wrong(tc.line, tc.code, tc.want)
	}

	// What cannot be answered is in the log, and all goes on.
	e.notify("session/what", `{}`)
	e.notify(acp.SessionCancel, `{}`)
	e.notify(acp.CancelRequest, `{"requestId":99}`)
	e.write(`{"jsonrpc":"2.0","id":4711,"result":{}}`)
	e.write("")
	if got := e.say(s, "still there"); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	for _, want := range []string{"session/what", "sessionId: missing", "an answer to nothing that was asked, id 4711"} {
		if !e.log.has(want) {
			t.Errorf("the log has nothing of %q: %q", want, e.log.lines)
		}
	}
}

// A request with the id of one that has no answer yet is refused, and the first one
// is answered once.
func TestAnIDThatIsTaken(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	first := e.prompt(s, "!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	e.write(`{"jsonrpc":"2.0","id":` + first + `,"method":"session/list","params":{}}`)
	e.await(0, "the refusal", func(m message) bool {
		return m.Error != nil && m.Error.Code == acp.InvalidRequest && string(m.ID) == "null"
	})
	d.Write("go", "x\n")
	if got := e.stop(first); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
}

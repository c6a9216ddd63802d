package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// numbered makes ids of a form.
func numbered(form string) func(int) string {
	return func(n int) string { return fmt.Sprintf(form, n) }
}

// Bodies of refusals.
const (
	openaiRefusal    = `{"error":{"message":%q,"type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`
	anthropicRefusal = `{"type":"error","error":{"type":"invalid_request_error","message":%q},"request_id":"req_1"}`
)

// strictVendors is the table of models-today.md §1, a row for each rule.
var strictVendors = []strictVendor{
	{
		name: "DeepSeek", wire: "chat", model: "deepseek-v4", think: "reasoning_content", needed: true,
		id: numbered("call_00_%d"), status: 400, refuse: openaiRefusal,
	},
	{
		name: "Kimi", wire: "chat", model: "kimi-k2.5", think: "reasoning_content", needed: true, id: func(n int) string {
			return fmt.Sprintf("functions.read:%d", n-1)
		},
		status: 400, refuse: `{"error":{"message":%q,"type":"invalid_request_error"}}`,
	},
	{
		name: "GLM", wire: "chat", model: "glm-5", path: "/api/paas", think: "reasoning_content", needed: true,
		id:     numbered("call_-7%d"),
		status: 400, refuse: `{"error":{"code":"1214","message":%q}}`,
	},
	{
		name: "xAI", wire: "chat", model: "grok-4", think: "reasoning_content", needed: true, id: numbered("call_%08d"),
		status: 400, refuse: `{"code":"Client specified an invalid argument","error":%q}`,
	},
	{
		name: "gpt-oss on llama.cpp", wire: "chat", model: "gpt-oss-20b", think: "reasoning_content",
		id:     numbered("xK2%029d"),
		status: 500, refuse: `{"error":{"code":500,"message":%q,"type":"server_error"}}`,
	},
	{
		name: "gpt-oss on Ollama", wire: "chat", model: "gpt-oss:20b", think: "reasoning", id: numbered("call_%08d"),
		status: 400, refuse: `{"error":{"message":%q,"type":"api_error","param":null,"code":null}}`,
	},
	{
		name: "a name of its own", wire: "chat", model: "mimo", think: "reasoning_text", id: numbered("c%d"), status: 422,
		refuse: `{"detail":%q}`,
	},
	{
		name: "think tags", wire: "chat", model: "qwq", think: "tags", id: numbered("c%d"), status: 400,
		refuse: `{"object":"error","message":%q,"type":"BadRequestError","code":400}`,
	},
	{
		name: "OpenRouter", wire: "chat", model: "anthropic/claude-test", host: "openrouter.ai", path: "/api", marked: true,
		think: "reasoning", id: numbered("toolu_%d"), status: 400,
		pieces: `"reasoning_details":[{"type":"reasoning.text","text":"I th","format":"anthropic-claude-v1","index":0}]` +
			"\n" +
			`"reasoning_details":[{"type":"reasoning.text","text":"ink","signature":"EqQBCg/+==","format":"anthropic-claude-v1","index":0}]` + "\n" +
			`"reasoning_details":[{"type":"reasoning.encrypted","data":"gAAAAAB","id":%q,"format":"openai-responses-v1","index":1}]`,
		whole:  `"reasoning_details":[{"type":"reasoning.text","text":"I think","format":"anthropic-claude-v1","index":0,"signature":"EqQBCg/+=="},{"type":"reasoning.encrypted","data":"gAAAAAB","id":%q,"format":"openai-responses-v1","index":1}]`,
		refuse: `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":%q,"provider_name":"Anthropic"}},"user_id":"u"}`,
	},
	{
		name: "Gemini", wire: "chat", model: "gemini-3-pro", path: "/openai",
		call: `"extra_content":{"google":{"thought_signature":"CtgB\u002fsig=="}},"of_later":[1, 2.50]`,
		id:   numbered("function-call-%d"), status: 400,
		refuse: `[{"error":{"code":400,"message":%q,"status":"INVALID_ARGUMENT"}}]`,
	},
	{
		name: "Mistral", wire: "chat", model: "mistral-medium", think: "parts", bridge: true, id: numbered("D681PevK%d"),
		status: 400,
		refuse: `{"object":"error","message":%q,"type":"invalid_request_message_order","param":null,"code":"3230"}`,
	},
	{
		name: "Anthropic", wire: "messages", model: "claude-opus", id: numbered("toolu_01%d"), status: 400,
		refuse: anthropicRefusal,
	},
	{
		name: "DeepSeek's messages", wire: "messages", model: "deepseek-v4", path: "/anthropic", unsigned: "absent",
		id: numbered("call_%d"), status: 400, refuse: anthropicRefusal,
	},
	{
		name: "Kimi's messages", wire: "messages", model: "kimi-k2.5", path: "/anthropic", unsigned: "empty",
		id: numbered("tool_%d"), status: 400, refuse: anthropicRefusal,
	},
	{
		name: "OpenAI", wire: "responses", model: "gpt-5.2", id: numbered("call_%d"), status: 400,
		refuse: `{"error":{"message":%q,"type":"invalid_request_error","param":"input","code":null}}`,
	},
}

// provider is the daemon's name of who speaks a wire.
func (v strictVendor) provider() string {
	if v.wire == "messages" {
		return "anthropic"
	}
	return "openai"
}

// wireLine is what the configuration says of the wire.
func (v strictVendor) wireLine() string {
	if v.wire == "messages" {
		return ""
	}
	return fmt.Sprintf("wire = %q", v.wire)
}

// talk is a session of a daemon with a vendor.
type talk struct {
	*daemon
	t      *testing.T
	c      *client.Client
	events *client.Events
	scope  protocol.Scope
}

func newTalk(t *testing.T, s *vendorServer) *talk {
	t.Helper()
	return newTalkOf(t, s, func(*daemon) {})
}

// newTalkOf has a daemon prepared before it is started.
func newTalkOf(t *testing.T, s *vendorServer, prepare func(*daemon)) *talk {
	t.Helper()
	more := []string{testKey}
	if s.host != "" {
		more = nil // what goes through a proxy without TLS has no key
	}
	config := modelConfig(t, s.provider(), s.url, append(more, s.wireLine())...)
	d := unstarted(t, "noused", "--config", config, "--model", s.provider()+"/"+s.model)
	prepare(d)
	d.Start()
	d.write("page.txt", strings.Repeat("what the page says\n", 20), 0o600)
	k := &talk{daemon: d, t: t}
	k.dial()
	made, err := client.Call(context.Background(), k.c, protocol.NewSession, protocol.NewSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	k.scope.SessionID = made.SessionID
	return k
}

// dial connects to the daemon, anew after a crash.
func (k *talk) dial() {
	k.t.Helper()
	k.c, k.events = k.daemon.dial(), k.daemon.events(protocol.SubscribeParams{})
}

// startRun prompts and does not wait for the end.
func (k *talk) startRun(text string) (run string) {
	k.t.Helper()
	no := false
	r, err := client.Call(context.Background(), k.c, protocol.Prompt, protocol.PromptParams{
		Scope: k.scope, Text: text,
		Wait: &no,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return r.Accepted.RunID
}

// end waits for the end of a run, which must need no help.
func (k *talk) end(run, reason string) {
	k.t.Helper()
	end := await(k.t, k.events, func(ev protocol.Event) bool {
		if w, ok := ev.(protocol.Warning); ok {
			k.t.Errorf("warned %s: %s", w.Code, w.Message)
		}
		return endOf(run)(ev)
	}).(protocol.AgentEnd)
	if string(end.StopReason) != reason {
		k.t.Fatalf("the run ended %s, %+v, want %s", end.StopReason, end.Error, reason)
	}
}

// held waits until the first half of an answer that is held was heard.
func (k *talk) held(half string) {
	k.t.Helper()
	await(k.t, k.events, func(ev protocol.Event) bool {
		if end, ok := ev.(protocol.AgentEnd); ok {
			k.t.Fatalf("the run ended: %+v", end)
		}
		u, ok := ev.(protocol.MessageUpdate)
		return ok && u.Delta == half
	})
}

func (k *talk) runToEnd(text string) {
	k.t.Helper()
	k.end(k.startRun(text), "completed")
}

// choose has another vendor answer.
func (k *talk) choose(s *vendorServer) {
	k.t.Helper()
	p := protocol.SetModelParams{Scope: k.scope, Model: "default"}
	if s != nil {
		p.Model, p.BaseURL = s.provider()+"/"+s.model, s.url
	}
	if _, err := client.Call(context.Background(), k.c, protocol.SetModel, p); err != nil {
		k.t.Fatal(err)
	}
}

// A conversation with each vendor, in which the model thinks and calls tools at
// once and in turn, and which is steered, aborted, killed with the daemon and
// carried on by models of other wires: no request is refused, and each begins
// with the bytes of the one before.
func TestStrictVendors(t *testing.T) {
	testenv.Long(t)
	t.Setenv("TEST_KEY", "none")
	t.Setenv("OPENAI_API_KEY", "")
	var hosts sync.Map // the servers that stand for a real host
	proxy := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
		if s, ok := hosts.Load(r.Host); ok {
			s.(*vendorServer).ServeHTTP(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTP_PROXY", proxy.URL)
	others := map[string]string{"chat": "Anthropic", "messages": "DeepSeek", "responses": "Kimi"}
	for _, v := range strictVendors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			own := serveVendor(t, v)
			if v.host != "" {
				hosts.Store(v.host, own)
			}
			servers := []*vendorServer{own}
			k := newTalk(t, own)
			k.runToEnd("turn 1: read the page")
			steered := k.startRun("turn 2: HOLD at the end")
			k.held("turn 2 ")
			if _, err := client.Call(context.Background(), k.c, protocol.Steer,
				protocol.SteerParams{Scope: k.scope, Text: "turn 3: and the other one"}); err != nil {
				t.Fatal(err)
			}
			close(own.release)
			k.end(steered, "completed")
			aborted := k.startRun("turn 4: STALL, to be aborted")
			k.held("Once more,")
			if _, err := client.Call(context.Background(), k.c, protocol.Abort, protocol.AbortParams{Scope: k.scope}); err !=
				nil {
				t.Fatal(err)
			}
			k.end(aborted, "aborted")
			killed := k.startRun("turn 5: STALL, to be killed")
			k.held("Once more,")
			k.Kill()
			own.mu.Lock() // nothing goes on before somebody listens
			k.Start()
			k.dial()
			own.mu.Unlock()
			k.end(killed, "completed")
			for _, name := range []string{others[v.wire], "Anthropic", "Gemini"} {
				for _, w := range strictVendors {
					if w.name == name {
						servers = append(servers, serveVendor(t, w))
						k.choose(servers[len(servers)-1])
						k.runToEnd("turn 6: who are you, " + name)
					}
				}
			}
			k.choose(nil)
			k.runToEnd("turn 7: and you?")
			k.Stop()
			for _, s := range servers {
				s.mu.Lock()
				t.Logf("%s: %d requests", s.name, s.requests)
				for _, why := range s.refused {
					t.Errorf("%s refused %s", s.name, why)
				}
				s.mu.Unlock()
			}
		})
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// OpenAI's own host and Azure's take tools over the Responses API only; nobody
// else is taken for one of them.
func TestWireOf(t *testing.T) {
	for url, want := range map[string]string{
		"https://api.openai.com/v1":                          "responses",
		"https://API.OpenAI.com/v1/":                         "responses",
		"https://mine.openai.azure.com/openai/v1":            "responses",
		"https://mine.services.ai.azure.com/openai/v1":       "responses",
		"https://mine.cognitiveservices.azure.com/openai/v1": "responses",
		"https://eu.api.openai.com.example.org/v1":           "chat",
		"https://openai.azure.com.example.org/v1":            "chat",
		"http://localhost:11434/v1":                          "chat",
		"https://example.org/api.openai.com/v1":              "chat",
		"https://openrouter.ai/api/v1?host=api.openai.com":   "chat",
		"://": "chat",
	} {
		if got := wireOf(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

// A server that speaks the other wire only answers 404, and the error says what
// to write into the configuration; written there, it works.
func TestTheOtherWire(t *testing.T) {
	server := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path != "/v1/responses" && r.URL.Path != "/only-chat/v1/chat/completions":
			http.NotFound(w, r)
		case r.URL.Path == "/v1/responses":
			if !strings.Contains(string(body), `"store":false`) || !strings.Contains(string(body), `"tools":[`) {
				t.Errorf("got the request %s", body)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			sse(w,
				`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","role":"assistant","content":[]}}`,
				`{"type":"response.output_text.delta","output_index":0,"delta":"Hello."}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Hello."}]}}`,
				`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":3,"output_tokens":2}}}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			sse(w, `{"choices":[{"delta":{"content":"Hello."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
		}
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct{ wire, path, want string }{
		{"", "", `wire = "responses"`},
		{"chat", "", `wire = "responses"`},
		{"responses", "/only-chat", `wire = "chat"`},
		{"responses", "", ""},
		{"chat", "/only-chat", ""},
		{"", "/only-chat", ""},
	} {
		t.Run(c.wire+" "+c.path, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "config.toml")
			text := fmt.Sprintf("[model]\nprovider = \"openai\"\nname = \"gpt-test\"\nbase_url = %q\n", server.URL+c.path+"/v1")
			if c.wire != "" {
				text += fmt.Sprintf("wire = %q\n", c.wire)
			}
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			d := newDaemon(t, "--config", config)
			r, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{Text: "hello"})
			switch {
			case c.want == "" && (err != nil || r.Result.Output != "Hello."):
				t.Errorf("got %+v, %v", r.Result, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

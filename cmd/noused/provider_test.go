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
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/model"
	"noused/internal/protocol"
)

// request is what a provider is sent, as far as the tests look.
type request struct {
	Model    string `json:"model"`
	System   any    `json:"system"`
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
	Tools []map[string]any `json:"tools"`
}

// provided is a daemon whose model is served by serve, one call after the other.
func provided(t *testing.T, name string, serve func(n int, r request, w http.ResponseWriter), more ...string) (*daemon,
	func(text string) (protocol.PromptReply, error),
) {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // it has no list of its models
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		var got request
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil {
			t.Errorf("got %s: %v", body, err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		serve(int(calls.Add(1)), got, w)
	}))
	t.Cleanup(server.Close)
	t.Setenv("TEST_KEY", "sk-never-tell")
	config := filepath.Join(t.TempDir(), "config.toml")
	provider, model, _ := strings.Cut(name, "/")
	text := fmt.Sprintf(
		"[model]\nprovider = %q\nname = %q\nbase_url = %q\napi_key_env = \"TEST_KEY\"\nsystem = \"Be brief.\"\n%s\n",
		provider, model, server.URL, strings.Join(more, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, "--config", config)
	return d, func(text string) (protocol.PromptReply, error) {
		return client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{Text: text})
	}
}

func sse(w io.Writer, events ...string) {
	for _, e := range events {
		fmt.Fprintf(w, "data: %s\n\n", e)
	}
}

// A run with a tool over the OpenAI wire, the daemon's own tool and all.
func TestOpenAIRun(t *testing.T) {
	d, prompt := provided(t, "openai/gpt-test", func(n int, r request, w http.ResponseWriter) {
		system := fmt.Sprint(r.Messages[0].Content)
		if r.Model != "gpt-test" || r.Messages[0].Role != "system" || !strings.Contains(system, "Use tabs.") ||
			!strings.HasSuffix(system, "Be brief.") {
			t.Errorf("got model %s, system prompt %q", r.Model, system)
		}
		switch n {
		case 1:
			if len(r.Tools) < 7 {
				t.Errorf("offered %d tools, want the built-in ones", len(r.Tools))
			}
			sse(w, `{"choices":[{"delta":{"content":"Let me "}}]}`, `{"choices":[{"delta":{"content":"look."}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"read","arguments":"{\"path\":"}}]}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"AGENTS.md\"}"}}]}}]}`,
				`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`,
				`{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}`, "[DONE]")
		default:
			last := r.Messages[len(r.Messages)-1]
			if last.Role != "tool" || !strings.Contains(fmt.Sprint(last.Content), "Use tabs.") {
				t.Errorf("the tool's result came back as %+v", last)
			}
			sse(w, `{"choices":[{"delta":{"content":"Tabs it is."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
				`{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":4}}`, "[DONE]")
		}
	})
	d.write("AGENTS.md", "Use tabs.\n", 0o600)
	r, err := prompt("tabs or spaces?")
	if err != nil || r.Result.Output != "Tabs it is." {
		t.Fatalf("got %+v, %v", r.Result, err)
	}
	st, err := client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{})
	if err != nil || st.Usage.InputTokens != 31 || st.Usage.OutputTokens != 7 || st.Model.Provider != "openai" ||
		st.Model.Name != "gpt-test" ||
		len(st.SystemFiles) != 1 || st.SystemFiles[0] != filepath.Join(d.Dir, "AGENTS.md") {
		t.Errorf("got %+v, %v", st, err)
	}
}

// Over the Anthropic wire: a retry is told, thinking comes in its own field and
// goes back with its signature.
func TestAnthropicRun(t *testing.T) {
	d, prompt := provided(t, "anthropic/claude-test", func(n int, r request, w http.ResponseWriter) {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slowly, sk-never-tell"}}`)
		case 2:
			sse(w, `{"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"signed"}}`,
				`{"type":"content_block_stop","index":0}`,
				`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
				`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Yes."}}`,
				`{"type":"content_block_stop","index":1}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`,
				`{"type":"message_stop"}`)
		default:
			if all := fmt.Sprint(r.Messages); !strings.Contains(all, "signed") {
				t.Errorf("the thinking does not come back: %s", all)
			}
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"type":"error","error":{"type":"authentication_error","message":"no such key: sk-never-tell"}}`)
		}
	})
	r, err := prompt("yes or no?")
	if err != nil || r.Result.Output != "Yes." {
		t.Fatalf("got %+v, %v", r.Result, err)
	}
	told := ""
	for _, line := range r.Result.Events {
		told += string(line)
	}
	for _, want := range []string{`"code":"provider_retry"`, `"thinking_delta":"hm"`} {
		if !strings.Contains(told, want) {
			t.Errorf("no event has %s: %s", want, told)
		}
	}
	_, err = prompt("and now?")
	if err == nil || !strings.Contains(err.Error(), "no such key") {
		t.Errorf("got %v, want what the provider says", err)
	}
	d.Stop()
	if all := told + fmt.Sprint(err) + d.Log.String(); strings.Contains(all, "sk-never-tell") {
		t.Errorf("the key is told: %s", all)
	}
}

// A model that cannot be asked keeps no daemon from starting: who prompts learns why.
func TestAModelThatCannotBeAskedIsTold(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("ANTHROPIC_API_KEY", "")
	for model, want := range map[string]string{
		"openai/gpt": "no_model: openai/gpt: there is no key: nous login openai saves one, or set OPENAI_API_KEY in " +
			"the daemon's environment",
		"anthropic/claude": "no_model: anthropic/claude: there is no key: nous login anthropic saves one",
		"module/nobody":    "no_model: module/nobody: no tools directory has a provider module of that name",
	} {
		d := newDaemon(t, "--model", model)
		_, err := d.answered("hi")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--model %s: got %v, want %s", model, err, want)
		}
		if !strings.Contains(d.Log.String(), model) {
			t.Errorf("--model %s: the log does not say it", model)
		}
	}
}

// A session that changes its model in the middle of a conversation: the other
// provider reads what was said, thought and called, at another server without
// the key, and it stays chosen over a restart.
func TestSetModel(t *testing.T) {
	ctx := context.Background()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "" || r.Header.Get("Authorization") != "" {
			t.Error("the key was sent to a server that it is not for")
		}
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		for _, want := range []string{
			`"model":"claude-test"`, `"type":"tool_use"`, `"type":"tool_result"`,
			"tabs or spaces?",
		} {
			if !strings.Contains(string(body), want) {
				t.Errorf("the other model's request has no %s: %s", want, body)
			}
		}
		if strings.Contains(string(body), "tabs, surely") {
			t.Errorf("one provider's thinking went to another: %s", body)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		sse(w, `{"type":"message_start","message":{"usage":{"input_tokens":30}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Spaces."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`)
	}))
	t.Cleanup(other.Close)
	d, prompt := provided(t, "openai/gpt-test", func(n int, _ request, w http.ResponseWriter) {
		if n == 1 {
			sse(w, `{"choices":[{"delta":{"reasoning_content":"tabs, surely"}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"ls","arguments":"{}"}}]}}]}`,
				`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]")
			return
		}
		sse(w, `{"choices":[{"delta":{"content":"Tabs."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
	})
	if _, err := prompt("tabs or spaces?"); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		p    protocol.SetModelParams
		want string
	}{
		{protocol.SetModelParams{}, "model: want a non-empty string"},
		{protocol.SetModelParams{Model: "nobody/x"}, `model: there is no provider "nobody"; near it are `},
		{protocol.SetModelParams{Model: "openai"}, "model: want openai/NAME"},
		{
			protocol.SetModelParams{Model: "anthropic/claude"},
			"model: anthropic/claude: there is no key: nous login anthropic",
		},
		{protocol.SetModelParams{Model: "openai/x", BaseURL: "ftp://x"}, "model: openai/x: base_url must begin with http"},
		{
			protocol.SetModelParams{Model: "openai/x", BaseURL: "http://joe:secret@host/v1"},
			"model: base_url may have no password",
		},
		{
			protocol.SetModelParams{Model: "openai/x", BaseURL: "http://host/v1?key=secret"},
			"model: base_url may have no password, query",
		},
		{protocol.SetModelParams{Model: "module/nobody"}, "model: module/nobody: no tools directory has"},
		{protocol.SetModelParams{Model: "offline", BaseURL: "http://x"}, "model: offline is asked at no server"},
		{protocol.SetModelParams{Model: "default", ContextWindow: 5000}, "model: the daemon's own model"},
		{
			protocol.SetModelParams{Model: "openai/x", Effort: "much"},
			`effort: there is no level "much", only none, minimal, low, medium, high, xhigh, max`,
		},
		{
			protocol.SetModelParams{Model: "offline", Effort: "high"},
			"effort: the provider offline cannot be told how hard to think",
		},
		{protocol.SetModelParams{Model: "offline", ContextWindow: 7}, "context_window: want 1000 to 10000000 tokens, got 7"},
	} {
		if _, err := client.Call(ctx, d.dial(), protocol.SetModel, bad.p); err == nil ||
			!strings.Contains(err.Error(), "invalid_payload: "+bad.want) {
			t.Errorf("%+v: got %v, want %s", bad.p, err, bad.want)
		}
	}
	set := func(p protocol.SetModelParams) {
		t.Helper()
		if _, err := client.Call(ctx, d.dial(), protocol.SetModel, p); err != nil {
			t.Fatal(err)
		}
	}
	set(protocol.SetModelParams{Model: "anthropic/claude-test", BaseURL: other.URL, ContextWindow: 50_000})
	if r, err := prompt("are you sure?"); err != nil || r.Result.Output != "Spaces." {
		t.Fatalf("got %+v, %v", r.Result, err)
	}
	d.Stop()
	d.Start()
	st, err := client.Call(ctx, d.dial(), protocol.GetState, protocol.GetStateParams{})
	want := protocol.ModelInfo{Provider: "anthropic", Name: "claude-test", BaseURL: other.URL}
	if err != nil || st.Model != want || st.Context.Window != 50_000 || st.Context.Tokens < 30 || st.Workdir != d.Dir {
		t.Errorf("after a restart: %+v, %+v, %s, %v", st.Model, st.Context, st.Workdir, err)
	}
	set(protocol.SetModelParams{Model: "default"})
	if st, err := client.Call(ctx, d.dial(), protocol.GetState, protocol.GetStateParams{}); err != nil ||
		st.Model.Name != "gpt-test" {
		t.Errorf("got %+v, %v, want the daemon's own model again", st.Model, err)
	}
}

// A key goes to the server that the configuration or the environment has it
// for, however its address is spelt, and nowhere else.
// systemd puts a credential into a file that has its name.
func TestAKeyMayBeACredential(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"MINE": "sk-file\n", "OTHER": "sk-other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		env  map[string]string
		name string
		want string
	}{
		"the file":           {map[string]string{"CREDENTIALS_DIRECTORY": dir}, "MINE", "sk-file"},
		"the variable first": {map[string]string{"CREDENTIALS_DIRECTORY": dir, "MINE": "sk-env"}, "MINE", "sk-env"},
		"another's":          {map[string]string{"CREDENTIALS_DIRECTORY": dir}, "YOURS", ""},
		"no folder":          {nil, "MINE", ""},
		"a path":             {map[string]string{"CREDENTIALS_DIRECTORY": dir + "/sub"}, "../MINE", ""},
	} {
		cfg := ModelConfig{Provider: "openai", Name: "m", BaseURL: "http://localhost:1/v1", APIKeyEnv: c.name}
		v := vendors{own: cfg, getenv: func(name string) string { return c.env[name] }}
		if o, err := v.server("openai", "m", true); err != nil || o.APIKey != c.want {
			t.Errorf("%s: got %q, %v, want %q", what, o.APIKey, err, c.want)
		}
	}
}

func TestKeysOfChosenServers(t *testing.T) {
	env := map[string]string{"OPENAI_API_KEY": "sk-openai", "MINE": "sk-mine"}
	m := vendors{
		own: ModelConfig{Provider: "openai", Name: "tiny", BaseURL: "http://localhost:1/v1", APIKeyEnv: "MINE"},
		getenv: func(name string) string {
			return env[name]
		},
	}
	for url, want := range map[string]string{
		"": "sk-mine", "http://localhost:1/v1": "sk-mine", "http://localhost:1/v1/": "sk-mine",
		"https://api.openai.com/v1": "sk-openai", "http://localhost:2/v1": "", "http://localhost:1/v2": "",
		"https://localhost:1/v1": "",
	} {
		o, err := m.at(model.Choice{Provider: "openai", Name: "x", BaseURL: url})
		if err != nil || o.APIKey != want {
			t.Errorf("%q gets the key %q, %v; want %q", url, o.APIKey, err, want)
		}
	}
}

// A context that the provider finds too long is summarised, and the turn tried
// once more; max_steps ends a turn that does not come to an end.
func TestOverflowAndSteps(t *testing.T) {
	d, prompt := provided(t, "openai/gpt-test", func(n int, r request, w http.ResponseWriter) {
		all := fmt.Sprint(r.Messages)
		switch {
		case strings.Contains(all, "call for ever"):
			sse(w,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"ls","arguments":"{}"}}]}}]}`,
				`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]")
		case len(all) > 40_000:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w,
				`{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 8192 tokens."}}`)
		case len(r.Tools) == 0:
			sse(w, `{"choices":[{"delta":{"content":"they counted"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
				"[DONE]")
		default:
			sse(w, `{"choices":[{"delta":{"content":"ok"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
		}
	}, "max_steps = 3")
	for i := range 4 {
		r, err := prompt(strings.Repeat("count ", 2500))
		if err != nil || r.Result.Output != "ok" {
			t.Fatalf("prompt %d: got %+v, %v", i, r.Result, err)
		}
		if told := fmt.Sprint(r.Result.Events); (i == 2) != strings.Contains(told, `"code":"compacted"`) {
			t.Errorf("prompt %d: %s", i, told)
		}
	}
	m, err := client.Call(context.Background(), d.dial(), protocol.GetMessages, protocol.GetMessagesParams{})
	if err != nil || !strings.Contains(string(m.Messages[0]), `"summary":"they counted"`) {
		t.Errorf("the messages begin with %s, %v", m.Messages[0], err)
	}
	if _, err := prompt("call for ever"); err == nil ||
		!strings.Contains(err.Error(), "step_limit: the turn took 3 model calls") {
		t.Errorf("got %v, want step_limit", err)
	}
}

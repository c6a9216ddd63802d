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
func provided(t *testing.T, name string, serve func(n int, r request, w http.ResponseWriter)) (*daemon, func(text string) (protocol.PromptReply, error)) {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	text := fmt.Sprintf("[model]\nprovider = %q\nname = %q\nbase_url = %q\napi_key_env = \"TEST_KEY\"\nsystem = \"Be brief.\"\n", provider, model, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, "--config", config)
	c := d.dial()
	return d, func(text string) (protocol.PromptReply, error) {
		return client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{Text: text})
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
		if r.Model != "gpt-test" || r.Messages[0].Role != "system" || !strings.Contains(system, "Use tabs.") || !strings.HasSuffix(system, "Be brief.") {
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
				`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}`, "[DONE]")
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
	if err != nil || st.Usage.InputTokens != 31 || st.Usage.OutputTokens != 7 || st.Model.Provider != "openai" || st.Model.Name != "gpt-test" ||
		len(st.SystemFiles) != 1 || st.SystemFiles[0] != filepath.Join(d.dir, "AGENTS.md") {
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
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`)
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
	d.stop()
	if all := told + fmt.Sprint(err) + d.log.String(); strings.Contains(all, "sk-never-tell") {
		t.Errorf("the key is told: %s", all)
	}
}

func TestAModelThatCannotBeStartsNoDaemon(t *testing.T) {
	for model, want := range map[string]string{
		"openai/gpt":       "model openai/gpt: the variable OPENAI_API_KEY is not set",
		"anthropic/claude": "model anthropic/claude: the variable ANTHROPIC_API_KEY is not set",
		"module/nobody":    "--model module/nobody: no tools directory has a provider module of that name",
	} {
		t.Setenv("OPENAI_API_KEY", "")
		t.Setenv("ANTHROPIC_API_KEY", "")
		t.Setenv("OPENAI_BASE_URL", "")
		t.Setenv("ANTHROPIC_BASE_URL", "")
		status, errout := 0, new(strings.Builder)
		dir := t.TempDir()
		status = execute([]string{"--socket", dir + "/s", "--state-dir", dir + "/state", "--tools-dir", dir, "--model", model}, func(string) string { return "" }, io.Discard, errout)
		if status != 1 || !strings.Contains(errout.String(), want) {
			t.Errorf("--model %s: got %d %s, want %s", model, status, errout, want)
		}
	}
}

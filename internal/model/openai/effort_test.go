package openai_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/modeltest"
	"noused/internal/model/wire"
)

// How hard a model is to think is told in the way that its server knows.
func TestEffort(t *testing.T) {
	for name, c := range map[string]struct {
		effort model.Effort
		want   string
	}{
		"as it does":      {model.Effort{Form: "openrouter"}, ``},
		"the wire's own":  {model.Effort{Level: "high"}, `"reasoning_effort":"high"`},
		"in another word": {model.Effort{Level: "high", Word: "default"}, `"reasoning_effort":"default"`},
		"OpenRouter":      {model.Effort{Level: "low", Form: "openrouter"}, `"reasoning":{"effort":"low"}`},
		"DeepSeek": {
			model.Effort{Level: "max", Form: "thinking"},
			`"reasoning_effort":"max","thinking":{"type":"enabled"}`,
		},
		"DeepSeek, none":  {model.Effort{Level: "none", Form: "thinking"}, `"thinking":{"type":"disabled"}`},
		"Kimi, on or off": {model.Effort{Level: "high", Form: "thinking!"}, `"thinking":{"type":"enabled"}`},
		"Qwen": {
			model.Effort{Level: "low", Form: "qwen"},
			`"reasoning_effort":"low","enable_thinking":true`,
		},
		"Qwen, none":          {model.Effort{Level: "none", Form: "qwen!"}, `"enable_thinking":false`},
		"Together, on or off": {model.Effort{Level: "none", Form: "together!"}, `"reasoning":{"enabled":false}`},
		"Together, with a level": {
			model.Effort{Level: "high", Form: "together"},
			`"reasoning_effort":"high","reasoning":{"enabled":true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := ""
			m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				body = string(text)
				_, _ = io.WriteString(w, modeltest.Events(`{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}`,
					`[DONE]`))
			})
			answer(t, m, model.Request{Messages: []model.Message{{Role: model.User, Text: "hello"}}, Effort: c.effort})
			_, got, _ := strings.Cut(body, `"include_usage":true}`)
			if got = strings.TrimPrefix(strings.TrimSuffix(got, "}"), ","); got != c.want {
				t.Errorf("got %s of %s, want %s", got, body, c.want)
			}
		})
	}
}

// Headers of the configuration go along, and what they hold is told to nobody.
func TestHeaders(t *testing.T) {
	m := connect(t, wire.Options{Model: "m", Headers: map[string]string{"x-team": "sesame-4711"}},
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Team") != "sesame-4711" {
				t.Errorf("got the headers %v", r.Header)
			}
			http.Error(w, "no team sesame-4711", http.StatusForbidden)
		})
	if got := answer(t, m, model.Request{Messages: []model.Message{{Role: model.User, Text: "hello"}}}); !strings.Contains(
		got, "no team [redacted]") {
		t.Errorf("got %s", got)
	}
	for name, want := range map[string]string{
		"authorization": "Authorization is not for headers to set: api_key_env", "X-API-Key": "api_key_env",
		"cookie":            "api_key_env",
		"Transfer-Encoding": "is not for headers to set", "connection": "is not for headers to set",
		"host": "is not for headers to set",
		"a b":  "is no name of a header", "": "is no name of a header",
	} {
		if _, err := wire.New(wire.Options{BaseURL: "http://x", Model: "m", Headers: map[string]string{name: "v-secret"}},
			wire.Defaults{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "v-secret") {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
	if err := wire.CheckHeaders(map[string]string{"X-A": "a\r\nX-B: b"}); err == nil {
		t.Error("a value with a line's end is taken")
	}
}

package openai_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/modeltest"
	"noused/internal/model/openai"
	"noused/internal/model/wire"
)

// transport stands for a host on the network.
type transport func(body string) (status int, answer string)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	status, answer := f(string(body))
	header := http.Header{"Content-Type": {"text/event-stream"}}
	if status != http.StatusOK {
		header.Set("Content-Type", "application/json")
	}
	return &http.Response{
		StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader([]byte(answer))),
		Request: r,
	}, err
}

// Anthropic's models behind OpenRouter are told what to keep, and nobody else;
// a server that refuses the marks gets none from then on.
func TestCacheMarks(t *testing.T) {
	const mark = `"cache_control":{"type":"ephemeral"}`
	req := model.Request{System: "be brief", Messages: []model.Message{
		{Role: model.User, Text: "one"},
		{Role: model.Assistant, Text: "so", ToolCalls: []model.ToolCall{
			{ID: "c", Name: "x", Arguments: []byte("{}")},
			{ID: "d", Name: "x", Arguments: []byte("{}")},
		}},
		{Role: model.Tool, ToolCallID: "c", ToolName: "x", Text: "1"},
		{Role: model.Tool, ToolCallID: "d", ToolName: "x"},
		{Role: model.User, Text: "two"},
	}}
	for name, c := range map[string]struct {
		url, model string
		refuses    bool
		want       string // how many marks each request has
	}{
		"Claude":                {"https://openrouter.ai/api/v1", "anthropic/claude-opus", false, "[3 3]"},
		"another model":         {"https://openrouter.ai/api/v1", "x-ai/grok", false, "[0 0]"},
		"another server":        {"https://openrouter.ai.example.org/v1", "anthropic/claude-opus", false, "[0 0]"},
		"one that refuses them": {"https://openrouter.ai/api/v1", "anthropic/claude-opus", true, "[3 0 0]"},
	} {
		t.Run(name, func(t *testing.T) {
			var marks []int
			m, err := openai.New(wire.Options{
				BaseURL: c.url, Model: c.model,
				Transport: transport(func(body string) (int, string) {
					n := strings.Count(body, mark)
					marks = append(marks, n)
					if n > 0 && c.refuses {
						return http.StatusBadRequest, `{"error":{"message":"messages.2.cache_control: Extra inputs are not permitted"}}`
					}
					if n > 0 && (!strings.Contains(body, `{"type":"text","text":"be brief",`+mark+`}`) ||
						!strings.Contains(body, `{"type":"text","text":"two",`+mark+`}`) ||
						!strings.Contains(body, `{"type":"text","text":"1",`+mark+`}`) ||
						!strings.Contains(body, `[{"type":"text","text":"one"}]`)) {
						t.Errorf("got %s", body)
					}
					return http.StatusOK, modeltest.Events(stop)
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Close)
			for range 2 {
				if got := answer(t, m, req); got != " end 0/0" {
					t.Errorf("got %s", got)
				}
			}
			if got := fmt.Sprint(marks); got != c.want {
				t.Errorf("the requests had %s marks, want %s", got, c.want)
			}
		})
	}
}

package anthropic

import (
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// A model is told to think as it wants to be told, never for more tokens than it
// may say, and not where the conversation does not let it.
func TestEffort(t *testing.T) {
	user := model.Message{Role: model.User, Text: "hello"}
	call := model.Message{
		Role: model.Assistant, Text: "so",
		ToolCalls: []model.ToolCall{{ID: "c", Name: "ls", Arguments: []byte(`{}`)}},
	}
	result := model.Message{Role: model.Tool, ToolCallID: "c", Text: "a", OK: true}
	for name, c := range map[string]struct {
		max      int
		limit    int64
		effort   model.Effort
		messages []model.Message
		want     string
	}{
		"as it does":          {0, 64_000, model.Effort{Form: "budget"}, nil, `[32000,null,null]`},
		"no more than it can": {0, 4096, model.Effort{}, nil, `[4096,null,null]`},
		"adaptive": {
			0, 0,
			model.Effort{Level: "max", Form: "adaptive"},
			nil,
			`[32000,{"type":"adaptive"},{"effort":"max"}]`,
		},
		"not known": {
			0, 0,
			model.Effort{Level: "xhigh"},
			nil,
			`[32000,{"type":"adaptive"},{"effort":"xhigh"}]`,
		},
		"none": {
			0, 0,
			model.Effort{Level: "none", Form: "adaptive"},
			nil,
			`[32000,{"type":"disabled"},null]`,
		},
		"a budget": {
			0, 64_000,
			model.Effort{Level: "high", Form: "budget"},
			nil,
			`[56000,{"type":"enabled","budget_tokens":24000},null]`,
		},
		"a budget that fits": {
			8000, 64_000,
			model.Effort{Level: "high", Form: "budget"},
			nil,
			`[8000,{"type":"enabled","budget_tokens":6000},null]`,
		},
		"no room to think": {1200, 0, model.Effort{Level: "high", Form: "budget"}, nil, `[1200,null,null]`},
		"in the middle, unthought": {
			0, 64_000,
			model.Effort{Level: "low", Form: "budget"},
			[]model.Message{user, call, result},
			`[32000,null,null]`,
		},
		"the turn after it": {0, 64_000, model.Effort{Level: "low", Form: "budget"}, []model.Message{
			user, call,
			result,
			{Role: model.Assistant, Text: "done"},
			user,
		}, `[36096,{"type":"enabled","budget_tokens":4096},null]`},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := wire.New(wire.Options{BaseURL: "http://x", Model: "claude", MaxOutputTokens: c.max}, defaults)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if c.messages == nil {
				c.messages = []model.Message{user}
			}
			req := model.Request{Messages: c.messages, Effort: c.effort, OutputLimit: c.limit}
			out := encode(client, req, wire.NewNames(req))
			got, err := json.Marshal([]any{out.MaxTokens, out.Thinking, out.OutputConfig})
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

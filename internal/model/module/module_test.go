package module

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

func TestStream(t *testing.T) {
	req := model.Request{
		System: "be brief", Messages: []model.Message{{Role: model.User, Text: "hello"}},
		Tools: []model.ToolSpec{{Name: "a.b", Description: "does", Params: []byte(`{"type":"object"}`)}},
	}
	for name, c := range map[string]struct {
		result, want string
	}{
		"text": {`{"text":"hi","usage":{"input_tokens":1,"output_tokens":2}}`, "say hi; stop end 1/2"},
		"calls": {
			`{"text":"so","tool_calls":[{"name":"a.b","arguments":{"x":1}}]}`,
			`say so; call a.b {"x":1}; stop tool_calls 0/0`,
		},
		"thinking":          {`{"thinking":"hm","text":"hi","stop_reason":"length"}`, "think hm; say hi; stop length 0/0"},
		"nothing at all":    {`{}`, "stop end 0/0"},
		"no object":         {`[1]`, "not what it should be"},
		"a call of nothing": {`{"tool_calls":[{"arguments":{}}]}`, "tool_calls.0 has no name"},
		"an unknown reason": {`{"text":"x","stop_reason":"tired"}`, `stop_reason is "tired"`},
		"text is no string": {`{"text":7}`, "not what it should be: text: cannot be a JSON number"},
		"usage beyond all": {
			`{"text":"hi","usage":{"input_tokens":99999999999999999999999,"output_tokens":-3}}`,
			"say hi; stop end 9223372036854775807/0",
		},
		"usage of odd types": {
			`{"text":"hi","usage":{"input_tokens":"12","output_tokens":3.0,"cached_tokens":{},"reasoning_tokens":null}}`,
			"say hi; stop end 12/3",
		},
		"usage of no form":   {`{"text":"hi","usage":["many"]}`, "say hi; stop end 0/0"},
		"no usage":           {`{"text":"hi","usage":null}`, "say hi; stop end 0/0"},
		"the module's error": {``, "out of paper"},
	} {
		t.Run(name, func(t *testing.T) {
			m := Model{func(_ context.Context, op string, args jsontext.Value) (jsontext.Value, error) {
				want := `{"messages":[{"role":"user","text":"hello"}],"tools":[{"name":"a.b","description":"does","params":{"type":"object"}}],"system":"be brief"}`
				if op != "generate" || string(args) != want {
					t.Errorf("asked %s %s", op, args)
				}
				if c.result == "" {
					return nil, errors.New("out of paper")
				}
				return jsontext.Value(c.result), nil
			}}
			var got []string
			for d, err := range m.Stream(t.Context(), req) {
				switch {
				case err != nil:
					got = append(got, err.Error())
				case d.Text != "":
					got = append(got, "say "+d.Text)
				case d.Thinking != "":
					got = append(got, "think "+d.Thinking)
				case d.ToolCall != nil:
					got = append(got, "call "+d.ToolCall.Name+" "+string(d.ToolCall.Arguments))
				default:
					got = append(got, fmt.Sprintf("stop %s %d/%d", d.Stop, d.Usage.InputTokens, d.Usage.OutputTokens))
				}
			}
			if all := strings.Join(got, "; "); !strings.Contains(all, c.want) {
				t.Errorf("got %s, want %s", all, c.want)
			}
		})
	}
}

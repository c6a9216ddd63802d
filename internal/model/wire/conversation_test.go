package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/wire"
)

func TestConversation(t *testing.T) {
	user := func(text string) model.Message { return model.Message{Role: model.User, Text: text} }
	says := func(text string, calls ...string) model.Message {
		m := model.Message{Role: model.Assistant, Text: text}
		for _, id := range calls {
			m.ToolCalls = append(m.ToolCalls, model.ToolCall{ID: id, Name: "x", Arguments: []byte(`{}`)})
		}
		return m
	}
	result := func(id, text string) model.Message {
		return model.Message{Role: model.Tool, ToolCallID: id, ToolName: "x", Text: text, OK: true}
	}
	for name, c := range map[string]struct {
		in   []model.Message
		want string
	}{
		"in order": {
			[]model.Message{user("a"), says("", "p", "q"), result("p", "1"), result("q", "2"), says("b")},
			"user a|assistant call00001 call00002|tool call00001 1|tool call00002 2|assistant b",
		},
		"the same id again": {
			[]model.Message{says("", "p"), result("p", "1"), says("", "p"), result("p", "2")},
			"assistant call00001|tool call00001 1|assistant call00002|tool call00002 2",
		},
		"nothing said": {[]model.Message{user("a"), says(" \n"), user("b")}, "user a\n\nb"},
		"a user twice": {[]model.Message{user("a"), user("b")}, "user a\n\nb"},
		"a summary": {
			[]model.Message{{Role: model.User, Text: "s", Summary: true}},
			"user The conversation so far, in summary:\n\ns",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(c.in)
			var got []string
			for _, m := range wire.Conversation(c.in, "") {
				line := string(m.Role)
				for _, p := range m.Pieces {
					if p.Call != nil {
						line += " " + p.Call.ID
					}
				}
				for _, word := range []string{m.ToolCallID, m.Text} {
					if word != "" {
						line += " " + word
					}
				}
				got = append(got, line)
			}
			if all := strings.Join(got, "|"); all != c.want {
				t.Errorf("got %s\nwant %s", all, c.want)
			}
			if after := fmt.Sprint(c.in); after != before {
				t.Errorf("what was handed in was %s and is now %s", before, after)
			}
		})
	}
}

// A provider that once gets arguments which are no object refuses the
// conversation for ever.
func TestArgumentsAreObjects(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"n":1}`:         `{"n":1}`,
		``:                `{}`,
		` `:               `{}`,
		`"{\"n\":"`:       `{"not_an_object":"{\"n\":"}`,
		`{"n":`:           `{"not_an_object":"{\"n\":"}`,
		`[1]`:             `{"not_an_object":"[1]"}`,
		`{"n":1,"n":2}`:   `{"not_an_object":"{\"n\":1,\"n\":2}"}`,
		"{\"n\":\"\xff\"": `{"not_an_object":"{\"n\":\"` + "\uFFFD" + `\""}`,
	} {
		got := wire.Conversation([]model.Message{{
			Role:      model.Assistant,
			ToolCalls: []model.ToolCall{{ID: "a", Name: "x", Arguments: []byte(arguments)}},
		}}, "")
		if text := string(got[0].Pieces[0].Call.Arguments); text != want {
			t.Errorf("%q becomes %s, want %s", arguments, text, want)
		}
	}
}

func TestSchema(t *testing.T) {
	for params, want := range map[string]string{
		``:                   `{"properties":{},"type":"object"}`,
		`true`:               `{"properties":{},"type":"object"}`,
		`null`:               `{"properties":{},"type":"object"}`,
		`{"type":"object"}`:  `{"properties":{},"type":"object"}`,
		`{"required":["a"]}`: `{"properties":{},"required":["a"],"type":"object"}`,
		`{"type":"object","properties":{"b":{},"a":{}}}`: `{"type":"object","properties":{"b":{},"a":{}}}`,
	} {
		if got := string(wire.Schema([]byte(params))); got != want {
			t.Errorf("%s becomes %s, want %s", params, got, want)
		}
	}
}

func TestSummaryRequest(t *testing.T) {
	system, messages, tools := wire.Ask(model.Request{
		System: "summarise", Summary: true, Tools: []model.ToolSpec{{Name: "x"}},
		Messages: []model.Message{
			{Role: model.User, Text: "earlier", Summary: true},
			{Role: model.User, Text: "look", Attachments: []model.Attachment{{MediaType: "image/png", Name: "shot.png"}}},
			{
				Role: model.Assistant, Text: "so",
				ToolCalls: []model.ToolCall{{ID: "a", Name: "t.x", Arguments: []byte(`{"n":1}`)}},
			},
			{Role: model.Tool, ToolCallID: "a", ToolName: "t.x", Text: "é", OK: true},
		},
	}, "")
	if system != "summarise" {
		t.Errorf("the system prompt is %q", system)
	}
	if len(messages) != 1 || messages[0].Role != model.User || len(tools) != 0 {
		t.Fatalf("got %d messages and %d tools, want one of the user and none", len(messages), len(tools))
	}
	want := "The conversation:\n\n[user] The conversation so far, in summary:\n\nearlier\n\nlook\n\n[user attached] " +
		"image shot.png (image/png)\n\n" +
		"[assistant] so\n\n[assistant called t.x] {\"n\":1}\n\n[t.x answered] é\n"
	if messages[0].Text != want {
		t.Errorf("got %.300q", messages[0].Text)
	}
}

func TestWrongOptions(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for want, o := range map[string]wire.Options{
			"base_url must begin with http":   {BaseURL: "localhost:11434/v1", Model: "m"},
			"base_url is no URL":              {BaseURL: "http://u:secret@%zz/", Model: "m"},
			"name is missing":                 {},
			"max_output_tokens is -1":         {Model: "m", MaxOutputTokens: -1},
			"timeout is -1s":                  {Model: "m", Timeout: -1e9},
			"the API key has a character":     {Model: "m", APIKey: "sk-\nX: y"},
			`extra: "model" is not for`:       {Model: "m", Extra: map[string]any{"model": 1}},
			`extra: "f" cannot be put into a`: {Model: "m", Extra: map[string]any{"f": func() {}}},
		} {
			_, err := d.make(o)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %v", err)
			}
		}
	})
}

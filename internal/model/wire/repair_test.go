package wire_test

import (
	"strconv"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/wire"
)

func TestRepairedRequests(t *testing.T) {
	messages := []model.Message{
		{Role: model.User, Text: "look", Attachments: []model.Attachment{{MediaType: "image/png", Name: "a.png"}}},
		{
			Role: model.Assistant, Text: "so", Maker: "m",
			ToolCalls: []model.ToolCall{{ID: "c", Name: "t.x", Arguments: []byte(`{"n":1}`)}},
			Blocks:    []model.Block{{Kind: model.TextBlock, Bytes: 2}, {Kind: model.CallBlock, ID: "own"}},
		},
		{Role: model.Tool, ToolCallID: "c", ToolName: "t.x", Text: "1"},
		{Role: model.User, Text: "and?"},
	}
	for name, c := range map[string]struct {
		repair model.Repair
		want   string
	}{
		"as it is": {model.Repair{}, "user look +1|assistant so own|tool own 1|user and?"},
		"without images": {model.Repair{NoImages: true}, "user look\n[image a.png (image/png) is not shown: this model " +
			"takes no images]|assistant so own|tool own 1|user and?"},
		"nothing attached": {model.Repair{NoOpaque: true}, "user look +1|assistant so call00001|tool call00001 1|user and?"},
		"calls as text": {
			model.Repair{PlainCalls: true},
			"user look +1|assistant so\n[called t.x with {\"n\":1}]|user [t.x answered]\n1\n\nand?",
		},
		"bridged": {
			model.Repair{Bridged: true},
			"user look +1|assistant so own|tool own 1|assistant The tool has answered.|user and?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, entries, _ := wire.Ask(model.Request{Messages: messages, Repair: c.repair}, "m")
			got := ""
			for i, e := range entries {
				if i > 0 {
					got += "|"
				}
				got += string(e.Role)
				if e.Role != model.Assistant {
					for _, word := range []string{e.ToolCallID, e.Text} {
						if word != "" {
							got += " " + word
						}
					}
				}
				for _, p := range e.Pieces {
					if got += " " + p.Text; p.Call != nil {
						got += p.Call.ID
					}
				}
				if len(e.Attachments) > 0 {
					got += " +1"
				}
			}
			if got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
	_, _, tools := wire.Ask(model.Request{
		Repair: model.Repair{PlainSchemas: true},
		Tools: []model.ToolSpec{{Params: []byte(
			`{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":1}}}`)}},
	}, "m")
	if got, want := string(tools[0].Params), `{"type":"object","properties":{"n":{"type":"integer"}}}`; got != want {
		t.Errorf("the schema is %s, want %s", got, want)
	}
}

func TestPlainSchemas(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{``, `{"properties":{},"type":"object"}`},
		{
			`{"$schema":"x","type":"object","additionalProperties":false,"properties":{"a":{"type":"string","minLength":1,"format":"uri","description":"d"}},"required":["a","b"]}`, `{"type":"object","properties":{"a":{"type":"string","description":"d"}},"required":["a"]}`,
		},
		{
			`{"properties":{"a":{"anyOf":[{"type":"null"},{"type":"integer"}],"description":"d"}}}`,
			`{"properties":{"a":{"type":"integer","description":"d"}},"type":"object"}`,
		},
		{
			`{"properties":{"a":{"type":["null","array"]}}}`,
			`{"properties":{"a":{"type":"array","items":{"type":"string"}}},"type":"object"}`,
		},
		{
			`{"properties":{"a":{"$ref":"#/$defs/x~1y"}},"$defs":{"x/y":{"type":"string","enum":["p","q"]}}}`,
			`{"properties":{"a":{"type":"string","enum":["p","q"]}},"type":"object"}`,
		},
		{
			`{"properties":{"a":{"const":"p"},"b":{"enum":[1,2],"type":"integer"}}}`,
			`{"properties":{"a":{"enum":["p"]},"b":{"type":"integer"}},"type":"object"}`,
		},
		{
			`{"properties":{"a":{"$ref":"http://elsewhere.test"},"b":{"type":"array","items":{"type":"object"}}}}`,
			`{"properties":{"a":{},"b":{"type":"array","items":{"type":"object"}}},"type":"object"}`,
		},
	} {
		if got := string(wire.PlainSchema([]byte(c.schema))); got != c.want {
			t.Errorf("%s\nbecomes %s\nwant    %s", c.schema, got, c.want)
		}
	}
	// One that refers to itself comes to an end.
	if got := wire.PlainSchema([]byte(`{"$ref":"#"}`)); !got.IsValid() {
		t.Errorf("got %s", got)
	}
	many := strings.Repeat(`"a%":{"$ref":"#"},`, 20)
	for i := range 20 {
		many = strings.Replace(many, "%", strconv.Itoa(i), 1)
	}
	if got := wire.PlainSchema([]byte(`{"properties":{` + strings.TrimSuffix(many, ",") + `}}`)); len(got) > 64<<10 {
		t.Errorf("a schema that refers to itself twenty times has %d bytes", len(got))
	}
}

func FuzzPlainSchema(f *testing.F) {
	f.Add(`{"$ref":"#"}`)
	f.Add(`{"type":["a"],"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"}]}},"required":[1]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		if got := wire.PlainSchema([]byte(schema)); !got.IsValid() {
			t.Errorf("%q becomes %q", schema, got)
		}
	})
}

package amplifier

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/google/go-cmp/cmp"

	"noused/internal/tool"
)

func TestWhatAReplyMeans(t *testing.T) {
	for _, c := range []struct{ reply, value, code, text string }{
		{`{"ok":true,"result":1}`, `1`, "", ""},
		{`{"ok":true,"result":null}`, `null`, "", ""},
		{`{"ok":true}`, `null`, "", ""},
		{`{"ok":true,"result":{"ok":false}}`, `{"ok":false}`, "", ""},
		{`{"result":{"ok":true,"result":{"result":1}}}`, `{"result":1}`, "", ""},
		{`{"jsonrpc":"2.0","id":1,"result":{"ok":true,"result":"x"},"error":null}`, `"x"`, "", ""},
		{`{"ok":false,"error":{"code":"c","message":"m"}}`, "", "c", "m"},
		{`{"result":{"ok":false,"error":{"code":"c","message":"m"}}}`, "", "c", "m"},
		{`{"ok":false,"error":{"code":7,"message":"m"}}`, "", "7", "m"},
		{`{"ok":false,"error":{"message":"m"}}`, "", tool.Internal, "m"},
		{`{"ok":false,"error":{"code":"c"}}`, "", "c", "gave no message"},
		{`{"ok":false,"error":"m"}`, "", tool.Internal, "m"},
		{`{"ok":false}`, "", tool.Internal, "gave no message"},
		{`{"ok":null,"result":1}`, "", tool.Internal, "ok is null"},
		{`{"ok":1,"result":1}`, "", tool.Internal, "ok is 1"},
		{`{"result":1}`, "", tool.Internal, `no ok: {"result":1}`},
		{`{"result":{"result":{"ok":true}}}`, "", tool.Internal, "no ok"},
		{`{}`, "", tool.Internal, "no ok: {}"},
		{`{"error":{"code":-32601,"message":"m"}}`, "", tool.UnsupportedOp, "m"},
		{`{"error":{"code":-32602,"message":"m"}}`, "", tool.BadRequest, "m"},
		{`{"error":{"code":-32700,"message":"m"}}`, "", tool.Internal, "m"},
		{`{"error":{"code":-32700}}`, "", tool.Internal, "JSON-RPC error -32700"},
		{`{"result":null,"error":{"code":-32601,"message":"m"}}`, "", tool.UnsupportedOp, "m"},
		{`{"error":"m"}`, "", tool.Internal, "not a JSON-RPC error"},
	} {
		o, err := decode([]byte(c.reply))
		if err != nil {
			t.Fatal(err)
		}
		value, err := o.outcome()
		var f *tool.Fault
		switch {
		case c.code == "" && (err != nil || string(value) != c.value):
			t.Errorf("%s: got %s, %v, want %s", c.reply, value, err, c.value)
		case c.code != "" && (!errors.As(err, &f) || f.Code != c.code || !strings.Contains(f.Message, c.text)):
			t.Errorf("%s: got %s, %v, want %s: %s", c.reply, value, err, c.code, c.text)
		}
	}
}

func TestDetailsAreAlwaysAnObject(t *testing.T) {
	for reply, want := range map[string]string{
		`{"ok":false,"error":{"details":{"a":1}}}`:                 `{"a":1}`,
		`{"ok":false,"error":{"details":[1]}}`:                     `{"details":[1]}`,
		`{"ok":false,"error":{"details":null}}`:                    ``,
		`{"ok":false,"error":{}}`:                                  ``,
		`{"error":{"code":-1,"message":"m"}}`:                      `{"code":-1}`,
		`{"error":{"code":-1,"message":"m","data":[{"x":"y"}]}}`:   `{"code":-1,"data":[{"x":"y"}]}`,
		`{"error":{"code":-32602,"message":"m","data":{"a":"b"}}}`: `{"code":-32602,"data":{"a":"b"}}`,
	} {
		o, err := decode([]byte(reply))
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.outcome()
		var f *tool.Fault
		if !errors.As(err, &f) || string(f.Details) != want {
			t.Errorf("%s: got %+v, want details %s", reply, f, want)
		}
	}
}

func TestOnlyStatusOKIsHealthy(t *testing.T) {
	for reply, problem := range map[string]string{
		`{"status":"ok"}`:                      "",
		`{"status":"ok","uptime":3}`:           "",
		`{"result":{"status":"ok"}}`:           "",
		`{"ok":true,"result":{"status":"ok"}}`: "",
		`{"jsonrpc":"2.0","id":1,"result":{"ok":true,"result":{"status":"ok"}}}`: "",
		`{"status":"OK"}`:          `status is "OK"`,
		`{"status":"degraded"}`:    `status is "degraded"`,
		`{"status":true}`:          `status is true`,
		`{"ok":true}`:              "no status",
		`{"ok":true,"result":"x"}`: "no status",
		`{}`:                       "no status",
		`{"ok":false,"error":{"code":"unsupported_op","message":"health?"}}`: "health?",
		`{"ok":false,"status":"ok"}`:                                         "gave no message",
		`{"error":{"code":-32601,"message":"Method not found"}}`:             "Method not found",
	} {
		o, err := decode([]byte(reply))
		if err != nil {
			t.Fatal(err)
		}
		err = o.healthy()
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: got %v, want %q", reply, err, problem)
		}
	}
}

func TestWhatAModuleCanDo(t *testing.T) {
	type ops map[string]string // name → "description params"
	plain := &tool.Descriptor{Description: "about"}
	known := &tool.Descriptor{
		Capabilities: []string{"b", "c"},
		Operations: []tool.Operation{
			{Name: "a", Description: "does a", Params: jsontext.Value(`{"title":"mine"}`)}, {Name: "b", Description: "does b"},
		},
	}
	unlisted := &tool.Descriptor{Operations: known.Operations}
	for _, c := range []struct {
		name     string
		desc     *tool.Descriptor
		reply    string
		want     ops
		warnings int
	}{
		{"its capabilities", plain, `{"capabilities":["b","a","b"]}`, ops{"a": "about ", "b": "about "}, 0},
		{"the descriptor's", known, `{"name":"x"}`, ops{"b": "does b ", "c": " "}, 0},
		{
			"the descriptor's operations", unlisted, `{"capabilities":[]}`,
			ops{"a": `does a {"title":"mine"}`, "b": "does b "},
			0,
		},
		{"no names", plain, `{"capabilities":[1,"",null,"a"]}`, ops{"a": "about "}, 3},
		{"no array", known, `{"capabilities":"a"}`, ops{"b": "does b ", "c": " "}, 1},
		{
			"a schema each", known, `{"capabilities":["a","b"],"inputs":{"a":{"type":"object"},"b":true}}`,
			ops{"a": `does a {"type":"object"}`, "b": "does b true"},
			0,
		},
		{"one schema", known, `{"capabilities":["a"],"inputs":{"type":"object"}}`, ops{"a": `does a {"type":"object"}`}, 0},
		{"one empty schema", plain, `{"capabilities":["a"],"inputs":{}}`, ops{"a": `about {}`}, 0},
		{
			"a map of one", known, `{"capabilities":["a"],"inputs":{"a":{"type":"object"}}}`,
			ops{"a": `does a {"type":"object"}`},
			0,
		},
		{
			"one named type", plain, `{"capabilities":["type"],"inputs":{"type":{"type":"object"}}}`,
			ops{"type": `about {"type":"object"}`},
			0,
		},
		{
			"one named properties", plain, `{"capabilities":["properties"],"inputs":{"properties":{"x":{}}}}`,
			ops{"properties": `about {"x":{}}`},
			0,
		},
		{
			"one schema for two", known, `{"capabilities":["a","b"],"inputs":{"type":"object"}}`,
			ops{"a": `does a {"title":"mine"}`, "b": "does b "},
			1,
		},
		{"no schemas", known, `{"capabilities":["a"],"inputs":[]}`, ops{"a": `does a {"title":"mine"}`}, 1},
		{"null", known, `{"capabilities":["b"],"inputs":null}`, ops{"b": "does b "}, 0},
		{
			"odd schemas", known, `{"capabilities":["b","c"],"inputs":{"b":null,"c":"x","d":{}}}`,
			ops{"b": "does b ", "c": " "},
			2,
		},
	} {
		o, err := decode([]byte(c.reply))
		if err != nil {
			t.Fatal(err)
		}
		list, warnings := operations(c.desc, o)
		got := ops{}
		for _, op := range list {
			got[op.Name] = op.Description + " " + string(op.Params)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || len(list) != len(got) || len(warnings) != c.warnings {
			t.Errorf("%s: got %d operations, warnings %q: %s", c.name, len(list), warnings, diff)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, reply := range replies {
		f.Add([]byte(reply))
	}
	for _, reply := range []string{
		described, `{"status":"ok"}`, `{"result":{"status":"ok"}}`, `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`,
		`{"id":1.0,"error":{"code":-32601}}`, `{"ok":true,"ok":false}`, `{`, `[]`, ``, "{\"ok\":\"\xff\"}",
		`{"inputs":{"type":[]}}`,
	} {
		f.Add([]byte(reply))
	}
	d := &tool.Descriptor{Operations: []tool.Operation{{Name: "a"}}}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		o, err := decode(line)
		if string(line) != before {
			t.Fatal("the line was changed")
		}
		if err != nil {
			if o != nil {
				t.Fatalf("an object came with %v", err)
			}
			return
		}
		for i := range line {
			line[i] = 'x' // the reader takes its buffer back
		}
		value, err := o.outcome()
		var fault *tool.Fault
		switch {
		case err == nil:
			if !json.Valid(value) {
				t.Fatalf("got value %q", value)
			}
			if r := resultOf(value); !r.OK || !utf8.ValidString(r.Text) || r.Value != nil && !json.Valid(r.Value) {
				t.Fatalf("got %+v", r)
			}
		case !errors.As(err, &fault) || fault.Code == "" || fault.Message == "" || !utf8.ValidString(fault.Message):
			t.Fatalf("got error %#v", err)
		case fault.Details != nil && (!json.Valid(fault.Details) || fault.Details[0] != '{'):
			t.Fatalf("got details %s", fault.Details)
		}
		if o.answers(1) && o.answers(2) {
			t.Fatal("it answers two requests")
		}
		o.healthy()
		ops, _ := operations(d, o)
		for i, op := range ops {
			if op.Name == "" || op.Params != nil && !json.Valid(op.Params) || i > 0 && op.Name <= ops[i-1].Name {
				t.Fatalf("got operations %+v", ops)
			}
		}
	})
}

package gevals

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/tool"
)

func TestAResultBecomesTextAndOutputs(t *testing.T) {
	type outcome struct {
		OK      bool
		Text    string
		Outputs map[string]string
	}
	for _, c := range []struct {
		result   string
		want     outcome
		warnings []string
	}{
		{`{"success":true,"message":"did it"}`, outcome{true, "did it", nil}, nil},
		{`{"success":true}`, outcome{true, "done", nil}, nil},
		{`{"success":true,"error":"odd"}`, outcome{true, "odd", nil}, nil},
		{`{"success":true,"message":"m","outputs":{"b":"2","a":"1"}}`, outcome{true, "m\na: 1\nb: 2", map[string]string{"a": "1", "b": "2"}}, nil},
		{
			`{"success":true,"outputs":{"n":{"x":[1]}}}`,
			outcome{true, `n: {"x":[1]}`, map[string]string{"n": `{"x":[1]}`}},
			[]string{`output "n" is not a string: {"x":[1]}`},
		},
		{
			`{"success":true,"message":7,"outputs":[]}`,
			outcome{true, "7", nil},
			[]string{"message is not a string: 7", "outputs is not an object: []"},
		},
		{`{"success":true,"message":null,"outputs":null,"error":null}`, outcome{true, "done", nil}, nil},
		{`{"success":false,"message":"m","error":"e","outputs":{"a":"1"}}`, outcome{false, "tool_failed: m: e\na: 1", map[string]string{"a": "1"}}, nil},
		{`{"success":false,"message":"m"}`, outcome{false, "tool_failed: m", nil}, nil},
		{`{"success":false}`, outcome{false, "tool_failed: the extension reported a failure", nil}, nil},
		{`{"message":"m"}`, outcome{false, "protocol_error: success is absent, want true or false", nil}, nil},
		{`{"success":"yes"}`, outcome{false, `protocol_error: success is "yes", want true or false`, nil}, nil},
		{`[]`, outcome{false, "protocol_error: the result is not an object: []", nil}, nil},
	} {
		r, warnings := decodeResult(jsontext.Value(c.result))
		if diff := cmp.Diff(c.want, outcome{r.OK, r.Text, r.Outputs}); diff != "" {
			t.Errorf("%s: %s", c.result, diff)
		}
		if diff := cmp.Diff(c.warnings, warnings); diff != "" {
			t.Errorf("%s: warnings: %s", c.result, diff)
		}
		if r.OK != (r.Error == nil) {
			t.Errorf("%s: got error %+v with ok %v", c.result, r.Error, r.OK)
		}
	}
}

func TestAReplyIsAResultOrAnError(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":2,"result":{"a":1}}`:                                        `{"a":1}`,
		`{"id":2,"result":null,"error":{"code":-32601,"message":"no"}}`:    "-32601: no",
		`{"id":2,"result":{"a":1},"error":{"code":-32000,"message":"no"}}`: "-32000: no",
		`{"id":2,"result":{"a":1},"error":null}`:                           `{"a":1}`,
		`{"id":2,"error":{"code":-32603}}`:                                 "-32603: the extension gave no message",
		`{"id":2,"error":"no"}`:                                            `protocol_error: the reply's error is not a JSON-RPC error: "no"`,
		`{"id":2,"error":{"code":"x"}}`:                                    `protocol_error: the reply's error is not a JSON-RPC error: {"code":"x"}`,
		`{"id":2}`:                                                         "protocol_error: the reply has neither a result nor an error",
		`{"id":2.0,"result":1}`:                                            "1",
		`{"id":"2","result":1}`:                                            "another",
		`{"id":3,"result":1}`:                                              "another",
		`{"id":null,"error":{"code":-32700,"message":"x"}}`:                "another",
		`{"id":2,"method":"sample","params":{}}`:                           "another",
		`{"method":"log","params":{"message":"x"}}`:                        "another",

		`{"id":2,"error":{"code":-32602,"message":"m","data":{"x":1}},"jsonrpc":"2.0"}`:    `-32602: m {"x":1}`,
		`{"id":2,"error":{"code":-32602,"message":"m","data":"plain"},"jsonrpc":"2.0"}`:    `-32602: m {"data":"plain"}`,
		`{"id":2,"error":{"code":-32602,"message":"m","data":null,"more":1},"jsonrpc":""}`: "-32602: m",
	} {
		m, err := decode([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		got := "another"
		if m.answers(2) {
			result, err := m.outcome()
			var f *tool.Fault
			switch {
			case err == nil:
				got = string(result)
			case errors.As(err, &f):
				got = f.Code + ": " + f.Message
				if f.Details != nil {
					got += " " + string(f.Details)
				}
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

func TestAManifestIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"n","version":"1","protocolVersion":"0.0.1","operations":{}}`:                       "",
		`{"name":"n","version":"1","protocolVersion":"0.0.1","operations":{"a":{}},"requires":[{}]}`: "",
		`{"version":"1","operations":{}}`:                                                            "the manifest has no name",
		`{"name":"n","operations":{}}`:                                                               "the manifest has no version",
		`{"name":"n","version":"1"}`:                                                                 "the manifest has no operations",
		`{"name":"n","version":"1","operations":[]}`:                                                 "the manifest is wrong",
		`{"name":7}`: "the manifest is wrong",
		`"x"`:        "the manifest is wrong",
	} {
		_, err := decodeManifest(jsontext.Value(text))
		switch {
		case want == "" && err != nil, want != "" && err == nil:
			t.Errorf("%s: got %v, want %q", text, err, want)
		case err != nil && err.Error()[:min(len(want), len(err.Error()))] != want:
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	m, err := decodeManifest(jsontext.Value(`{"name":"n","version":"1","protocolVersion":"9","operations":{}}`))
	if err != nil || len(m.Warnings) != 1 {
		t.Errorf("got %+v, %v: another protocolVersion is a warning, not a refusal", m, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":"m","outputs":{"a":"1","b":2}}}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-32601,"message":"no","data":[1]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"name":"n","version":"1","operations":{"a":{"params":{}}},"requires":[{"command":"x"}]}}`,
		`{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"hi","data":{}}}`,
		`{"id":1e0}`, `{}`, `[]`, `{`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		m, err := decode(line)
		if string(line) != before {
			t.Fatal("the line was changed")
		}
		if err != nil {
			return
		}
		for i := range line {
			line[i] = 'x' // the reader takes its buffer back
		}
		if u, ok := logUpdate(m.Params); ok && (!json.Valid(u.Update) || !utf8.ValidString(u.Delta)) {
			t.Fatalf("got update %+v", u)
		}
		if m.answers(1) && (m.answers(2) || m.Method != nil) {
			t.Fatalf("%s answers what it should not", before)
		}
		result, err := m.outcome()
		if err != nil {
			check(t, tool.Failure(err))
			return
		}
		if !result.IsValid() {
			t.Fatalf("got result %q", result)
		}
		r, _ := decodeResult(result)
		check(t, r)
		if mf, err := decodeManifest(result); err == nil && (mf.Name == "" || mf.Version == "") {
			t.Fatalf("got manifest %+v", mf)
		}
	})
}

// check sees that a result can be read and be put on the wire.
func check(t *testing.T, r model.ToolResult) {
	t.Helper()
	switch {
	case r.OK != (r.Error == nil), r.Text == "", !utf8.ValidString(r.Text):
		t.Fatalf("got %+v", r)
	case r.Error != nil && (r.Error.Code == "" || r.Error.Message == ""):
		t.Fatalf("got error %+v", r.Error)
	case r.Error != nil && r.Error.Details != nil && !json.Valid(r.Error.Details):
		t.Fatalf("got details %s", r.Error.Details)
	}
}

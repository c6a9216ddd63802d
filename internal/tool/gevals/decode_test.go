package gevals

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/tool"
)

// members says with another JSON reader what a line has to say: nil for one
// that is no message.
func members(line []byte) map[string]any {
	var m map[string]any
	numbers := json.NewDecoder(bytes.NewReader(line))
	numbers.UseNumber()                                                    // they may be larger than any float
	whole := jsontext.Value(line).IsValid(jsontext.AllowInvalidUTF8(true)) // no name twice
	if !utf8.Valid(line) || !whole || numbers.Decode(&m) != nil || m == nil || depth(m) > maxDepth {
		return nil
	}
	return m
}

func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, w := range v {
			deepest = max(deepest, depth(w))
		}
	case []any:
		for _, w := range v {
			deepest = max(deepest, depth(w))
		}
	default:
		return 0
	}
	return deepest + 1
}

func FuzzDecode(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":"m","outputs":{"a":"1","b":2}}}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-32601,"message":"no","data":[1]}}`,
		`{"jsonrpc":"2.0","id":1.0,"result":{"success":false,"message":"a\ud800b","error":"e"},"method":null}`,
		`{"jsonrpc":"2.0","id":1,"result":{"name":"n","version":"1","operations":{"a":{"params":{}}},"requires":[{"command":"x"}]}}`,
		`{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"hi","data":{}}}`,
		`{"jsonrpc":"2.0","id":null,"method":"log","params":{"message":7}}`,
		`{"id":1e0,"error":{"code":-3.2e4}}`, `{"id":1e999,"error":{"code":1e999}}`, `{"id":"1","result":{}}`,
		`{"id":1,"result":` + nested(maxDepth) + `}`,
		`{}`, `[]`, `{`, "{\"\xff\":1}", `{"a":1,"a":2}`, "\ufeff{}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		want := members(line)
		m, err := decode(line)
		if string(line) != before {
			t.Fatal("the line was changed")
		}
		if (err == nil) != (want != nil) {
			t.Fatalf("got %v, want a message: %v", err, want != nil)
		}
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("got a reason of %d bytes", len(err.Error()))
			}
			return
		}
		for i := range line {
			line[i] = 'x' // the reader takes its buffer back
		}
		method, _ := want["method"].(string)
		_, object := want["params"].(map[string]any)
		if isLog := method == "log" && want["id"] == nil && object; m.isLog() != isLog {
			t.Fatalf("%s: got a log: %v", before, !isLog)
		} else if isLog {
			if u := logUpdate(m.Params); !jsontext.Value(u.Update).IsValid() || !utf8.ValidString(u.Delta) || u.Patch != nil ||
				u.Asset != nil {
				t.Fatalf("got update %+v", u)
			}
		}
		id, _ := want["id"].(json.Number)
		n, _ := id.Float64()
		if m.answers(1) != (n == 1 && want["method"] == nil) {
			t.Fatalf("%s answers request 1: %v", before, m.answers(1))
		}
		result, err := m.outcome()
		if (err == nil) != (want["error"] == nil && want["result"] != nil) {
			t.Fatalf("%s: got %v", before, err)
		}
		if err != nil {
			var fault *tool.Fault
			if !errors.As(err, &fault) || fault.Code != tool.ProtocolError && (want["error"] == nil || !isNumber(fault.Code)) {
				t.Fatalf("%s: got %+v", before, err)
			}
			check(t, tool.Failure(err))
			return
		}
		if !result.IsValid() {
			t.Fatalf("got result %q", result)
		}
		r, warnings := decodeResult(result)
		check(t, r)
		reply, _ := want["result"].(map[string]any)
		if success, ok := reply["success"].(bool); r.OK != (ok && success) ||
			ok == (r.Error != nil && r.Error.Code == tool.ProtocolError) {
			t.Fatalf("%s: got %+v", before, r)
		} else if outputs, _ := reply["outputs"].(map[string]any); ok && len(r.Outputs) != len(outputs) {
			t.Fatalf("%s: got outputs %q", before, r.Outputs)
		} else if ok && len(warnings) == 0 {
			for name, value := range outputs {
				if r.Outputs[name] != value {
					t.Fatalf("%s: got outputs %q", before, r.Outputs)
				}
			}
		}
		mf, err := decodeManifest(result)
		if err != nil {
			return
		}
		operations, _ := reply["operations"].(map[string]any)
		if mf.Name == "" || mf.Version == "" || operations == nil || len(mf.Operations) != len(operations) {
			t.Fatalf("%s: got manifest %+v", before, mf)
		}
		for _, op := range mf.Operations {
			if op.Params != nil && !jsontext.Value(op.Params).IsValid() {
				t.Fatalf("got params %s", op.Params)
			}
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
	case r.Error != nil && r.Error.Details != nil && !jsontext.Value(r.Error.Details).IsValid():
		t.Fatalf("got details %s", r.Error.Details)
	}
}

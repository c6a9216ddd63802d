package wire_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// What a schema is sent as: closed where nothing says it is open, and strict only where
// OpenAI keeps to all of it.
func TestNativeOutput(t *testing.T) {
	for name, c := range map[string]struct {
		schema, want string
		strict       bool
	}{
		"closed and whole": {
			`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`, true,
		},
		"not closed": {
			`{"type":"object","properties":{"a":{"items":{"properties":{"b":{}},"required":["b"]}}},"required":["a"]}`,
			`{"type":"object","properties":{"a":{"items":{"properties":{"b":{}},"required":["b"],"additionalProperties":false}}},` +
				`"required":["a"],"additionalProperties":false}`, true,
		},
		"a member that may be missing": {
			`{"type":"object","properties":{"a":{}}}`,
			`{"type":"object","properties":{"a":{}},"additionalProperties":false}`, false,
		},
		"open on purpose": {
			`{"type":"object","properties":{},"additionalProperties":true}`,
			`{"type":"object","properties":{},"additionalProperties":true}`, false,
		},
		"any object":   {`{"type":"object"}`, `{"type":"object"}`, false},
		"parts of one": {`{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, "", false},
		"a list":       {`{"type":"array","items":{"type":"string"}}`, `{"type":"array","items":{"type":"string"}}`, false},
		"anything":     {`true`, `true`, false},
		"nested":       {strings.Repeat(`{"items":`, 100) + "{}" + strings.Repeat("}", 100), "", false},
	} {
		if c.want == "" {
			c.want = c.schema
		}
		if got := wire.NativeOutput([]byte(c.schema)); string(got.Schema) != c.want || got.Strict != c.strict {
			t.Errorf("%s: got %s, strict %t, want %s, %t", name, got.Schema, got.Strict, c.want, c.strict)
		}
	}
}

// Each dialect asks for an answer that fits in its own way; told in words, it is asked so
// alone. A summary has no schema.
func TestOutputInEachDialect(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`
	native := map[string]string{
		"openai": `"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":` +
			schema,
		"responses": `"text":{"format":{"type":"json_schema","name":"answer","strict":true,"schema":` + schema,
		"anthropic": `"output_config":{"format":{"type":"json_schema","schema":` + schema,
	}
	each(t, func(t *testing.T, d dialect) {
		var body string
		p := d.connect(t, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			body = string(text)
			says(d.start+d.text("x")+d.finish("stop"))(w, r)
		})
		req := hello
		req.Output = []byte(schema)
		read(t.Context(), p, req)
		if !strings.Contains(body, native[d.name]) {
			t.Errorf("got %s, want %s", body, native[d.name])
		}
		req.Repair.ToldOutput = true
		read(t.Context(), p, req)
		if !strings.Contains(body, "nothing but one JSON value") || strings.Contains(body, "json_schema") {
			t.Errorf("told in words: got %s", body)
		}
		req.Repair, req.Summary = model.Repair{}, true
		read(t.Context(), p, req)
		if strings.Contains(body, "json_schema") || strings.Contains(body, "JSON value") {
			t.Errorf("a summary: got %s", body)
		}
	})
}

// A key that a provider refuses is told apart, whatever status it has.
func TestARefusedKey(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for body, status := range map[string]int{
			`{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`:      401,
			`{"type":"error","error":{"type":"authentication_error","message":"invalid key"}}`: 401,
			`{"error":{"message":"API key not valid. Please pass a valid API key."}}`:          400,
			`no`: 401,
		} {
			p := d.connect(t, refuses(status, "application/json", body))
			if got := read(t.Context(), p, hello); !isKey(got.err) {
				t.Errorf("%d %s: got %v, want a refused key", status, body, got.err)
			}
		}
		p := d.connect(t, refuses(403, "application/json", `{"error":{"message":"not in your country"}}`))
		if got := read(t.Context(), p, hello); isKey(got.err) {
			t.Errorf("a 403: got %v, which is no refused key", got.err)
		}
	})
}

func isKey(err error) bool { return errors.Is(err, model.ErrKey) }

package openai_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"noused/internal/model"
	"noused/internal/model/modeltest"
	"noused/internal/model/openai"
	"noused/internal/model/wire"
)

// Gemini refuses every request with a schema that has more than it knows; it gets
// the reduced one, and others get the tool's own.
func TestGeminiSchemas(t *testing.T) {
	unknown := regexp.MustCompile(`"(exclusiveMinimum|\$ref|\$defs|anyOf|additionalProperties|format|const)":`)
	params := `{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0},"u":{"$ref":"#/$defs/u"},
		"x":{"anyOf":[{"type":"string","format":"uri"},{"type":"null"}]}},"$defs":{"u":{"const":"a"}},"additionalProperties":false}`
	for name, strict := range map[string]bool{"gemini-3-pro": true, "google/gemini-2.5-flash": true, "other": false} {
		serve := func(w http.ResponseWriter, r *http.Request) {
			sent, _ := io.ReadAll(r.Body)
			switch word := unknown.Find(sent); {
			case strict && word != nil:
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name `+
					string(word[1:len(word)-2])+`: Cannot find field.","status":"INVALID_ARGUMENT"}}`)
				return
			case !strict && word == nil:
				t.Error("the schema was reduced for a server that takes all of it")
			}
			_, _ = io.WriteString(w, modeltest.Events(`{"choices":[{"index":0,"delta":{"content":"so"}}]}`, stop))
		}
		server := httptest.NewServer(http.HandlerFunc(serve))
		t.Cleanup(server.Close)
		m, err := openai.New(wire.Options{BaseURL: server.URL, Model: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		said := modeltest.Collect(t, m.Stream(t.Context(), model.Request{
			Messages: []model.Message{{Role: model.User, Text: "go"}},
			Tools:    []model.ToolSpec{{Name: "t", Params: []byte(params)}},
		}))
		if said.Text != "so" {
			t.Errorf("%s: got %+v", name, said)
		}
	}
}

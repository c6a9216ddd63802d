package export

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
	"noused/internal/protocol"
)

// A trajectory fits the specification's schema, whatever the conversation holds, and a
// result stands beside its call.
func TestATrajectoryFitsItsSchema(t *testing.T) {
	text, err := os.ReadFile("testdata/atif-v1.4.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	doc := &Document{
		SessionID: "ses-1", Title: "Fix it",
		Usage: protocol.Usage{InputTokens: 9, OutputTokens: 5, Cost: &protocol.Cost{Amount: 0.25, Currency: "USD"}},
	}
	for _, line := range []string{
		`{"type":"compaction","id":"c","role":"assistant","text":"so far","summary":"so far","created_at":"2026-01-02T03:04:05Z"}`,
		`{"type":"message","id":"1","role":"user","text":"go","created_at":"2026-01-02T03:04:05.5Z"}`,
		`{"type":"message","id":"2","role":"assistant","text":"","thinking":"hm","model":"gpt-6","created_at":"2026-01-02T03:04:06Z",` +
			`"tool_calls":[{"id":"call-1","name":"ls","arguments":{"path":"."}},{"id":"call-2","name":"ls","arguments":"{oops"}],` +
			`"usage":{"input_tokens":4,"output_tokens":2,"cost":{"amount":0.25,"currency":"USD"}}}`,
		`{"type":"message","id":"3","role":"tool","text":"a.txt","tool_call_id":"call-1","tool_name":"ls","ok":true,"created_at":"2026-01-02T03:04:07Z"}`,
		`{"type":"message","id":"4","role":"tool","text":"\u001b[31mno","tool_call_id":"call-2","tool_name":"ls","ok":false,"created_at":"2026-01-02T03:04:07Z"}`,
		`{"type":"message","id":"5","role":"assistant","text":"done","model":"gpt-6","created_at":"2026-01-02T03:04:08Z"}`,
	} {
		doc.Messages = append(doc.Messages, jsontext.Value(line))
	}
	var out bytes.Buffer
	if err := ATIF(&out, doc); err != nil {
		t.Fatal(err)
	}
	got, err := jsonschema.Decode(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(got); err != nil {
		t.Errorf("%v:\n%s", err, out.Bytes())
	}
	for _, want := range []string{
		`"source": "system"`, `"step_id": 4`, `"total_steps": 4`, `"total_cost_usd": 0.25`, `"not_an_object": "{oops"`,
		"\"source_call_id\": \"call-1\",\n            \"content\": \"a.txt\"", `\u001b[31mno`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.Bytes())
		}
	}
	if err := ATIF(&out, &Document{SessionID: "ses-1"}); err == nil || !strings.Contains(err.Error(), "no message") {
		t.Errorf("an empty session: got %v", err)
	}
}

package agent

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// A call that was allowed is that of the tool and the arguments that were told: neither numbers that a float does not
// tell apart nor names that agents write the same are.
func TestWhatWasAllowedIsWhatIsCalled(t *testing.T) {
	for _, c := range []struct {
		told, input    string
		served, called string
		want           bool
	}{
		{"mcp__noused__bash", `{"command":"ls"}`, "bash", `{ "command" : "ls" }`, true},
		{"noused_bash", `{"a":1,"b":[2]}`, "bash", `{"b":[2],"a":1}`, true},
		{"noused_shop_delete", `{"id":1}`, "shop.delete", `{"id":1}`, true},
		{"noused_bash", `{"command":"ls"}`, "bash", `{"command":"ls -l"}`, false},
		{"noused_read", `{}`, "bash", `{}`, false},
		{"bash", `{}`, "bash", `{}`, false},
		{"noused_d", `{"id":1234567890123456789}`, "d", `{"id":1234567890123456800}`, false},
		{"noused_d", `{"id":1e400}`, "d", `{"id":1e500}`, false},
		{"noused.a.b_c", `{}`, "a_b.c", `{}`, false},
		{"noused.a.b_c", `{}`, "a.b_c", `{}`, true},
		{"noused_d", `{"a":1,"a":2}`, "d", `{"a":2}`, false},
	} {
		of := &call{name: c.told, input: jsontext.Value(c.input), allowed: true}
		served := &model.ToolCall{Name: c.served, Arguments: []byte(c.called)}
		if got := of.is(served); got != c.want {
			t.Errorf("%s %s, and called is %s %s: got %t", c.told, c.input, c.served, c.called, got)
		}
		if of.allowed = false; of.is(served) {
			t.Errorf("%s was not allowed", c.told)
		}
	}
}

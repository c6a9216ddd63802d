package protocol

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// What tools and servers say as JSON is told as it is, whatever it looks like.
func TestNoValueIsTakenForAnother(t *testing.T) {
	odd := jsontext.Value(`{"enum":["\u0000"]}`)
	long := jsontext.Value(`{"enum":["` + strings.Repeat("x", longParams) + `"]}`)
	for name, reply := range map[string]any{
		"tools":           Tools{Tools: []ToolInfo{{Name: "a", Params: odd}, {Name: "b", Params: long}}},
		"tools, reversed": Tools{Tools: []ToolInfo{{Name: "b", Params: long}, {Name: "a", Params: odd}}},
		"a state":         State{SessionState: odd},
		"a result":        ExtensionResult{Value: odd},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := AppendResponse(nil, "c1", "x", reply)
			if err != nil {
				t.Fatal(err)
			}
			if !jsontext.Value(line).IsValid() || strings.Count(string(line), string(odd)) != 1 {
				t.Errorf("got %s", line)
			}
		})
	}
}

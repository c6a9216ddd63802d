package builtin

import (
	"strings"
	"testing"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// taken are the members of a schema that every vendor takes.
var taken = map[string]bool{
	"type": true, "description": true, "properties": true, "required": true, "items": true, "enum": true,
	"minimum": true, "maximum": true, "minLength": true, "additionalProperties": true,
}

// A model of any vendor can be given the built-in tools as they are.
func TestSchemasEveryVendorTakes(t *testing.T) {
	for _, op := range operations {
		walkSchema(t, op.name, op.params)
	}
}

func walkSchema(t *testing.T, at string, schema jsontext.Value) {
	var s map[string]jsontext.Value
	if err := jsonx.Unmarshal(schema, &s); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	for name := range s {
		if !taken[name] {
			t.Errorf("%s has %s, which some vendors refuse", at, name)
		}
	}
	switch kind := strings.Trim(string(s["type"]), `"`); kind {
	case "object":
		var properties map[string]jsontext.Value
		if err := jsonx.Unmarshal(s["properties"], &properties); err != nil || string(s["additionalProperties"]) != "false" {
			t.Errorf("%s: %v, want properties and no others (%s)", at, err, schema)
		}
		for name, p := range properties {
			walkSchema(t, at+"."+name, p)
		}
	case "array":
		walkSchema(t, at+"[]", s["items"])
	case "string", "integer", "number", "boolean":
		if s["description"] == nil {
			t.Errorf("%s has no description", at)
		}
	default:
		t.Errorf("%s has type %s, want one that every vendor takes", at, s["type"])
	}
}

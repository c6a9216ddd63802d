package jsonschema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	oracle "github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// The oracle is a library that passes the whole official suite. It is not used
// in the daemon as it decodes the metaschemas of all drafts before main.

const oracleURL = "https://example.com/schema"

type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("%s lies outside", url) }

func oracleOf(text string) (*oracle.Schema, error) {
	doc, err := oracle.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := oracle.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(oracleURL, doc); err != nil {
		return nil, err
	}
	return c.Compile(oracleURL)
}

// What a schema says of a value is what the oracle says of it: random schemas,
// with references that go round, anchors and identifiers, against random values.
func TestAgreesWithTheOracle(t *testing.T) {
	compiled, fit, unfit := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		text := encode(t, drawRoot(t))
		s, err := Compile([]byte(text))
		if err != nil {
			if _, right := oracleOf(text); right == nil && !expected(err) {
				t.Fatalf("%s\nis refused: %v", text, err)
			}
			return
		}
		want, err := oracleOf(text)
		if err != nil { // it looks at dynamic anchors that nothing comes to
			return
		}
		compiled++
		for range 8 {
			value := encode(t, drawValue(t, 3))
			v, err := Decode([]byte(value))
			if err != nil {
				t.Fatal(err)
			}
			got, right := s.Check(v), want.Validate(v)
			if got == errDepth { // $dynamicRef that goes round
				continue
			}
			if (got == nil) != (right == nil) {
				t.Fatalf("%s\nof %s\nsays %v\noracle %v", text, value, got, right)
			}
			if got == nil {
				fit++
			} else {
				unfit++
			}
		}
	})
	t.Logf("%d schemas compiled, %d values fit, %d did not", compiled, fit, unfit)
	if compiled == 0 || fit == 0 || unfit == 0 {
		t.Error("the schemas say nothing")
	}
}

// expected are refusals that the oracle does not share: what goes round it finds
// when it checks, and branches that no value comes to it does not look at.
func expected(err error) bool {
	text := err.Error()
	return strings.Contains(text, "a cycle of references") || strings.HasSuffix(text, " the schema") &&
		strings.Contains(text, "$ref: ")
}

func encode(t *rapid.T, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func pick[T any](t *rapid.T, name string, list ...T) T { return rapid.SampledFrom(list).Draw(t, name) }

func drawRoot(t *rapid.T) any {
	d := drawer{T: t, draft: pick(t, "draft", 7, 2019, 2020, 2020, 2020)}
	root, ok := d.schema(4).(map[string]any)
	if !ok {
		return true
	}
	root["$schema"] = map[int]string{
		7: "http://json-schema.org/draft-07/schema#", 2019: "https://json-schema.org/draft/2019-09/schema",
		2020: "https://json-schema.org/draft/2020-12/schema",
	}[d.draft]
	defs := "$defs"
	if d.draft == 7 {
		defs = "definitions"
	}
	a, b := d.schema(3), d.schema(3)
	if m, ok := a.(map[string]any); ok && d.draft > 7 {
		m["$anchor"] = "one"
	}
	if m, ok := b.(map[string]any); ok && d.draft == 2020 {
		m["$dynamicAnchor"] = "two"
		if rapid.Bool().Draw(t, "id") {
			m["$id"] = "inner"
			m["$defs"] = map[string]any{"c": d.anchored("two")}
			delete(m, "$dynamicAnchor")
		}
	}
	root[defs] = map[string]any{"a": a, "b": b}
	return root
}

// drawer draws schemas of a draft.
type drawer struct {
	*rapid.T
	draft int
}

func (d drawer) anchored(name string) any {
	m, ok := d.schema(1).(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	m["$dynamicAnchor"] = name
	return m
}

func (d drawer) schema(depth int) any {
	if depth == 0 || rapid.IntRange(0, 9).Draw(d.T, "boolean") == 0 {
		return pick[any](d.T, "leaf", true, false, map[string]any{}, map[string]any{"type": "integer"},
			map[string]any{"type": []any{"string", "null"}})
	}
	m := map[string]any{}
	for range rapid.IntRange(1, 3).Draw(d.T, "keywords") {
		d.keyword(m, depth-1)
	}
	if ref, ok := m["$ref"]; ok && d.draft == 7 { // nothing beside it counts; to the oracle some does
		return map[string]any{"$ref": ref}
	}
	return m
}

func (d drawer) list(depth int) []any {
	list := make([]any, rapid.IntRange(1, 3).Draw(d.T, "length"))
	for i := range list {
		list[i] = d.schema(depth)
	}
	return list
}

func (d drawer) byName(depth int, names ...string) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(1, 3).Draw(d.T, "length") {
		m[pick(d.T, "name", names...)] = d.schema(depth)
	}
	return m
}

func (d drawer) keyword(m map[string]any, depth int) {
	key := pick(d.T, "keyword", d.keywords()...)
	switch key {
	case "$ref":
		refs := []string{"#", "#/$defs/a", "#/$defs/b", "#/$defs/b/properties/x", "#one", "inner", "#/properties/x"}
		if d.draft == 7 {
			refs = []string{"#", "#/definitions/a", "#/definitions/b", "#/properties/x"}
		}
		m[key] = pick(d.T, "ref", refs...)
	case "$dynamicRef":
		m[key] = pick(d.T, "ref", "#two", "inner#two", "#/$defs/a")
	case "allOf", "anyOf", "oneOf", "prefixItems":
		m[key] = d.list(depth)
	case "properties", "dependentSchemas":
		m[key] = d.byName(depth, "x", "y", "z")
	case "patternProperties":
		m[key] = d.byName(depth, "^x", "y$", "[xz]")
	default:
		m[key] = d.plain(key, depth)
	}
}

func (d drawer) keywords() []string {
	keys := []string{
		"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "properties", "properties", "patternProperties",
		"additionalProperties", "propertyNames", "items", "contains", "required", "type", "enum", "const", "minimum",
		"exclusiveMaximum", "multipleOf", "minLength", "maxItems", "minProperties", "pattern", "uniqueItems",
	}
	switch d.draft {
	case 2020:
		keys = append(keys, "$dynamicRef", "$dynamicRef", "prefixItems")
	default:
		keys = append(keys, "additionalItems", "dependencies")
	}
	if d.draft > 7 {
		keys = append(keys, "unevaluatedItems", "unevaluatedProperties", "dependentSchemas", "minContains", "maxContains",
			"dependentRequired")
	}
	return keys
}

// plain is the value of a keyword with one schema, or none, in it.
func (d drawer) plain(key string, depth int) any {
	switch key {
	case "items":
		if d.draft < 2020 && rapid.Bool().Draw(d.T, "tuple") {
			return d.list(depth)
		}
		return d.schema(depth)
	case "dependencies":
		return map[string]any{"x": d.schema(depth), "y": []any{"z"}}
	case "dependentRequired":
		return map[string]any{"x": []any{"y"}}
	case "required":
		return pick[any](d.T, key, []any{"x"}, []any{"y", "z"})
	case "type":
		return pick[any](d.T, key, "object", "array", "number", "integer", "string", []any{"null", "boolean", "object"})
	case "enum":
		return []any{drawValue(d.T, 1), drawValue(d.T, 2), drawValue(d.T, 0)}
	case "const":
		return drawValue(d.T, 2)
	case "minimum", "exclusiveMaximum":
		return drawNumber(d.T)
	case "multipleOf":
		return pick[any](d.T, key, json.Number("0.1"), 2, json.Number("1e-3"), 3)
	case "minLength", "maxItems", "minProperties", "minContains", "maxContains":
		return pick[any](d.T, key, 0, 1, 2, json.Number("2.0"))
	case "pattern":
		return pick(d.T, key, "^x", "y|z", "^$")
	case "uniqueItems":
		return true
	}
	return d.schema(depth)
}

func drawNumber(t *rapid.T) any {
	return pick(t, "number", json.Number("0"), "-0", "1", "1.0", "10e-1", "2", "0.3", "-1.5", "1e2", "100",
		"12345678901234567890", "12345678901234567891", "3e-3")
}

func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case depth > 0 && kind < 4:
		m := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "size") {
			m[pick(t, "name", "x", "y", "z", "xy")] = drawValue(t, depth-1)
		}
		return m
	case depth > 0 && kind < 7:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "size"))
		for i := range list {
			list[i] = drawValue(t, depth-1)
		}
		return list
	case kind < 8:
		return drawNumber(t)
	}
	return pick[any](t, "leaf", nil, true, false, "", "x", "zé", "xyz")
}

package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
)

const (
	maxDepth = 16
	maxItems = 64
	maxSteps = 1000
)

// arguments returns an object that satisfies the schema. Defaults are filled
// in, as the daemon does; without given, the properties that are required are
// made up of const, enum, examples and type. An error says why there is none.
func arguments(schema, given jsontext.Value) (jsontext.Value, error) {
	value := any(map[string]any{})
	if given != nil {
		v, err := jsonschema.Decode(given)
		if err != nil {
			return nil, err
		}
		if _, ok := v.(map[string]any); !ok {
			return nil, errors.New("want a JSON object")
		}
		value = v
	}
	if len(schema) > 0 {
		compiled, err := jsonschema.Compile(schema)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.Decode(schema)
		if err != nil {
			return nil, err
		}
		a := author{root: doc, invent: given == nil}
		a.complete(doc, value, 0)
		if err := compiled.Check(value); err != nil {
			return nil, err
		}
	}
	// encoding/json, as only it writes a json.Number back the way it came.
	return json.Marshal(value)
}

// Sample makes up arguments that satisfy the schema of an operation, a JSON object.
func Sample(schema jsontext.Value) (jsontext.Value, error) { return arguments(schema, nil) }

// author completes values after a schema.
type author struct {
	root   any
	invent bool
	steps  int
}

// tired bounds the work on schemas that refer to themselves.
func (a *author) tired(depth int) bool {
	a.steps++
	return depth > maxDepth || a.steps > maxSteps
}

// resolve follows references within the schema.
func (a *author) resolve(schema any, depth int) map[string]any {
	s, _ := schema.(map[string]any)
	ref, ok := s["$ref"].(string)
	if !ok || depth > maxDepth {
		return s
	}
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return s
	}
	at := a.root
	for _, token := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if token == "" {
			continue
		}
		m, _ := at.(map[string]any)
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
	}
	return a.resolve(at, depth+1)
}

// complete fills the object v in, deeply.
func (a *author) complete(schema, v any, depth int) {
	s, object := a.resolve(schema, 0), map[string]any(nil)
	object, _ = v.(map[string]any)
	if s == nil || object == nil || a.tired(depth) {
		return
	}
	if all, ok := s["allOf"].([]any); ok {
		for _, part := range all {
			a.complete(part, v, depth+1)
		}
	}
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for name, property := range properties {
		if value, ok := object[name]; ok {
			a.complete(property, value, depth+1)
		} else if d, ok := a.resolve(property, 0)["default"]; ok {
			object[name] = d
		} else if a.invent && slices.Contains(required, any(name)) {
			object[name] = a.make(property, depth+1)
		}
	}
}

// make makes up a value.
func (a *author) make(schema any, depth int) any {
	s := a.resolve(schema, 0)
	if a.tired(depth) {
		return nil
	}
	for _, key := range []string{"default", "const"} {
		if v, ok := s[key]; ok {
			return v
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			return list[0]
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 && s["type"] == nil {
			return a.make(list[0], depth+1)
		}
	}
	kind, _ := s["type"].(string)
	if list, ok := s["type"].([]any); ok && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	if kind == "" && s["properties"] != nil {
		kind = "object"
	}
	switch kind {
	case "object":
		object := map[string]any{}
		a.complete(s, object, depth)
		return object
	case "array":
		list := []any{}
		for range min(whole(s["minItems"]), maxItems) {
			list = append(list, a.make(s["items"], depth+1))
		}
		return list
	case "integer", "number":
		for _, key := range []string{"minimum", "maximum"} {
			if n, ok := s[key].(json.Number); ok {
				return n
			}
		}
		return json.Number(fmt.Sprint(whole(s["exclusiveMinimum"]) + 1))
	case "boolean":
		return false
	case "null":
		return nil
	}
	text := "example"
	if n := whole(s["minLength"]); n > len(text) && n < 1<<16 {
		text += strings.Repeat("e", n-len(text))
	}
	if n, ok := s["maxLength"]; ok && whole(n) < len(text) {
		text = text[:max(0, whole(n))]
	}
	return text
}

// whole is a keyword's value as a whole number, 0 if it is none.
func whole(v any) int {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return int(i)
}

// lacking returns args without one property that the schema requires and gives
// no default. False: there is no such property.
func lacking(schema, args jsontext.Value) (jsontext.Value, string, bool) {
	var s struct {
		Required   []string                  `json:"required"`
		Properties map[string]jsontext.Value `json:"properties"`
	}
	var object map[string]jsontext.Value
	if json.Unmarshal(schema, &s) != nil || json.Unmarshal(args, &object) != nil {
		return nil, "", false
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			continue
		}
		delete(object, name)
		text, err := json.Marshal(object)
		return text, name, err == nil
	}
	return nil, "", false
}

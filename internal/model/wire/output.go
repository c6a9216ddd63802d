package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Output is the schema of an answer as providers take it that make answers fit one.
type Output struct {
	Name   string         `json:"name"`
	Strict bool           `json:"strict"`
	Schema jsontext.Value `json:"schema"`
}

// NativeOutput is a schema for such a provider. Objects that do not say it are closed, as
// Anthropic and OpenAI want: what fits the closed schema fits the other. It is strict
// where it is in the part of JSON Schema that OpenAI promises to keep to; elsewhere the
// model is led by it, and the daemon checks the answer anyway.
func NativeOutput(schema []byte) Output {
	if bytes.Contains(schema, []byte(`"allOf"`)) { // its parts would refuse each other's members
		return Output{Name: "answer", Schema: schema}
	}
	c := closer{strict: true, left: maxSchemaParts}
	closed := c.closed(schema, 0)
	root := Text(Members(closed).Get("type"))
	return Output{Name: "answer", Strict: c.strict && c.left >= 0 && root == "object", Schema: closed}
}

// closer closes the objects of a schema.
type closer struct {
	strict bool // all objects are closed, and want all their properties
	left   int  // parts
}

// loose are keywords beyond those that OpenAI keeps to.
var loose = []string{
	"oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties",
	"prefixItems", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
}

func (c *closer) closed(v jsontext.Value, depth int) jsontext.Value {
	s := Members(v)
	if c.left--; s == nil || depth > maxSchemaDepth || c.left < 0 {
		c.strict = false
		return v
	}
	for _, word := range loose {
		c.strict = c.strict && s.Get(word) == nil
	}
	for _, word := range []string{"properties", "$defs", "definitions"} {
		if parts := Members(s.Get(word)); parts != nil {
			var out Object
			for _, p := range parts {
				out = append(out, Member{p.Name, c.closed(p.Value, depth+1)})
			}
			s = s.Put(Member{word, out.JSON()})
		}
	}
	if items := s.Get("items"); items != nil {
		s = s.Put(Member{"items", c.closed(items, depth+1)})
	}
	var list []jsontext.Value
	if v := s.Get("anyOf"); v != nil && Read(v, &list) == nil {
		for i := range list {
			list[i] = c.closed(list[i], depth+1)
		}
		s = s.Put(Member{"anyOf", Array(list)})
	}
	if properties := Members(s.Get("properties")); plainType(s.Get("type")) == "object" || properties != nil {
		if s.Get("additionalProperties") == nil && !combined(s) {
			s = s.Put(Member{"additionalProperties", jsontext.Value("false")})
		}
		c.strict = c.strict && string(s.Get("additionalProperties")) == "false" && requiresAll(s, properties)
	}
	return s.JSON()
}

// combined reports a schema whose object is described elsewhere, too: closed it would
// refuse what stands there.
func combined(s Object) bool {
	for _, word := range []string{"$ref", "anyOf", "oneOf", "if", "patternProperties"} {
		if s.Get(word) != nil {
			return true
		}
	}
	return s.Get("properties") == nil
}

func requiresAll(s, properties Object) bool {
	var names []string
	_ = Read(s.Get("required"), &names) // none where it is no list
	required := map[string]bool{}
	for _, name := range names {
		required[name] = true
	}
	for _, p := range properties {
		if !required[p.Name] {
			return false
		}
	}
	return true
}

// WithOutput is the system prompt of a request. told: the model learns there what its
// answer has to fit.
func WithOutput(req model.Request, told bool) string {
	if req.Output == nil || !told || req.Summary {
		return req.System
	}
	const how = "Your last message in this run, the answer, must be nothing but one JSON value that fits the JSON " +
		"Schema below: no other words, no code fence. Before it you may call tools as usual.\n"
	text := how + string(req.Output)
	if req.System == "" {
		return text
	}
	return req.System + "\n\n" + text
}

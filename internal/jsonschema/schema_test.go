package jsonschema

import (
	"encoding/json"
	"testing"
)

// What is wrong is told with its place, in words that say what was wanted.
func TestProblemsNameTheirPlace(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"type":"object","properties":{"n":{"type":"integer"}}}`, `{"n":"x"}`, "/n: got string, want integer"},
		{`{"type":["string","null"]}`, `1.5`, "got number, want string or null"},
		{`{"required":["a","b"]}`, `{}`, "missing properties 'a', 'b'"},
		{`{"required":["a"]}`, `{}`, "missing property 'a'"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "missing property 'b', which 'a' needs"},
		{`{"items":{"additionalProperties":false}}`, `[{"a/b":1,"c":2}]`, "/0: additional properties 'a/b', 'c' not allowed"},
		{
			`{"properties":{"to":{},"as":{}},"additionalProperties":false}`, `{"too":1}`,
			"additional properties 'too' not allowed: there are 'as', 'to'",
		},
		{`{"properties":{"a":false}}`, `{"a":1}`, "/a: not allowed"},
		{`{"enum":["a",1,null]}`, `"b"`, "want 'a' or 1 or null"},
		{`{"const":true}`, `1`, "want true"},
		{`{"minimum":2}`, `1.0`, "got 1.0, want at least 2"},
		{`{"exclusiveMaximum":2}`, `2`, "got 2, want less than 2"},
		{`{"multipleOf":0.1}`, `0.35`, "got 0.35, want a multiple of 0.1"},
		{`{"minLength":2}`, `"é"`, "got 1 characters, want at least 2"},
		{`{"maxItems":1}`, `[1,2]`, "got 2 items, want at most 1"},
		{`{"pattern":"^a"}`, `"b"`, "does not match the pattern ^a"},
		{
			`{"anyOf":[{"type":"string"},{"properties":{"x":{"type":"null"}},"type":"object"}]}`, `{"x":1}`,
			"got object, want string; /x: got number, want null",
		},
		{`{"oneOf":[{"type":"string"},{"minLength":1}]}`, `"x"`, "fits more than one of the schemas of oneOf"},
		{`{"not":{}}`, `1`, "fits the schema of not"},
		{`{"contains":{"const":1}}`, `[2]`, "0 items fit the schema of contains, want at least 1"},
		{`{"properties":{"a":{}},"unevaluatedProperties":false}`, `{"a":1,"b":2}`, "/b: not allowed"},
		{
			`{"items":{"type":"null"}}`, `[1,2,3,4,5,6,7]`,
			"/0: got number, want null; /1: got number, want null; /2: got number, want null; " +
				"/3: got number, want null; /4: got number, want null; and 2 more",
		},
	} {
		s, err := Compile([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		v, err := Decode([]byte(c.value))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(v); err == nil || err.Error() != c.want {
			t.Errorf("%s of %s:\ngot  %v\nwant %s", c.schema, c.value, err, c.want)
		}
	}
}

// A schema that is wrong says where.
func TestWrongSchemasNameTheirPlace(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"strng"}`: "/type: got 'strng', want one or more of null, boolean, object, array, " +
			"number, string, integer",
		`{"properties":{"a/b":{"minLength":-1}}}`: "/properties/a~1b/minLength: got -1, want a whole number from 0 on",
		`{"properties":{"a":null}}`:               "/properties/a: got null, want a schema: an object or a boolean",
		`{"properties":[]}`:                       "properties: got array, want an object of schemas",
		`{"anyOf":[]}`:                            "anyOf: an empty array",
		`{"required":"a"}`:                        "/required: got 'a', want an array of strings",
		`{"minimum":"1"}`:                         "/minimum: got '1', want a number",
		`{"multipleOf":0}`:                        "/multipleOf: got 0, want a number above 0",
		`{"items":{"pattern":"("}}`:               "/items: pattern: error parsing regexp: missing closing ): `(`",
		`{"$ref":"#/x"}`:                          "$ref: #/x is not in the schema",
		`{"allOf":[{"$ref":"#x"}]}`:               "/allOf/0: $ref: #x is not in the schema",
		`{"$ref":"http://a/b"}`:                   "$ref: http://a/b lies outside the schema",
		`{"$schema":"http://a/b"}`:                "$schema: 'http://a/b' is not a draft that is known",
		`[]`:                                      "got array, want a schema: an object or a boolean",
		`{`:                                       "unexpected end of JSON",
		`{} {}`:                                   "something follows the JSON value",
	} {
		if _, err := Compile([]byte(schema)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", schema, err, want)
		}
	}
}

// Defaults are filled in deeply, through references and the items of arrays.
func TestDefaultsAreFilledIn(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"properties":{"a":{"default":1},"b":{}}}`, `{}`, `{"a":1}`},
		{`{"properties":{"a":{"default":null}}}`, `{}`, `{"a":null}`},
		{`{"properties":{"a":{"default":1}}}`, `{"a":2}`, `{"a":2}`},
		{`{"properties":{"a":{"$ref":"#/$defs/d"}},"$defs":{"d":{"default":1.50}}}`, `{}`, `{"a":1.50}`},
		{`{"allOf":[{"properties":{"a":{"default":1}}}]}`, `{}`, `{"a":1}`},
		{`{"prefixItems":[{}],"items":{"properties":{"a":{"default":1}}}}`, `[{},{}]`, `[{},{"a":1}]`},
		{`{"properties":{"a":{"properties":{"b":{"default":1}}}}}`, `{}`, `{}`},
		{`{"properties":{"a":{"properties":{"b":{"default":1}}}}}`, `{"a":{}}`, `{"a":{"b":1}}`},
	} {
		s, err := Compile([]byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		v, err := Decode([]byte(c.value))
		if err != nil {
			t.Fatal(err)
		}
		filled, err := s.Fill(v)
		if err != nil || filled != (c.value != c.want) {
			t.Errorf("%s: got %v, %v", c.schema, filled, err)
		}
		if got, err := json.Marshal(v); err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.schema, got, err, c.want)
		}
	}
}

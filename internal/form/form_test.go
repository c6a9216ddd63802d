package form

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

const booking = `{"type":"object","$schema":"x","title":"t","additionalProperties":false,"properties":{
 "name":{"type":"string","title":"Your name","minLength":1,"maxLength":5},
 "mail":{"type":"string","format":"email"},
 "at":{"type":"string","format":"date-time"},
 "day":{"type":"string","format":"date"},
 "page":{"type":"string","format":"uri"},
 "guests":{"type":"integer","minimum":1,"maximum":10,"default":2,"description":"how many"},
 "price":{"type":"number","exclusiveMinimum":0},
 "sea":{"type":"boolean","default":true},
 "room":{"type":"string","enum":["s","d"],"enumNames":["Single","Double"],"default":"d"},
 "size":{"type":"string","oneOf":[{"const":"l","title":"Large"},{"const":"m"}]},
 "extras":{"type":"array","minItems":1,"maxItems":2,"items":{"anyOf":[{"const":"b","title":"Bed"},{"const":"w","title":"Wifi"},{"const":"c"}]}},
 "tags":{"type":"array","items":{"type":"string","enum":["x","y"]},"default":["x"]}},
 "required":["name","guests"]}`

func parsed(t *testing.T, schema string) *Form {
	t.Helper()
	f, err := Parse([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFormsKeepTheServersOrder(t *testing.T) {
	f := parsed(t, booking)
	var got []string
	for i := range f.Fields {
		got = append(got, fmt.Sprintf("%s: %s", f.Fields[i].Label(), f.Fields[i].Takes()))
	}
	want := `Your name: at least 1 characters, at most 5 characters
mail: email address, may be left out
at: time like 2006-01-31T15:04:05Z, may be left out
day: date like 2006-01-31, may be left out
page: URI, may be left out
guests: a whole number, at least 1, at most 10
price: a number, more than 0, may be left out
sea: yes or no, may be left out
room: one of these, may be left out
size: one of these, may be left out
extras: any of these, at least 1 of them, at most 2 of them, may be left out
tags: any of these, may be left out`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// What is filled in and the defaults of the rest are sent, and nothing that does not
// fit.
func TestFill(t *testing.T) {
	f := parsed(t, booking)
	for content, want := range map[string]string{
		`{"name":"Ada"}`: `{"name":"Ada","guests":2,"sea":true,"room":"d","tags":["x"]}`,
		` { "guests" : 10 , "name":"Ada","sea":false,"tags":[] } `:   `{"name":"Ada","guests":10,"sea":false,"room":"d","tags":[]}`,
		`{"name":"Ada","guests":1.0,"price":0.5e1,"room":"s"}`:       `{"name":"Ada","guests":1.0,"price":0.5e1,"sea":true,"room":"s","tags":["x"]}`,
		`{"name":"Ada","mail":"a@b.c","extras":["b","w"]}`:           `{"name":"Ada","mail":"a@b.c","guests":2,"sea":true,"room":"d","extras":["b","w"],"tags":["x"]}`,
		`{"name":"Ada","day":"2026-11-22","page":"https://x/"}`:      `{"name":"Ada","day":"2026-11-22","page":"https://x/","guests":2,"sea":true,"room":"d","tags":["x"]}`,
		`{"name":"Ada","at":"2026-11-22T15:00:00+01:00","size":"l"}`: `{"name":"Ada","at":"2026-11-22T15:00:00+01:00","guests":2,"sea":true,"room":"d","size":"l","tags":["x"]}`,
		``:                                  `"name" has to be filled in`,
		`[]`:                                `object`,
		`{"name":"Ada","name":"Bob"}`:       `duplicate`,
		`{"name":"Ada","nick":"A"}`:         `no field "nick"`,
		`{"name":""}`:                       `"name": `,
		`{"name":"Ada","guests":0}`:         `"guests": `,
		`{"name":"Ada","guests":"2"}`:       `"guests": `,
		`{"name":"Ada","guests":null}`:      `"guests": `,
		`{"name":"Ada","guests":1.5}`:       `"guests": `,
		`{"name":"Ada","sea":"yes"}`:        `"sea": `,
		`{"name":"Ada","room":"Single"}`:    `"room": `,
		`{"name":"Ada","size":"x"}`:         `"size": `,
		`{"name":"Ada","extras":[]}`:        `"extras": `,
		`{"name":"Ada","extras":["z"]}`:     `"extras": `,
		`{"name":"Ada","mail":"Ada <a@b>"}`: `email`,
		`{"name":"Ada","page":"x"}`:         `URI`,
		`{"name":"Ada","at":"now"}`:         `time like`,
		`{"name":"Ada","day":"22.11.26"}`:   `date like`,
		strings.Repeat(" ", MaxContent+1):   `at most 65536`,
	} {
		got, err := f.Fill([]byte(content))
		if err == nil && string(got) != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %s, %v; want %s", content, got, err, want)
		}
	}
}

// What is no form is refused by the name of what is wrong.
func TestWhatIsNoForm(t *testing.T) {
	one := func(field string) string { return `{"type":"object","properties":{"a":` + field + `}}` }
	for schema, want := range map[string]string{
		``: "no JSON object", `[]`: "no JSON object", `true`: "no JSON object", `{"type":"array"}`: "type",
		`{"$ref":"#"}`: `"$ref"`, `{"$defs":{}}`: `"$defs"`, `{"allOf":[]}`: `"allOf"`,
		`{"additionalProperties":{"$ref":"#"}}`: "additionalProperties", `{"type":"object","required":["a"]}`: `no field "a"`,
		`{"required":"a"}`: "required", `{"properties":[]}`: "properties",
		one(`true`): `field "a"`, one(`{}`): "type", one(`{"type":"object"}`): "type", one(`{"type":"null"}`): "type",
		one(`{"type":["string","null"]}`):   "type",
		one(`{"type":"string","$ref":"#"}`): "$ref", one(`{"type":"string","properties":{}}`): "properties",
		one(`{"type":"string","anyOf":[]}`):       "anyOf",
		one(`{"type":"string","format":"regex"}`): "format", one(`{"type":"integer","format":"date"}`): "format",
		one(`{"type":"string","default":1}`): "default", one(`{"type":"string","enum":[]}`): "enum",
		one(`{"type":"string","enum":[1]}`):                                            "enum",
		one(`{"type":"integer","enum":["a"]}`):                                         "texts",
		one(`{"type":"string","enum":["a"],"oneOf":[{"const":"a"}]}`):                  "twice",
		one(`{"type":"string","enum":["a"],"enumNames":[]}`):                           "enumNames",
		one(`{"type":"string","oneOf":[{"title":"a"}]}`):                               "const",
		one(`{"type":"string","oneOf":[{"const":"a","$ref":"#"}]}`):                    "$ref",
		one(`{"type":"string","items":{"enum":["a"]}}`):                                "items",
		one(`{"type":"array"}`):                                                        "items",
		one(`{"type":"array","items":{"type":"string"}}`):                              "items",
		one(`{"type":"array","items":{"type":"object"}}`):                              "items",
		one(`{"type":"array","items":{"$ref":"#","enum":["a"]}}`):                      "$ref",
		one(`{"type":"string","pattern":"("}`):                                         "pattern",
		one(`{"type":"string","minLength":"x"}`):                                       "minLength",
		`{"type":"object","properties":{"a":{"type":"string"},"a":{"type":"string"}}}`: "duplicate",
		strings.Repeat(" ", MaxSchema+1):                                               "at most 65536",
	} {
		if f, err := Parse([]byte(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %+v, %v; want an error that says %s", schema, f, err, want)
		}
	}
	for _, schema := range []string{`{}`, `{"type":"object","properties":{}}`} { // yes or no
		if got, err := parsed(t, schema).Fill(nil); err != nil || string(got) != "{}" {
			t.Errorf("%s: filled with %s, %v", schema, got, err)
		}
	}
}

func TestWhatIsTyped(t *testing.T) {
	f := parsed(t, booking)
	for _, c := range [][3]string{
		{"name", `A"b`, `"A\"b"`},
		{"name", "toolong", ""},
		{"guests", " 3 ", "3"},
		{"guests", "three", ""},
		{"guests", "99", ""},
		{"guests", "3,4", ""},
		{"price", "-1", ""},
		{"price", "1e2", "1e2"},
		{"sea", "Yes", "true"},
		{"sea", "n", "false"},
		{"sea", "maybe", ""},
		{"room", "2", `"d"`},
		{"room", "Single", `"s"`},
		{"room", "s", `"s"`},
		{"room", "3", ""},
		{"extras", "1, wifi", ""},
		{"extras", "1, Wifi", `["b","w"]`},
		{"extras", "1,2,3", ""},
		{"extras", "", ""},
		{"tags", "", "[]"},
		{"mail", "x", ""},
		{"mail", "a@b.c", `"a@b.c"`},
	} {
		field := f.field(c[0])
		got, err := field.Value(c[1])
		if (err != nil) != (c[2] == "") || err == nil && string(got) != c[2] {
			t.Errorf("%s %q: got %s, %v; want %q", c[0], c[1], got, err, c[2])
		}
		if err != nil {
			continue
		}
		if again, err := field.Value(field.Typed(got)); err != nil || string(again) != string(got) {
			t.Errorf("%s %s: typed again as %q it is %s, %v", c[0], got, field.Typed(got), again, err)
		}
	}
}

// Whatever a server calls a form: it is one that can be filled in and kept, or an
// error. What is sent fits what Fill takes.
func FuzzForm(f *testing.F) {
	f.Add([]byte(booking), []byte(`{"name":"Ada","guests":3}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","pattern":"(a*)*$"}}}`), []byte(`{"a":"aaaa"}`))
	f.Add([]byte(`{"$ref":"#"}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, schema, content []byte) {
		form, err := Parse(schema)
		if err != nil {
			return
		}
		for i := range form.Fields {
			field := &form.Fields[i]
			_ = field.Takes()
			if v, err := field.Value(string(content)); err == nil && !v.IsValid() {
				t.Fatalf("%q makes %s of %q", field.Name, v, content)
			}
			_ = field.Typed(field.Default)
		}
		out, err := form.Fill(content)
		if err != nil {
			return
		}
		if out.Kind() != '{' || !out.IsValid() {
			t.Fatalf("filled with %s", out)
		}
		if again, err := form.Fill(out); err != nil || string(again) != string(jsontext.Value(out)) {
			t.Fatalf("%s filled again is %s, %v", out, again, err)
		}
	})
}

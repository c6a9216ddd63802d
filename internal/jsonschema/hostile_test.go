package jsonschema

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// nested is a text nested n deep.
func nested(n int, before, inside, after string) string {
	return strings.Repeat(before, n) + inside + strings.Repeat(after, n)
}

// chain is a schema of n references, one to the next, the last with end in it.
func chain(n int, end string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":%s}}`, b.String(), n, end)
}

// A tool's schema and a model's value can be anything. What they cost is bounded,
// and what costs too much is an error: a stack that overflows would end the daemon.
func TestHostileSchemasAreBounded(t *testing.T) {
	const loop = "come to more than"
	megabyte := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, c := range map[string]struct{ schema, value, compile, check string }{
		"itself":            {`{"$ref":"#"}`, `{}`, loop, ""},
		"itself, all of":    {`{"allOf":[{"$ref":"#"}]}`, `{}`, loop, ""},
		"itself, not":       {`{"not":{"$ref":"#"}}`, `{}`, loop, ""},
		"itself, if":        {`{"if":true,"then":{"$ref":"#"}}`, `{}`, loop, ""},
		"itself, dependent": {`{"dependentSchemas":{"a":{"$ref":"#"}}}`, `{"a":1}`, loop, ""},
		"itself, dynamic":   {`{"$dynamicAnchor":"n","anyOf":[{"$dynamicRef":"#n"}]}`, `{}`, loop, ""},
		"itself, recursive": {
			`{"$schema":"https://json-schema.org/draft/2019-09/schema","oneOf":[{"$recursiveRef":"#"}]}`, `{}`, loop, "",
		},
		"two of each other": {
			`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, `{}`, loop, "",
		},
		"an anchor's":          {`{"$ref":"#a","$defs":{"x":{"$anchor":"a","$ref":"#/$defs/x"}}}`, `{}`, loop, ""},
		"an identifier's":      {`{"$id":"http://a/b","$ref":"c","$defs":{"x":{"$id":"c","$ref":"b"}}}`, `{}`, loop, ""},
		"an unknown keyword's": {`{"$ref":"#/x","x":{"$ref":"#/x"}}`, `{}`, loop, ""},
		"dynamic, at run time": {
			`{"$id":"http://a/r","$ref":"l","$defs":{"o":{"$dynamicAnchor":"n","$ref":"l"},"l":{"$id":"l","$dynamicRef":"#n","$defs":{"i":{"$dynamicAnchor":"n"}}}}}`, `{}`, "", "nested too deeply",
		},
		"powers of two": {
			`{"$ref":"#/d/0","d":[` + strings.Repeat(`{"$ref":"#/d/1"},`, 1) + powers(40) + `]}`, `{}`,
			loop, "",
		},
		"a tree": {`{"properties":{"a":{"$ref":"#"}}}`, nested(3000, `{"a":`, "1", "}"), "", ""},
		"deeper than the stack": {
			chain(2000, `{"properties":{"a":{"$ref":"#"}}}`), nested(9000, `{"a":`, "1", "}"), "",
			"nested too deeply",
		},
		"deep":             {nested(9000, `{"items":`, "{}", "}"), nested(9000, "[", "", "]"), "", ""},
		"deep, all of":     {nested(4000, `{"allOf":[`, "{}", "]}"), `1`, "", ""},
		"deeper than JSON": {nested(11000, `{"items":`, "{}", "}"), `1`, "max depth", ""},
		"many schemas": {
			`{"anyOf":[` + strings.Repeat(`{},`, MaxSchemas) + `{}]}`, `1`, "more than 50000 schemas",
			"",
		},
		"a large value, many": {
			`{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 1000) + `false]}`, megabyte, "",
			"got object, want string",
		},
		"patterns, many": {
			`{"allOf":[` + strings.Repeat(`{"pattern":"(a|b){500}"},`, 4000) + `true]}`, `"x"`,
			"patterns of the schema are too large", "",
		},
		"patterns, slow": {
			`{"items":{"allOf":[` + strings.Repeat(`{"pattern":"(x+x+)+z|."},`, 4000) + `true]}}`,
			`["` + strings.Repeat("x", 1<<20) + `"]`, "", "takes too long",
		},
		"a pattern, slow":      {`{"pattern":"^(a{0,500})b"}`, `"` + strings.Repeat("a", 1<<20) + `"`, "", "takes too long"},
		"a pattern, long text": {`{"pattern":"^[a-z ]+$"}`, `"` + strings.Repeat("a", 4<<20) + `"`, "", ""},
		"equal items": {
			`{"items":{"uniqueItems":true}}`, `[[` + strings.Repeat(`[1],[1.0],`, 20000) + `1]]`, "",
			"/0: items 0 and 1 are equal",
		},
		"an exponent":        {`{"minimum":1e999999999,"multipleOf":1e-99999999}`, `1e999999999`, "", ""},
		"an exponent beyond": {`{"type":"integer"}`, `1e9999999999`, "", "got number, want integer"},
		"many digits":        {`{"multipleOf":7}`, strings.Repeat("7", 1<<20), "", "want a multiple of 7"},
		"a lookahead":        {`{"pattern":"^(?!x)"}`, `"x"`, "", ""},
		"another document":   {`{"$ref":"file:///etc/passwd"}`, `1`, "file:///etc/passwd lies outside the schema", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			refused(t, c.schema, c.value, c.compile, c.check)
			runtime.ReadMemStats(&after)
			if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 64 {
				t.Errorf("allocated %d MiB for %d bytes of schema and %d of value", grown, len(c.schema), len(c.value))
			}
		})
	}
}

// powers are schemas each of which refers to the next twice.
func powers(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"allOf":[{"$ref":"#/d/%d"},{"$ref":"#/d/%d"}]}`, i+2, i+2))
	}
	return strings.Join(append(list, "{}"), ",")
}

// refused compiles, fills and checks, and wants these texts in the errors; ""
// stands for none.
func refused(t *testing.T, schema, value, compile, check string) {
	t.Helper()
	s, err := Compile([]byte(schema))
	want(t, "Compile", err, compile)
	if err != nil {
		return
	}
	v, err := Decode([]byte(value))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fill(v); err != nil && err != errDepth && err != errWork {
		t.Errorf("Fill: %v", err)
	}
	want(t, "Check", s.Check(v), check)
}

func want(t *testing.T, what string, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("%s: got %.300v, want %q", what, err, text)
	}
	if err != nil && len(err.Error()) > 4096 {
		t.Errorf("%s: an error of %d bytes", what, len(err.Error()))
	}
}

// Whatever is in a schema and a value, nothing panics.
func FuzzCheck(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{"$ref":"#"}}}}}`, `{"x":{}}`},
		{`{"$id":"a","$dynamicRef":"#b","$defs":{"c":{"$dynamicAnchor":"b","$id":"q"}}}`, `[1]`},
		{`{"items":[{"default":1}],"additionalItems":false,"uniqueItems":true}`, `[1,"x",1e3]`},
		{`{"unevaluatedProperties":false,"dependentRequired":{"a":["b"]},"pattern":"(?=x)"}`, `{"a":null}`},
		{`{"contains":{"const":1.50},"minContains":2,"multipleOf":1e-5,"if":{"enum":[[]]}}`, `[-0.0]`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		s, err := Compile([]byte(schema))
		if err != nil {
			return
		}
		v, err := Decode([]byte(value))
		if err != nil {
			return
		}
		first := s.Check(v)
		if again := s.Check(v); (first == nil) != (again == nil) {
			t.Errorf("first %v, then %v", first, again)
		}
		if _, err := s.Fill(v); err != nil && err != errDepth && err != errWork {
			t.Error(err)
		}
	})
}

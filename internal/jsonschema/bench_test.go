package jsonschema

import "testing"

// BenchmarkCheck checks the arguments of an edit of two places against the
// schema of such a tool; oracle is the library that the tests compare with.
func BenchmarkCheck(b *testing.B) {
	const schema = `{"type":"object","properties":{"path":{"type":"string","minLength":1},"offset":{"type":"integer","minimum":0},
		"edits":{"type":"array","items":{"type":"object","properties":{"old":{"type":"string"},"new":{"type":"string"}},
		"required":["old","new"],"additionalProperties":false}}},"required":["path"],"additionalProperties":false}`
	v, err := Decode([]byte(`{"path":"/a/b","offset":3,"edits":[{"old":"x","new":"y"},{"old":"x","new":"z"}]}`))
	if err != nil {
		b.Fatal(err)
	}
	ours, err := Compile([]byte(schema))
	if err != nil {
		b.Fatal(err)
	}
	theirs, err := oracleOf(schema)
	if err != nil {
		b.Fatal(err)
	}
	for name, check := range map[string]func(any) error{"ours": ours.Check, "oracle": theirs.Validate} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := check(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

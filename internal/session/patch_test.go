package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The examples of RFC 7396, appendix A, with an object as the target.
func TestPatchesMergeAsInTheRFC(t *testing.T) {
	for _, c := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{}`, `{ "a" : [ 1 , 9007199254740993 ] }`, `{"a":[1,9007199254740993]}`},
	} {
		var d document
		for _, patch := range []string{c.target, c.patch} {
			if err := d.merge(jsontext.Value(patch)); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(d.encoded()); got != c.want {
			t.Errorf("%s with %s: got %s, want %s", c.target, c.patch, got, c.want)
		}
	}
}

// What a patch would make of the document is known before it is applied, and the
// size that is kept count of is that of the text.
func TestTheSizeOfADocument(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var make func(depth int) string
	make = func(depth int) string {
		switch kind := rng.IntN(6); {
		case kind < 3 && depth < 4:
			members := map[string]jsontext.Value{}
			for range rng.IntN(4) {
				members[fmt.Sprint("k\"", rng.IntN(4))] = jsontext.Value(make(depth + 1))
			}
			text, err := json.Marshal(members, json.Deterministic(true))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		case kind == 3:
			return `null`
		case kind == 4:
			return `[1, {"a": null}]`
		}
		return fmt.Sprintf("%q", strings.Repeat("é", rng.IntN(9)))
	}
	var d document
	for range 20_000 {
		patch := jsontext.Value(make(0))
		after, err := d.sizeAfter(patch)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.merge(patch); err != nil {
			t.Fatal(err)
		}
		text := d.encoded()
		if d.size() != after || after < len(text) || after > len(text)+strings.Count(string(text), "{") {
			t.Fatalf("after %s: %d was expected, %d is said, and %s has %d bytes", patch, after, d.size(), text, len(text))
		}
		if !text.IsValid() {
			t.Fatalf("after %s: %s", patch, text)
		}
	}
}

// BenchmarkOpenPatched opens a session whose tools have patched 20 MB together,
// as a daemon without a bound has let them.
func BenchmarkOpenPatched(b *testing.B) {
	path := filepath.Join(b.TempDir(), "ses-1.jsonl")
	j, err := createJournal(OSDisk{}, path, life()[:1], true)
	if err != nil {
		b.Fatal(err)
	}
	var records []Record
	for n := range 20_000 {
		patch := fmt.Sprintf(`{"log":{"entry-%d":%q}}`, n, strings.Repeat("x", 1000))
		records = append(records, Record{t0, Patched{Patch: jsontext.Value(patch)}})
	}
	if err := j.Append(records); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, again, _, err := openJournal(context.Background(), OSDisk{}, path)
		if err != nil || len(s.Patched()) < 20_000_000 {
			b.Fatal(err)
		}
		_ = again.Close()
	}
	_ = j.Close()
}

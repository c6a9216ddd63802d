package jsonschema

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOfficialSuite runs the JSON Schema Test Suite. It is not part of this repository, but
// of a module that go.mod names and go.sum has the checksum of, and so in Go's cache. The
// tests of other documents (the metaschemas among them) are left out: they are refused.
func TestOfficialSuite(t *testing.T) {
	const module = "github.com/google/jsonschema-go"
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var fetched struct{ Dir, Error string }
	if e := json.Unmarshal(out, &fetched); e != nil || err != nil {
		t.Skipf("the suite is not in Go's cache, and cannot be fetched: %v: %s", err, fetched.Error)
	}
	files, err := filepath.Glob(filepath.Join(fetched.Dir, "jsonschema", "testdata", "draft*", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", fetched.Dir, err)
	}
	ran, left := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []group
		if err := json.Unmarshal(text, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			r, l := g.run(t, file)
			ran, left = ran+r, left+l
		}
	}
	if ran < 1900 {
		t.Errorf("%d tests ran, want those of the drafts 2020-12 and 7, which are more than 1900", ran)
	}
	t.Logf("%d tests passed; %d of other documents left out", ran, left)
}

type group struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

func (g *group) run(t *testing.T, file string) (ran, left int) {
	s, err := Compile(g.draft(file))
	if err != nil && strings.Contains(err.Error(), "lies outside the schema") {
		return 0, len(g.Tests)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", file, g.Description, err)
		return 0, 0
	}
	for _, test := range g.Tests {
		v, err := Decode(test.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(v); (err == nil) != test.Valid {
			t.Errorf("%s: %s: %s: got %v, want valid %v", file, g.Description, test.Description, err, test.Valid)
		}
	}
	return len(g.Tests), 0
}

// draft is the schema with the $schema that the tests of draft 7 leave out.
func (g *group) draft(file string) []byte {
	var object map[string]any
	if filepath.Base(filepath.Dir(file)) != "draft7" || json.Unmarshal(g.Schema, &object) != nil {
		return g.Schema
	}
	object["$schema"] = "http://json-schema.org/draft-07/schema#"
	text, err := json.Marshal(object)
	if err != nil {
		return g.Schema
	}
	return text
}

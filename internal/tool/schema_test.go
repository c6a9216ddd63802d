package tool

import (
	"strings"
	"testing"
)

func TestARefusalDoesNotRepeatALongValue(t *testing.T) {
	s, err := compileSchema([]byte(`{"properties":{"a":{"enum":["x"]},"b":{"pattern":"^x"},"c":{"const":"` +
		strings.Repeat("y", 50_000) + `"}},
		"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long ", 10_000)
	for _, args := range []string{`{"a":"` + long + `"}`, `{"b":"` + long + `"}`, `{"c":1}`, `{"` + long + `":1}`} {
		_, err := prepareArguments(s, []byte(args))
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.20s: got %d bytes, %.300v", args, len(err.Error()), err)
		}
	}
	ordered := `{"properties":{"` + strings.Repeat("deep", 10_000) + `":{"type":"string"}}}`
	if s, err = compileSchema([]byte(ordered)); err != nil {
		t.Fatal(err)
	}
	if _, err := prepareArguments(s, []byte(`{"`+strings.Repeat("deep", 10_000)+`":1}`)); err == nil ||
		len(err.Error()) > 1000 {
		t.Errorf("a long place: got %d bytes", len(err.Error()))
	}
}

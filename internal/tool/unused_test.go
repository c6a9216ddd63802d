package tool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPatternThatFitsNothingIsToldOf(t *testing.T) {
	modules := []*Descriptor{
		{Name: "files", Kind: KindTool, Bare: true, Capabilities: []string{"read", "bash"}},
		{Name: "dice", Kind: KindTool, Operations: []Operation{{Name: "roll"}}},
		{Name: "later", Kind: KindTool},
		{Name: "keeper", Kind: KindProvider},
	}
	p := Policy{
		Deny: []string{
			"bash", "files", "dice.roll", "dice__roll", "dice*", "later.*", "later.any", "lat*", "later", "*", "[b]ash",
			"bsh", "files.bash", "dice.rol", "dices.*", "keeper", "latter.*",
		},
		Allow: []string{"read", "reed", "bsh"},
	}
	want := []string{"bsh", "files.bash", "dice.rol", "dices.*", "keeper", "latter.*", "reed"}
	if diff := cmp.Diff(want, p.Unused(modules)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARefusalDoesNotRepeatALongValue(t *testing.T) {
	s, err := compileSchema([]byte(`{"properties":{"a":{"enum":["x"]},"b":{"pattern":"^x"},"c":{"const":"` + strings.Repeat("y", 50_000) + `"}},
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
	if _, err := prepareArguments(s, []byte(`{"`+strings.Repeat("deep", 10_000)+`":1}`)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a long place: got %d bytes", len(err.Error()))
	}
}

package tool

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/policy"
)

func TestAPatternThatFitsNothingIsToldOf(t *testing.T) {
	modules := []*Descriptor{
		{Name: "files", Kind: KindTool, Bare: true, Capabilities: []string{"read", "bash"}},
		{Name: "dice", Kind: KindTool, Operations: []Operation{{Name: "roll"}}},
		{Name: "later", Kind: KindTool},
		{Name: "keeper", Kind: KindProvider},
	}
	rules, err := policy.New(policy.Source{
		Deny: []string{
			"bash", "files", "dice.roll", "dice__roll", "dice*", "later.*", "later.any", "lat*", "later", "*", "[b]ash",
			"bsh", "files.bash", "dice.rol", "dices.*", "keeper", "latter.*",
		},
		Allow: []string{"read", "reed", "bsh"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range Unused(rules, modules) {
		got = append(got, r.Tool)
	}
	want := []string{"bsh", "files.bash", "dice.rol", "dices.*", "keeper", "latter.*", "reed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

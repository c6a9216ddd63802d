package tomlfile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

func TestKeysHaveTheirLines(t *testing.T) {
	var sections struct {
		Limits struct{} `toml:"limits"`
	}
	got, err := Keys([]byte("name = 1\n\n[limits]\nsize = 2\n"), &sections)
	want := []Key{{[]string{"name"}, 1}, {[]string{"limits", "size"}, 4}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("keys (%v):\n%s", err, diff)
	}
	if _, err := Keys([]byte("limits = 1\n"), &sections); err == nil {
		t.Error("a number was taken for a section")
	}
}

func TestProblemNamesThePlace(t *testing.T) {
	var v struct{ Size int }
	err := toml.Unmarshal([]byte("\nsize = \"big\"\n"), &v)
	if got, want := Problem("a.toml", err, "want a number").Error(), "a.toml:2: size: want a number"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

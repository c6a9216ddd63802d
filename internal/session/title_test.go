package session

import (
	"strings"
	"testing"
)

func TestTitlesAreReadable(t *testing.T) {
	for text, want := range map[string]string{
		"fix the parser\nand more":                       "fix the parser",
		`!bash {"command":"ls -l\n  cd ..","timeout":3}`: "bash ls -l cd ..",
		`!files.read {"paths":["a","b"],"x":{"y":"z"}}`:  "files.read a b z",
		`!reload {}`:                "reload",
		`!bash {"command":"ls`:      `!bash {"command":"ls`,
		`!hold.run`:                 "!hold.run",
		`!bash ls`:                  "!bash ls",
		`{"command":"ls"}`:          `{"command":"ls"}`,
		`!`:                         "!",
		strings.Repeat("long ", 20): strings.Repeat("long ", 11) + "long…",
	} {
		if got := titleOf(text); got != want {
			t.Errorf("%q is called %q, want %q", text, got, want)
		}
	}
}

func FuzzTitleOf(f *testing.F) {
	f.Add(`!bash {"command":"ls"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := titleOf(text); len([]rune(got)) > titleLength || strings.Contains(got, "\n") {
			t.Errorf("%q is called %q", text, got)
		}
	})
}

package plaintext_test

import (
	"strings"
	"testing"
	"unicode"

	"noused/internal/plaintext"
)

// What is to be judged is shown as what it is: nothing of it goes, and nothing is
// there that a terminal would not show.
func TestReveal(t *testing.T) {
	for text, want := range map[string]string{
		"git status":                "git status",
		"a\n\tb":                    "a\n\tb",
		"漢字 é 👍":                    "漢字 é 👍",
		"echo safe\rrm -rf /":       "echo safe⟨U+000D⟩rm -rf /",
		"x\x1b[2K\x1b]0;t\ay":       "x⟨U+001B⟩[2K⟨U+001B⟩]0;t⟨U+0007⟩y",
		"a\u202egnp.sh":             "a⟨U+202E⟩gnp.sh",
		"rm\u00a0-rf\u2028\u3000/":  "rm⟨U+00A0⟩-rf⟨U+2028⟩⟨U+3000⟩/",
		"a\u200b\u2060\U000e0041b":  "a⟨U+200B⟩⟨U+2060⟩⟨U+E0041⟩b",
		"a\u3164\u115f\u2800\ufe0f": "a⟨U+3164⟩⟨U+115F⟩⟨U+2800⟩⟨U+FE0F⟩",
		"a\xff\xc3b":                "a⟨FF⟩⟨C3⟩b",
		"\u009b2J":                  "⟨U+009B⟩2J",
	} {
		got, hidden := plaintext.Reveal(text)
		if got != want || hidden != (got != text) {
			t.Errorf("Reveal(%q) = %q, %t; want %q", text, got, hidden, want)
		}
	}
}

func FuzzReveal(f *testing.F) {
	f.Add("a\x1b[0m\u202e\u2028\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got, hidden := plaintext.Reveal(text)
		if hidden != (got != text) {
			t.Errorf("hidden %t of %q as %q", hidden, text, got)
		}
		if strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("other lines: %q as %q", text, got)
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q has %q", got, got[i:])
		}
	})
}

package plaintext_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"noused/internal/plaintext"
)

// A text to judge is shown unchanged: nothing of it goes, and nothing is
// there that a terminal would not show.
func TestReveal(t *testing.T) {
	for text, want := range map[string]string{
		"git status":                "git status",
		"a\n\tb":                    "a\n⇥   b",
		"a\n\n b":                   "a\n\n b",
		"漢字 é 👍":                    "漢字 é 👍",
		"echo safe\rrm -rf /":       "echo safe⟨U+000D⟩rm -rf /",
		"echo safe\b\b\b\brm":       "echo safe⟨U+0008⟩⟨U+0008⟩⟨U+0008⟩⟨U+0008⟩rm",
		"x\x1b[2K\x1b]0;t\ay":       "x⟨U+001B⟩[2K⟨U+001B⟩]0;t⟨U+0007⟩y",
		"a\u202egnp.sh":             "a⟨U+202E⟩gnp.sh",
		"rm\u00a0-rf\u2028\u3000/":  "rm⟨U+00A0⟩-rf⟨U+2028⟩⟨U+3000⟩/",
		"a\u200b\u2060\U000e0041b":  "a⟨U+200B⟩⟨U+2060⟩⟨U+E0041⟩b",
		"a\u3164\u115f\u2800\ufe0f": "a⟨U+3164⟩⟨U+115F⟩⟨U+2800⟩⟨U+FE0F⟩",
		"a\xff\xc3b":                "a⟨FF⟩⟨C3⟩b",
		"a\ufffdb":                  "a\ufffdb",
		"\u009b2J\u0085":            "⟨U+009B⟩2J⟨U+0085⟩",
		"⟨U+202E⟩":                  "⟨U+27E8⟩U+202E⟩",
		"a⇥   b":                    "a⟨U+21E5⟩   b",
		"ls ":                       "ls⟨U+0020⟩",
		"ls \\  \n  \nx":            "ls \\ ⟨U+0020⟩\n ⟨U+0020⟩\nx",
		"ls\n":                      "ls⟨U+000A⟩",
		"e\u0301\u0323\u0301\u0301": "e\u0301\u0323⟨U+0301⟩⟨U+0301⟩",
		"/\u0338 \u0301x":           "/⟨U+0338⟩ ⟨U+0301⟩x",
		"ls\u037e rm":               "ls⟨U+037E⟩ rm",
		"\u2066a\u2069\u00ad\ufeff": "⟨U+2066⟩a⟨U+2069⟩⟨U+00AD⟩⟨U+FEFF⟩",
		"\U0001d159\U00013441":      "⟨U+1D159⟩⟨U+13441⟩",
	} {
		got, hidden := plaintext.Reveal(text)
		if got != want || hidden != strings.Contains(got, "⟨") {
			t.Errorf("Reveal(%q) = %q, %t; want %q", text, got, hidden, want)
		}
	}
	if got := plaintext.RevealLine("a\nb\u2029"); got != "a⟨U+000A⟩b⟨U+2029⟩" {
		t.Errorf("in a line: %q", got)
	}
	for _, c := range []struct {
		text  string
		width int
		want  string
		left  int
	}{
		{"abcdef", 6, "abcdef", 0},
		{"abcdef", 5, "abcde", 1},
		{"ab\ncd", 9, "ab", 3}, // a number is not cut
		{"ab\ncd", 10, "ab⟨U+000A⟩", 2},
		{"ab cd", 3, "ab ", 2},
		{"漢字", 1, "漢", 3},
		{"", 0, "", 0},
	} {
		if got, left := plaintext.RevealHead(c.text, c.width); got != c.want || left != c.left {
			t.Errorf("of %q in %d: %q, %d bytes left; want %q, %d", c.text, c.width, got, left, c.want, c.left)
		}
	}
}

func TestRevealDiff(t *testing.T) {
	diff := "@@ -3 +3 @@ x \u202e\n      3\tok\n-     4\t\tx\x1b \n+     4\t+     5\ty\n      \t[and 2 more lines]\n"
	want := "@@ -3 +3 @@ x ⟨U+202E⟩\n      3 ok\n-     4 ⇥   x⟨U+001B⟩⟨U+0020⟩\n+     4 +     5⇥   y\n       [and 2 " +
		"more lines]"
	if got, hidden := plaintext.RevealDiff(diff); got != want || !hidden {
		t.Errorf("got %q, %t, want %q", got, hidden, want)
	}
}

var number = regexp.MustCompile(`⟨(?:U\+)?[0-9A-F]+⟩`)

// unrevealed is the one text that is shown so.
func unrevealed(shown string) string {
	text := number.ReplaceAllStringFunc(strings.ReplaceAll(shown, "⇥   ", "\t"), func(n string) string {
		n = strings.Trim(n, "⟨⟩")
		code, is := strings.CutPrefix(n, "U+")
		v, err := strconv.ParseUint(code, 16, 32)
		if err != nil {
			return "no number: " + n
		}
		if !is {
			return string([]byte{byte(v)})
		}
		return string(rune(v))
	})
	return text
}

// FuzzReveal: of what is shown the text can be told, so that two that differ never
// look the same; no character of it is one that cannot be seen.
func FuzzReveal(f *testing.F) {
	for _, text := range []string{
		"a\x1b[0m\u202e\u2028\xff", "⟨U+202E⟩", "⟨FF⟩\xff", "⇥   \t\t", "a \n \n", "e\u0301\u0301\u0301", "\n", " ",
		"\xf4\x8f\xbf\xbf", "\xed\xa0\x80", "\ufffd",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, hidden := plaintext.Reveal(text)
		line := plaintext.RevealLine(text)
		for _, shown := range []string{got, line} {
			if back := unrevealed(shown); back != text {
				t.Errorf("%q is shown as %q, which is %q", text, shown, back)
			}
			if i := strings.IndexFunc(shown, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q has %q", shown, shown[i:])
			}
			if plaintext.Clean(shown) != shown {
				t.Errorf("%q is not plain", shown)
			}
		}
		if hidden != strings.Contains(got, "⟨") {
			t.Errorf("hidden %t of %q as %q", hidden, text, got)
		}
		if strings.Contains(line, "\n") || strings.Contains(strings.ReplaceAll(got, "⇥   ", "⇥"), " \n") ||
			strings.HasSuffix(got, "\n") || strings.Count(got, "\n") > strings.Count(text, "\n") {
			t.Errorf("lines of %q: %q and %q", text, got, line)
		}
		for width := range 12 {
			head, left := plaintext.RevealHead(text, width)
			if utf8.RuneCountInString(head) > width || !strings.HasPrefix(line, head) || left != 0 &&
				unrevealed(head) != text[:len(text)-left] || left == 0 && head != line {
				t.Errorf("of %q in %d: %q, %d left", text, width, head, left)
			}
		}
	})
}

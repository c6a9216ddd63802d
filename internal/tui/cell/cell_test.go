package cell

import (
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

func TestSanitize(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"plain", "a line\nand one more", "a line\nand one more"},
		{"colours", "\x1b[31;1mred\x1b[0m", "red"},
		{"8-bit colours", "\u009b31mred\u009b0m", "red"},
		{"title", "a\x1b]0;owned\x07b", "ab"},
		{"link", "\x1b]8;;http://example.org\x1b\\here\x1b]8;;\x1b\\", "here"},
		{"title without end", "a\x1b]0;owned\nthe next line", "a\nthe next line"},
		{"device control", "a\x1bPq#0\x1b\\b", "ab"},
		{"charset", "a\x1b(0b", "ab"},
		{"full reset", "a\x1bcb", "ab"},
		{"escape at the end", "a\x1b", "a"},
		{"cursor without end", "a\x1b[1;2", "a"},
		{"bell, backspace, delete", "a\x07b\x08c\x7fd", "abcd"},
		{"progress", "10 %\r50 %\r100 %\ndone", "100 %\ndone"},
		{"line ends of Windows", "a\r\nb\r\n", "a\nb\n"},
		{"tabs", "a\tb\n\tc", "a   b\n    c"},
		{"reordering", "user\u202etxt.exe\u2066", "usertxt.exe"},
		{"separators", "a\u2028b\u2029c", "a\nb\nc"},
		{"tag characters", "a\U000e0041\U000e0042b", "ab"},
		{"invalid UTF-8", "a\xff\xfeb", "a\ufffdb"},
		{"wide", "日本語 ok", "日本語 ok"},
		{"joined emoji", "👩‍👩‍👧 ok", "👩‍👩‍👧 ok"},
	} {
		if got := Sanitize(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSanitizeLeavesNoControl(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string {
			return string(b)
		})).Draw(t, "text")
		got := Sanitize(text)
		for _, r := range got {
			if r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Fatalf("%q: %U is left in %q", text, r, got)
			}
		}
		if again := Sanitize(got); again != got {
			t.Fatalf("a second time makes %q of %q", again, got)
		}
	})
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"  two\n\n lines\t ", 100, "two lines"},
		{"abcdef", 3, "abc…"},
		{"aé", 2, "a…"},
		{"abc", 3, "abc"},
		{"", 3, ""},
	} {
		if got := Line(c.text, c.limit); got != c.want {
			t.Errorf("Line(%q, %d): got %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		right string
		left  string
	}{
		{"hello", 5, "hello", "hello"},
		{"hello", 4, "hel…", "…llo"},
		{"hello", 1, "…", "…"},
		{"hello", 0, "", ""},
		{"日本語", 5, "日本…", "…本語"},
		{"日本語", 4, "日…", "…語"},
		{"日本語", 2, "…", "…"},
	} {
		if got := Truncate(c.text, c.width); got != c.right {
			t.Errorf("Truncate(%q, %d): got %q, want %q", c.text, c.width, got, c.right)
		}
		if got := TruncateLeft(c.text, c.width); got != c.left {
			t.Errorf("TruncateLeft(%q, %d): got %q, want %q", c.text, c.width, got, c.left)
		}
	}
}

// words are texts as they come: narrow, wide, joined, combined, styled.
func words() *rapid.Generator[string] {
	word := rapid.SampledFrom([]string{
		"a", "word", "日本語", "é", "👩‍👩‍👧", " ", "  ", "-", "longer-than-the-line",
		"\x1b[31mred\x1b[0m", "🇩🇪", "❤️", "─", "│", "\u0301", "\x1b[1;38;2;1;2;3m", "\x1b[m", "…",
	})
	return rapid.Map(rapid.SliceOfN(word, 0, 12), func(w []string) string { return strings.Join(w, "") })
}

// The short way to a width must come to the same as the long one.
func TestWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := words().Draw(t, "text") + rapid.SampledFrom([]string{"", "\x1b[", "\x1b[2", "\x1b[?m", "\xe2\x94"}).Draw(t,
			"end")
		if got, want := Width(text), ansi.StringWidth(text); got != want {
			t.Fatalf("%q: got %d, want %d", text, got, want)
		}
	})
	for r := rune(0x24ff); r <= 0x2541; r++ {
		if got, want := Width(string(r)), ansi.StringWidth(string(r)); got != want {
			t.Errorf("%U: got %d, want %d", r, got, want)
		}
	}
}

func TestWidthsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, width := words().Draw(t, "text"), rapid.IntRange(0, 20).Draw(t, "width")
		if got := Fit(text, width); Width(got) != width {
			t.Fatalf("Fit(%q, %d) is %d wide: %q", text, width, Width(got), got)
		}
		for name, got := range map[string]string{
			"Truncate":     Truncate(text, width),
			"TruncateLeft": TruncateLeft(text, width),
		} {
			if Width(got) > width {
				t.Fatalf("%s(%q, %d) is %d wide: %q", name, text, width, Width(got), got)
			}
		}
		for _, line := range Wrap(text, width) {
			if Width(line) > width {
				t.Fatalf("Wrap(%q, %d) has a line %d wide: %q", text, width, Width(line), line)
			}
		}
		block := strings.Split(Block([]string{text, text, text}, width, 2), "\n")
		if len(block) != 2 || Width(block[0]) != width || Width(block[1]) != width {
			t.Fatalf("Block: got %q, want 2 lines of %d", block, width)
		}
	})
}

func TestWrapKeepsWordsAndStyles(t *testing.T) {
	got := Wrap("one two \x1b[1mthree four\x1b[0m", 9)
	want := []string{"one two ", "\x1b[1mthree\x1b[m", "\x1b[1mfour\x1b[0m"}
	for i := range got {
		got[i] = strings.TrimRight(got[i], " ")
	}
	for i := range want {
		want[i] = strings.TrimRight(want[i], " ")
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func BenchmarkSanitize(b *testing.B) {
	for name, text := range map[string]string{
		"ascii":    strings.Repeat("a line of plain text, as most are\n", 1000),
		"wide":     strings.Repeat("日本語の行 and some more text – here\n", 1000),
		"coloured": strings.Repeat("\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m\tx\n", 1000),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Sanitize(text)
			}
		})
	}
}

func BenchmarkWrap(b *testing.B) {
	for name, text := range map[string]string{
		"ascii": strings.Repeat("words of a plain text, as most are ", 1000),
		"wide":  strings.Repeat("日本語の行 and some more text – here ", 1000),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Wrap(text, 80)
			}
		})
	}
}

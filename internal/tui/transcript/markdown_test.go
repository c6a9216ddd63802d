package transcript

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// Whatever Markdown makes of a text, no word of it may be missing.
func TestMarkdownLosesNoWord(t *testing.T) {
	for _, text := range []string{
		"    word", "a\n\n    word", "-     word", "- a\n\n        word", ">      word", "[1]: https://word.example",
		"read [this][1]\n\n[1]: /word", "[^1]: word", "<word>", "- [ ] word", "\tword",
	} {
		if got := drawn(text); !strings.Contains(got, "word") {
			t.Errorf("%q is drawn as %q", text, got)
		}
	}
	pieces := []string{
		"- ", "-     ", "1. ", "10) ", "* ", "> ", ">      ", "    ", "\t", " ", "\n", "\n", "\n\n", "```\n", "~~~\n", "# ",
		"---\n", "===\n", "**", "*", "_", "`", "~~", "[", "](", ")", "](https://x.example) ", "<b>", "&amp;", "\\",
		"- [x] ", "[^1]: ", "[a]: ", "![", "世界 ", "www.x.example ", ":smile: ",
	}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var text strings.Builder
		words := 0
		for range 2 + r.IntN(12) {
			text.WriteString(pieces[r.IntN(len(pieces))])
			if r.IntN(3) == 0 {
				fmt.Fprintf(&text, "w%dx", words)
				words++
			}
		}
		for i := range words {
			if got, want := drawn(text.String()), fmt.Sprintf("w%dx", i); !strings.Contains(got, want) {
				t.Fatalf("seed %d: %q is drawn as %q, without %s", seed, text.String(), got, want)
			}
		}
	}
}

// The blocks of a list's item stand below each other beside its mark.
func TestBlocksOfAListItem(t *testing.T) {
	for text, want := range map[string]string{
		"1. **Install**\n\n   Run it.\n\n   ```sh\n   make install\n   ```\n\n2. Done": "1. Install\n\n   Run it.\n\n     " +
			"make install\n\n2. Done",
		"- a\n\n  second\n\n  third":                        "• a\n\n  second\n\n  third",
		"- a\n  b\n- c":                                     "• a\n  b\n• c",
		"- a\n  - b\n    1. c\n  - d\n- e":                  "• a\n  • b\n    1. c\n  • d\n• e",
		"- [ ] to do\n- [x] done":                           "[ ] to do\n[✓] done",
		"- ```\n  code\n  ```\n\npara\n\n    code\n\nlast":  "•   code\n\npara\n\n  code\n\nlast",
		"Run this:\n\n    make build\n\nThen look.":         "Run this:\n\n  make build\n\nThen look.",
		"2. **Configure**\n\n       code = true\n\n   End.": "2. Configure\n\n     code = true\n\n   End.",
	} {
		var lines []string
		for line := range strings.SplitSeq(strings.TrimRight(drawn(text), "\n "), "\n") {
			lines = append(lines, strings.TrimPrefix(line, "  ")) // the margin of a message
		}
		if got := strings.TrimLeft(strings.Join(lines, "\n"), "\n"); got != want {
			t.Errorf("%q is drawn as\n%s\nwant\n%s", text, got, want)
		}
	}
}

func drawn(text string) string {
	tr := New(Look{Width: 200, Dark: true, Color: true})
	apply(tr, said("1", "assistant", text)...)
	return ansi.Strip(strings.Join(tr.View(100), "\n"))
}

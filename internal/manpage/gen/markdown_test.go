package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/manpage"
	"noused/internal/manpage/manpagetest"
)

func page(t *testing.T, name string, markdown string) string {
	t.Helper()
	text, err := convert([]byte(markdown), manpage.Title{
		Name: name, Section: 7, Summary: "what it is", Date: "2026-11-22",
		Source: "noused v0.1.0",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".7")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return manpagetest.Show(t, file)
}

func TestMarkdownAsManShowsIt(t *testing.T) {
	got := page(t, "words", "# Words\n\nA *word* is **said** with `--loud`, or\n.not; see [tools](tools.md#x), "+
		"[here](#here), [MCP](mcp.md) and <https://example.org>.\n\n"+
		"## The first\n\n- one\n- two,\n  ```sh\n  nous '\\n' | cat\n  ```\n\n1. once\n2. twice\n\n### More\n\n"+
		"| a | b |\n|---|---|\n| `x\\|y` | first \\| second |\n| | goes on |\n\n| a | b | c |\n|---|---|---|\n| k | l | m "+
		"|\n\n> quoted\n")
	_, got, _ = strings.Cut(got, "DESCRIPTION\n")
	got, _, _ = strings.Cut(got, "SEE ALSO")
	want := `       A word is said with --loud, or .not; see tools, noused-tools(7), here,
       MCP (mcp.md) and https://example.org.

THE FIRST
       •  one

       •  two,

              nous '\n' | cat

       1.  once

       2.  twice

   More
       x|y    first | second

              goes on

       k      b: l
              c: m

           quoted

`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The pages of tools and of the protocol have all that their documents have.
func TestDocumentsArePages(t *testing.T) {
	for file, name := range pages {
		markdown, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.Join(strings.Fields(page(t, name, string(markdown))), " ")
		for line := range strings.Lines(string(markdown)) {
			if title, ok := strings.CutPrefix(line, "## "); ok &&
				!strings.Contains(shown, strings.ToUpper(strings.TrimSpace(strings.ReplaceAll(title, "`", "")))) {
				t.Errorf("%s: the page has no section %q", file, title)
			}
		}
		if len(shown) < len(markdown)*3/4 {
			t.Errorf("%s: the page has %d characters, the document %d", file, len(shown), len(markdown))
		}
	}
}

func TestWhatHasNoFormIsRefused(t *testing.T) {
	if _, err := convert([]byte("a <b>word</b>\n"), manpage.Title{Name: "x", Section: 7}); err == nil {
		t.Error("HTML in a text was left out without a word")
	}
}

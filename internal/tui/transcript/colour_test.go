package transcript

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"noused/internal/protocol"
)

// edited is what edit answers: a diff with numbers.
const edited = "edited a.go, 1 place\n@@ -1,3 +1,3 @@\n      1\t/* a comment\n-     2\tfunc is in it */\n+     " +
	"2\tends */ func f() string { return `x`\n      3\t}"

func diffOf(path string, look Look) []string {
	tr := fresh(look)
	c := call("k", "edit", `{"path":"`+path+`","old_text":"x","new_text":"y"}`)
	apply(tr, said("m1", "assistant", "", c)...)
	apply(tr, begun(c), protocol.ToolEnd{Ref: here, ToolCallID: "k", ToolName: "edit", OK: true, Result: edited})
	return all(tr)
}

// A diff has the header and the numbers of the tool, its own colours where lines
// were taken out, and else those of the language, of which a comment over two
// lines is one.
func TestADiffHasTheColoursOfItsLanguage(t *testing.T) {
	want := strings.Split("  @@ -1,3 +1,3 @@|        1 /* a comment|  -     2 func is in it */|  +     2 ends */ func "+
		"f() string { return `x`|        3 }", "|")
	for _, look := range []Look{{Width: 80, Dark: true, Color: true}, {Width: 80, Color: true}, {Width: 80}} {
		for _, path := range []string{"src/a.go", "notes.txt", "a.unknown"} {
			lines := diffOf(path, look)
			lines = lines[len(lines)-len(want):]
			for i, line := range lines {
				if got := strings.TrimRight(strings.TrimPrefix(ansi.Strip(line), "  "), " "); got != want[i] {
					t.Errorf("%s, %+v: got %q, want %q", path, look, got, want[i])
				}
			}
			text := strings.Join(lines, "\n")
			if look.Color != strings.Contains(text, "\x1b[") {
				t.Errorf("%s, %+v: got %q", path, look, text)
			}
			if !look.Color {
				continue
			}
			removed, added := strings.Count(lines[2], "\x1b["), strings.Count(lines[3], "\x1b[")
			if removed != 5 || (added > 9) != (path == "src/a.go") {
				t.Errorf("%s, %+v: %d changes of colour in what was taken out, %d in what was added:\n%q", path, look, removed,
					added, text)
			}
		}
	}
}

// Code within a text has the theme's colour for it, and does not look like what
// failed.
func TestInlineCodeDoesNotLookLikeAnError(t *testing.T) {
	for _, dark := range []bool{true, false} {
		tr := fresh(Look{Width: 80, Dark: dark, Color: true})
		apply(tr, said("m1", "assistant", "see `main.go` there")...)
		if got := strings.Join(all(tr), ""); !strings.Contains(got, tr.theme.Code.Render("main.go")) {
			t.Errorf("dark %t: got %q", dark, got)
		}
	}
}

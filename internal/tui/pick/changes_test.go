package pick

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"noused/internal/protocol"
	"noused/internal/tui/theme"
)

// anyChanges are changes of any files, some of them with a diff, and comments.
func anyChanges(t *rapid.T, l Look) *Changes {
	text := func(name string) string { return nasty().Draw(t, name) }
	c := NewChanges(&Comments{}, l)
	var all protocol.Changes
	for i := range rapid.IntRange(0, 6).Draw(t, "files") {
		ext := rapid.SampledFrom([]string{"", ".go", ".md", ".html"}).Draw(t, "ext")
		all.Files = append(all.Files, protocol.ChangedFile{
			Path: fmt.Sprint(i, text("path"), ext), Status: protocol.ChangeModified,
			Binary: i == 2, LeftOut: i == 3, Shared: i == 4,
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "children") {
		all.Children = append(all.Children, protocol.ChangedChild{SessionID: "ses-1", Title: text("title"), Files: 2})
	}
	c.SetFiles(all)
	for _, f := range all.Files {
		diff := "@@ -1,2 +1,2 @@ " + oneLine(text("head")) + "\n " + oneLine(text("same")) + "\n-" + oneLine(text("was")) +
			"\n+" + oneLine(text("is")) + "\n"
		c.SetDiff(f.Path, diff, rapid.Bool().Draw(t, "cut"), "")
	}
	for range rapid.IntRange(0, 3).Draw(t, "comments") {
		c.Update(press("down"))
		c.Update(press("c"))
		c.Update(tea.PasteMsg{Content: text("comment")})
		c.Update(press("enter"))
	}
	return c
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

func anyRewind(t *rapid.T, l Look) *Rewind {
	text := func(name string) string { return nasty().Draw(t, name) }
	r := NewRewind(text("said"), l)
	var plan protocol.Rewound
	for range rapid.IntRange(0, 30).Draw(t, "files") {
		plan.Files = append(plan.Files, protocol.RewoundFile{Path: text("path"), Action: protocol.RewindChange})
	}
	for range rapid.IntRange(0, 30).Draw(t, "conflicts") {
		plan.Conflicts = append(plan.Conflicts, protocol.RewindConflict{Path: text("path"), Why: text("why")})
	}
	if rapid.Bool().Draw(t, "planned") {
		r.SetPlan(plan, rapid.SampledFrom([]string{"", text("problem")}).Draw(t, "problem"))
	}
	return r
}

const listDiff = `diff --git a/list.txt b/list.txt
index 1..2 100644
--- a/list.txt
+++ b/list.txt
@@ -1,3 +1,4 @@
 one
-two
+zwei
+--- not a head
 three
@@ -40 +41,2 @@ func last
-forty
+vierzig
+mehr
\ No newline at end of file
`

func TestAPatchIsReadLineByLine(t *testing.T) {
	lines, cut := parsePatch(listDiff)
	if cut {
		t.Error("it is cut")
	}
	want := []patchLine{
		{'@', 1, "@@ -1,3 +1,4 @@"},
		{' ', 1, "one"},
		{'-', 2, "two"},
		{'+', 2, "zwei"},
		{'+', 3, "--- not a head"},
		{' ', 4, "three"},
		{'@', 41, "@@ -40 +41,2 @@ func last"},
		{'-', 40, "forty"},
		{'+', 41, "vierzig"},
		{'+', 42, "mehr"},
		{'i', 0, "No newline at end of file"},
	}
	if diff := cmp.Diff(want, lines, cmp.AllowUnexported(patchLine{})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	for text, want := range map[string][]patchLine{
		"":                                 nil,
		"old mode 100644\nnew mode 100755": {{'i', 0, "old mode 100644"}, {'i', 0, "new mode 100755"}},
		"@@ -0,0 +1 @@\r\n+a\r\n":          {{'@', 1, "@@ -0,0 +1 @@"}, {'+', 1, "a"}},
		"@@ nonsense\n+a\n":                nil,
		"@@ -x +y @@\n+a\n-b\n":            {{'@', 0, "@@ -x +y @@"}, {'+', 0, "a"}, {'-', 0, "b"}},
	} {
		if got, _ := parsePatch(text); !cmp.Equal(want, got, cmp.AllowUnexported(patchLine{})) {
			t.Errorf("%q: got %+v", text, got)
		}
	}
	if lines, cut := parsePatch("@@ -0,0 +1,99999 @@\n" + strings.Repeat("+\n", maxPatchLines)); !cut ||
		len(lines) != maxPatchLines {
		t.Errorf("%d lines of a very long one, cut %t", len(lines), cut)
	}
}

// twoFiles are changes of three files, of which the first one is open.
func twoFiles(l Look, comments *Comments) *Changes {
	c := NewChanges(comments, l)
	c.SetFiles(protocol.Changes{Folder: "/src", Files: []protocol.ChangedFile{
		{Path: "list.txt", Status: protocol.ChangeModified, Added: 4, Removed: 2},
		{Path: "logo.png", Status: protocol.ChangeAdded, Binary: true},
		{
			Path: "sub/odd\\xff\x1b[31mname\n.go", OldPath: "sub/was.go", Status: protocol.ChangeRenamed,
			Added: 1, Shared: true,
		},
	}})
	answer(c)
	return c
}

// answer gives the diffs that are wanted.
func answer(c *Changes) (asked []string) {
	for {
		path, ok := c.NeedsDiff()
		if !ok {
			return asked
		}
		asked = append(asked, path)
		diff := listDiff
		if path != "list.txt" {
			diff = "@@ -1 +1,2 @@\n a\n+b\n"
		}
		c.SetDiff(path, diff, path != "list.txt", "")
	}
}

func TestChangesLook(t *testing.T) {
	comments := &Comments{}
	c := twoFiles(Look{}, comments)
	golden(t, c, "changes", 80, 24)
	keys(t, c, "n", "down", "down", "c")
	typed(t, c, "Why?")
	golden(t, c, "changes-writing", 80, 24)
	golden(t, c, "changes-writing", 40, 12)
	keys(t, c, "enter", "n", "n")
	answer(c)
	for _, size := range append(sizes, [2]int{40, 16}, [2]int{10, 3}) {
		golden(t, c, "changes-comment", size[0], size[1])
	}
	plain := twoFiles(Look{Plain: true}, comments)
	golden(t, plain, "changes-plain", 80, 24)
	golden(t, NewChanges(&Comments{}, Look{}), "changes-asked", 40, 8)
	none := NewChanges(&Comments{}, Look{})
	none.SetFiles(protocol.Changes{Missing: []protocol.MissingTurn{{RunID: "run-1", TurnID: "2", Why: "too slow"}}})
	golden(t, none, "changes-missing", 80, 8)
}

// Child sessions that have changed files stand below the files, each with the way to its changes.
func TestChildrenBelowTheChanges(t *testing.T) {
	children := []protocol.ChangedChild{
		{SessionID: "ses-1", Title: "fix the\x1b[31m list", Files: 12},
		{SessionID: "ses-2", Title: "write the manual of everything that there is, from its beginning to its end", Files: 1},
	}
	some := protocol.Changes{
		Files:    []protocol.ChangedFile{{Path: "own.txt", Status: protocol.ChangeAdded, Added: 1}},
		Children: children,
	}
	c := NewChanges(&Comments{}, Look{})
	c.SetFiles(some)
	answer(c)
	keys(t, c, "end", "c")
	if view := c.View(80, 24); !strings.Contains(view, "a comment is about a line, a hunk or a file") {
		t.Errorf("a comment on a child session:\n%s", view)
	}
	keys(t, c, "right", "n")
	keys(t, c, "end")
	golden(t, c, "changes-children", 80, 16)
	golden(t, c, "changes-children", 30, 8)
	chooses(t, c, "enter", Choice{Action: Choose, IDs: []string{"ses-2"}}, true)
	none := NewChanges(&Comments{}, Look{Plain: true})
	none.SetFiles(protocol.Changes{Children: children})
	keys(t, none, "down")
	golden(t, none, "changes-children-alone", 80, 8)
	chooses(t, none, "enter", Choice{Action: Choose, IDs: []string{"ses-1"}}, true)
}

// Wherever the cursor is, c writes a comment: on the line, at the head of a hunk on the first line in it that has
// changed, and else on the file.
func TestACommentCanBeWrittenAnywhere(t *testing.T) {
	for _, at := range []struct {
		down int
		want string
	}{
		{0, "list.txt\nWhy?"},
		{1, "list.txt:2 (removed)\n> -two\nWhy?"},
		{2, "list.txt:1\n>  one\nWhy?"},
		{7, "list.txt:40 (removed)\n> -forty\nWhy?"},
		{11, "list.txt\nWhy?"}, // no newline at its end
	} {
		comments := &Comments{}
		c := twoFiles(Look{}, comments)
		for range at.down {
			keys(t, c, "down")
		}
		keys(t, c, "c")
		typed(t, c, "Why?")
		keys(t, c, "enter")
		if got := comments.Text(""); !strings.HasSuffix(got, "\n\n"+at.want) {
			t.Errorf("%d lines down: got %q, want %q", at.down, got, at.want)
		}
		if view := c.View(80, 24); !strings.Contains(view, "Why?") || !strings.Contains(view, "s send 1 comment") {
			t.Errorf("%d lines down:\n%s", at.down, view)
		}
	}
}

// What was added and taken out is told apart on dark and on light terminals, and by marks alone.
func TestChangesHaveTheColoursOfTheTheme(t *testing.T) {
	for name, l := range looks {
		view := twoFiles(l, &Comments{}).View(80, 24)
		for _, want := range []string{
			theme.Band(l.Theme.AddedOn, l.Theme.Added.Render("  2 +zwei"), 74),
			theme.Band(l.Theme.RemovedOn, l.Theme.Removed.Render("  2 -two"), 74),
			l.Theme.Accent.Render("@@ -1,3 +1,4 @@"),
		} {
			if !l.Plain && !strings.Contains(view, want) {
				t.Errorf("%s: no %q in %q", name, want, view)
			}
		}
	}
}

// Code has the colours of its language, of which a comment over two lines is one; what was taken
// out has none of them, nor has anything without colours.
func TestChangesHaveTheColoursOfTheirLanguage(t *testing.T) {
	diff := "@@ -1,2 +1,2 @@\n /* a comment\n-func is in it */\n+return ends */ func f()\n" +
		"@@ -9,0 +10 @@ f\n+func g()\n"
	for name, l := range looks {
		c := NewChanges(&Comments{}, l)
		c.SetFiles(protocol.Changes{Files: []protocol.ChangedFile{{Path: "src/a.go"}, {Path: "a.txt"}}})
		c.SetDiff("src/a.go", diff, false, "")
		view := c.View(80, 24)
		if l.Syntax == nil {
			if want := "  1  /* a comment"; !strings.Contains(ansi.Strip(view), want) || strings.Contains(view, "[38;2") {
				t.Errorf("%s: no %q without colours in %q", name, want, view)
			}
			continue
		}
		added := func(head string, code ...string) string {
			return theme.Band(l.Theme.AddedOn, l.Theme.Added.Render(head)+strings.Join(code, ""), 74)
		}
		for _, want := range []string{
			"  1  " + l.Syntax.Comment.Render("/* a comment"),
			theme.Band(l.Theme.RemovedOn, l.Theme.Removed.Render("  2 -func is in it */"), 74),
			added("  2 +", l.Syntax.Comment.Render("return ends */"), " ", l.Syntax.Keyword.Render("func"), " ",
				l.Syntax.Function.Render("f"), "()"),
			added(" 10 +", l.Syntax.Keyword.Render("func"), " ", l.Syntax.Function.Render("g"), "()"),
		} {
			if !strings.Contains(view, want) {
				t.Errorf("%s: no %q in %q", name, want, view)
			}
		}
	}
}

// A frame costs no more than a key takes, whatever is in a hunk; a very long one has no colours.
func BenchmarkChangesOfALongHunk(b *testing.B) {
	for _, lines := range []int{1000, 6000, 40_000} {
		b.Run(fmt.Sprint(lines), func(b *testing.B) {
			c := NewChanges(&Comments{}, looks["dark"])
			c.SetFiles(protocol.Changes{Files: []protocol.ChangedFile{{Path: "a.go"}}})
			c.SetDiff("a.go", fmt.Sprintf("@@ -0,0 +1,%d @@\n", lines)+
				strings.Repeat("+\tx, y := 1+1, \"a\"\n", lines), false, "")
			c.Update(press("end"))
			for b.Loop() {
				c.View(120, 50)
			}
		})
	}
}

func TestHunksOpenTheFilesThatTheyAreIn(t *testing.T) {
	c := twoFiles(Look{}, &Comments{})
	at := func() string {
		r, _ := c.row()
		if r.kind != lineRow {
			return c.files[r.file].Path
		}
		return c.files[r.file].lines[r.line].text
	}
	var way []string
	for _, key := range []string{"n", "n", "n", "p", "p", "p"} {
		keys(t, c, key)
		answer(c)
		way = append(way, at())
	}
	want := []string{
		"@@ -1,3 +1,4 @@", "@@ -40 +41,2 @@ func last", "@@ -1 +1,2 @@", "@@ -40 +41,2 @@ func last", "@@ -1,3 +1,4 @@",
		"@@ -1,3 +1,4 @@",
	}
	if !slices.Equal(way, want) {
		t.Errorf("got %q", way)
	}
	keys(t, c, "left")
	if at() != "list.txt" || len(c.rows) != 7 {
		t.Errorf("folded: at %q of %d rows", at(), len(c.rows))
	}
}

func TestCommentsAreWrittenEditedRemovedAndSent(t *testing.T) {
	comments := &Comments{}
	c := twoFiles(Look{}, comments)
	chooses(t, c, "s", Choice{}, false) // there is none
	keys(t, c, "c")
	typed(t, c, "of the file")
	keys(t, c, "enter", "down", "down", "down", "c")
	typed(t, c, "Why?")
	keys(t, c, "esc") // which asks
	typed(t, c, "?")
	keys(t, c, "enter", "end")
	want := "Comments on the changes, with paths from /src:\n\nlist.txt\nof the file\n\nlist.txt:1\n> " +
		" one\nWhy??"
	if got := comments.Text("/src"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	chooses(t, c, "s", Choice{Action: Send}, false)
	chooses(t, c, "f", Choice{Action: Queue}, false)

	again := twoFiles(Look{}, comments) // as it is opened anew
	keys(t, again, "c", "ctrl+u")
	typed(t, again, "other")
	keys(t, again, "enter")
	if got := comments.Text(""); !strings.Contains(got, "list.txt\nother\n") || comments.Len() != 2 {
		t.Errorf("edited: %q", got)
	}
	keys(t, again, "down", "d", "up", "down", "d")
	if comments.Len() != 2 {
		t.Error("d alone removes")
	}
	keys(t, again, "d")
	if comments.Len() != 1 || strings.Contains(comments.Text(""), "other") {
		t.Errorf("removed: %q", comments.Text(""))
	}
}

// A diff whose numbers are nonsense takes comments all the same.
func TestCommentsOnANonsensicalDiff(t *testing.T) {
	comments := &Comments{}
	c := twoFiles(Look{}, comments)
	keys(t, c, "c")
	typed(t, c, "all of it")
	keys(t, c, "enter")
	c.SetDiff("list.txt", "@@ -0,0 +0,1 @@\n+a\n", false, "")
	keys(t, c, "down", "down", "down", "c")
	typed(t, c, "this")
	keys(t, c, "enter", "end")
	if view := c.View(80, 24); !strings.Contains(view, "all of it") || !strings.Contains(view, "this") {
		t.Errorf("got\n%s", view)
	}
}

// What is being written stays when the changes are left in the middle, and a second Esc is
// needed to throw it away.
func TestWhatIsBeingWrittenIsKept(t *testing.T) {
	comments := &Comments{}
	c := twoFiles(Look{}, comments)
	keys(t, c, "n", "down", "c")
	typed(t, c, "half a th")
	if comments.Len() != 1 || !strings.Contains(comments.Text(""), "half a th") {
		t.Errorf("got %q", comments.Text(""))
	}
	again := twoFiles(Look{}, comments)
	if view := again.View(80, 24); !strings.Contains(view, "half a th") {
		t.Errorf("it is gone:\n%s", view)
	}
	typed(t, again, "ought")
	keys(t, again, "esc")
	if comments.Len() != 1 {
		t.Error("one Esc throws it away")
	}
	keys(t, again, "esc")
	if comments.Len() != 0 {
		t.Errorf("got %q", comments.Text(""))
	}
}

// A comment follows its line, and is shown at its file where the line is gone.
func TestCommentsFollowTheirLines(t *testing.T) {
	comments := &Comments{}
	c := twoFiles(Look{}, comments)
	keys(t, c, "n", "down", "down", "down", "c")
	typed(t, c, "good")
	keys(t, c, "enter")
	c.SetDiff("list.txt", "@@ -7,1 +7,2 @@\n x\n+zwei\n", false, "")
	if got := comments.Text(""); !strings.Contains(got, "list.txt:8\n> +zwei\ngood") {
		t.Errorf("got %q", got)
	}
	c.SetDiff("list.txt", "@@ -7,1 +7,2 @@\n x\n+drei\n", false, "")
	if view := c.View(80, 24); !strings.Contains(view, `list.txt:8 "+zwei": good`) {
		t.Errorf("it is gone:\n%s", view)
	}
	c.SetFiles(protocol.Changes{})
	if view := c.View(80, 24); !strings.Contains(view, `list.txt:8 "+zwei": good`) {
		t.Errorf("it is gone with its file:\n%s", view)
	}
}

// Of a thousand files only the diffs that were opened are asked for, and no more are kept than
// there is room for.
// A line of a megabyte takes the screen at most, and one mark says that there is more of it.
func TestAVeryLongLineIsCut(t *testing.T) {
	for _, unit := range []string{"x", "日本 ", "a\tb "} {
		c := NewChanges(&Comments{}, Look{})
		c.SetFiles(protocol.Changes{Files: []protocol.ChangedFile{{Path: "min.js", Status: protocol.ChangeModified}}})
		c.SetDiff("min.js", "@@ -1 +1 @@\n-a\n+"+strings.Repeat(unit, 1<<20/len(unit))+"\n", false, "")
		keys(t, c, "n", "down", "down")
		lines := strings.Split(ansi.Strip(c.View(80, 24)), "\n")
		if len(lines) != 24 {
			t.Errorf("%q: %d lines", unit, len(lines))
		}
		for i, line := range lines {
			if got := ansi.StringWidth(line); got != 80 {
				t.Errorf("%q: line %d has %d cells: %s", unit, i, got, line)
			}
		}
		if got := strings.Count(strings.Join(lines, "\n"), "…"); got != 1 {
			t.Errorf("%q: %d marks:\n%s", unit, got, strings.Join(lines, "\n"))
		}
	}
}

func TestAThousandFilesAreBounded(t *testing.T) {
	c := NewChanges(&Comments{}, Look{})
	var all protocol.Changes
	for i := range 1000 {
		all.Files = append(all.Files, protocol.ChangedFile{Path: fmt.Sprintf("f%04d", i), Status: protocol.ChangeAdded})
	}
	c.SetFiles(all)
	if asked := answer(c); len(asked) != 1 {
		t.Errorf("asked for %v", asked)
	}
	long := "@@ -0,0 +1,1 @@\n+" + strings.Repeat("x", 1<<20) + "\n"
	for range 20 {
		keys(t, c, "n")
		for {
			path, ok := c.NeedsDiff()
			if !ok {
				break
			}
			c.SetDiff(path, long, false, "")
		}
	}
	size := 0
	for _, f := range c.files {
		size += f.size
	}
	if size > maxPatches || size < maxPatches/2 {
		t.Errorf("%d bytes are kept", size)
	}
	if view := c.View(80, 24); !strings.Contains(view, "xxxx") {
		t.Errorf("the last one is not shown:\n%s", view)
	}
}

func TestRewindLook(t *testing.T) {
	r := NewRewind("Translate it.", Look{})
	golden(t, r, "rewind-asked", 80, 24)
	r.SetPlan(protocol.Rewound{
		Files:     []protocol.RewoundFile{{Path: "a.txt", Action: "change"}, {Path: "new\x1b[2J.txt", Action: "remove"}},
		Conflicts: []protocol.RewindConflict{{Path: "b.txt", Why: "it has changed since"}},
	}, "")
	for _, size := range append(sizes, [2]int{40, 16}) {
		golden(t, r, "rewind", size[0], size[1])
	}
	r.SetChildren(2)
	golden(t, r, "rewind-children", 80, 24)
	golden(t, r, "rewind-children", 40, 16)
}

// With conflicts files are not taken back, unless each of them is marked.
func TestConflictsAreForcedOneByOne(t *testing.T) {
	r := NewRewind("hello", Look{})
	chooses(t, r, "enter", Choice{Action: Choose, IDs: []string{"conversation"}}, true)
	keys(t, r, "down", "enter") // the plan is not known
	r.SetPlan(protocol.Rewound{Conflicts: []protocol.RewindConflict{{Path: "a", Why: "x"}, {Path: "b", Why: "y"}}}, "")
	keys(t, r, "enter", "down", "down", "space", "up", "enter")
	if view := r.View(80, 24); !strings.Contains(view, "[x] a: x") || !strings.Contains(view, "nothing is done") {
		t.Errorf("got\n%s", view)
	}
	keys(t, r, "down", "down", "space", "up", "up")
	chooses(t, r, "enter", Choice{Action: Choose, IDs: []string{"both", "a", "b"}}, true)

	busy := NewRewind("hello", Look{})
	busy.SetPlan(protocol.Rewound{}, "command_rejected: busy: a run is active")
	keys(t, busy, "down", "enter")
	if view := busy.View(80, 24); !strings.Contains(view, "a run is active") {
		t.Errorf("got\n%s", view)
	}

	undo := NewUndo(protocol.Rewound{Conflicts: []protocol.RewindConflict{{Path: "a", Why: "x"}}}, Look{})
	keys(t, undo, "enter", "down", "enter", "up")
	chooses(t, undo, "enter", Choice{Action: Choose, IDs: []string{"undo", "a"}}, true)
}

// A comment is kept whole. A paste that does not fit is refused, and said so.
func TestAPasteIntoACommentIsTakenWholeOrRefused(t *testing.T) {
	comments := &Comments{}
	c := twoFiles(Look{}, comments)
	long := strings.Repeat("abc ", 750) + "end"
	c.Update(tea.KeyPressMsg{Code: 'c', Text: "c"})
	c.Update(tea.PasteMsg{Content: long})
	c.Update(tea.PasteMsg{Content: strings.Repeat("x", 64<<10)})
	if view := c.View(120, 40); !strings.Contains(view, "too long") {
		t.Errorf("the changes are\n%s", view)
	}
	c.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if got := comments.Text(""); !strings.HasSuffix(got, long) {
		t.Errorf("got the comment %q, want the %d bytes that were pasted", got, len(long))
	}
}

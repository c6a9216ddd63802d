package pick

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

func forked() protocol.Tree {
	return protocol.Tree{SessionID: "ses-1", LeafID: "h", Nodes: []protocol.Node{
		{ID: "a", Role: "user", Snippet: "Mend the parser"},
		{ID: "b", ParentID: "a", Role: "assistant", Snippet: "→ read_file"},
		{ID: "c", ParentID: "b", Role: "tool", Snippet: "package parser"},
		{ID: "d", ParentID: "c", Role: "assistant", Snippet: "It reads one byte too many."},
		{ID: "e", ParentID: "d", Role: "user", Snippet: "Then write a test"},
		{ID: "f", ParentID: "e", Role: "assistant", Snippet: "Here it is. \x1b[31mRed\x1b[0m\tas it should be."},
		{ID: "e2", ParentID: "d", Role: "user", Snippet: "Show me the line"},
		{ID: "f2", ParentID: "e2", Role: "assistant", Snippet: "It is line 12."},
		{ID: "g2", ParentID: "f2", Role: "user", Snippet: "日本語で"},
		{ID: "g3", ParentID: "f2", Role: "user", Snippet: "And the one above?"},
		{ID: "g", ParentID: "f", Role: "compaction", Snippet: "The parser was mended"},
		{ID: "h", ParentID: "g", Role: "user", Snippet: "Now the journal"},
		{ID: "i", ParentID: "c", Role: "user", Snippet: "Stop"},
	}}
}

// order are the nodes as the tree shows them, each indented by its depth.
func order(t *Tree) []string {
	var got []string
	for _, r := range t.rows {
		got = append(got, strings.Repeat(" ", r.depth)+t.nodes[r.node].id)
	}
	return got
}

func TestTreeViews(t *testing.T) {
	for _, size := range sizes {
		golden(t, NewTree("Tree", forked(), Look{}), "tree", size[0], size[1])
		golden(t, NewTree("Tree", forked(), Look{Plain: true}), "tree-plain", size[0], size[1])
		tools := NewTree("Tree", forked(), Look{})
		keys(t, tools, "t", "/", "t", "h", "e")
		golden(t, tools, "tree-filter", size[0], size[1])
	}
	golden(t, NewTree("Tree", forked(), Look{}), "tree", 10, 3)
	golden(t, NewTree("Tree", protocol.Tree{}, Look{}), "tree-empty", 30, 8)
}

// A line of Markdown is shown as people read it, in the tree and in the list of sessions.
func TestListsShowNoMarksOfMarkdown(t *testing.T) {
	tree := NewTree("tree", protocol.Tree{LeafID: "a", Nodes: []protocol.Node{
		{ID: "a", Role: "assistant", Snippet: "## **Done:** `go test` passes"},
	}}, Look{})
	items := Sessions([]protocol.SessionInfo{{SessionID: "ses-1", Title: "mend `it` **now**", Messages: 1}},
		[]protocol.SearchMatch{{SessionID: "ses-2", Title: "`x`", Snippet: "**found** here"}}, now, "")
	if got := tree.nodes[0].text; got != "Done: go test passes" {
		t.Errorf("the tree has %q", got)
	}
	if items[0].Title != "mend it now" || items[1].Title != "x" || !strings.HasPrefix(items[1].Search, "found here") {
		t.Errorf("the list has %+v", items)
	}
}

func TestTreeOrder(t *testing.T) {
	tree := NewTree("Tree", forked(), Look{})
	// Only what leads away from the leaf is indented; the tool's result is not
	// shown, and what follows it is as if it followed the call.
	want := []string{"a", "b", " i", "d", "  e2"[1:], " f2", "  g2", " g3", "e", "f", "g", "h"}
	if diff := cmp.Diff(want, order(tree)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	keys(t, tree, "t")
	want = []string{"a", "b", "c", " i", "d", " e2", " f2", "  g2", " g3", "e", "f", "g", "h"}
	if diff := cmp.Diff(want, order(tree)); diff != "" {
		t.Errorf("with tool results (-want +got):\n%s", diff)
	}
	if tree.selected() != "h" {
		t.Errorf("the cursor went from the leaf to %s", tree.selected())
	}
	typed(t, tree, "/test")
	keys(t, tree, "enter")
	if diff := cmp.Diff([]string{"e"}, order(tree)); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
}

func TestTreeKeys(t *testing.T) {
	at := func(ids ...string) Choice { return Choice{Action: Choose, IDs: ids} }
	tree := NewTree("Tree", forked(), Look{})
	tree.View(80, 24)
	chooses(t, tree, "enter", at("h"), true) // begins at the leaf
	chooses(t, tree, "b", Choice{Action: Branch, IDs: []string{"h"}}, true)
	keys(t, tree, "up", "k")
	chooses(t, tree, "enter", at("f"), true)
	keys(t, tree, "home")
	chooses(t, tree, "enter", at("a"), true)
	keys(t, tree, "up", "down", "j")
	chooses(t, tree, "enter", at("i"), true)
	keys(t, tree, "G")
	chooses(t, tree, "enter", at("h"), true)
	keys(t, tree, "pgup")
	chooses(t, tree, "enter", at("a"), true)

	keys(t, tree, "/", "b", "y", "t") // all of it goes into the filter
	if got := tree.filter.text; got != "byt" {
		t.Fatalf("filter: got %q, want byt", got)
	}
	keys(t, tree, "enter")
	chooses(t, tree, "enter", at("d"), true)
	keys(t, tree, "esc") // takes the filter away first
	chooses(t, tree, "enter", at("d"), true)
	chooses(t, tree, "esc", Choice{Action: Leave}, true)

	keys(t, tree, "/", "z", "z", "esc")
	if tree.filtering || len(tree.rows) != 12 {
		t.Errorf("after Esc there are %d rows, want 12", len(tree.rows))
	}
	keys(t, tree, "/", "z", "z", "enter", "enter", "b") // nothing is there to choose
	chooses(t, tree, "ctrl+c", Choice{Action: Leave}, true)
}

func TestTreeGrows(t *testing.T) {
	tree := NewTree("Tree", forked(), Look{})
	keys(t, tree, "up")
	grown := forked()
	grown.Nodes = append(grown.Nodes, protocol.Node{ID: "j", ParentID: "h", Role: "tool", Snippet: "result"})
	grown.LeafID = "j"
	tree.SetTree(grown)
	if tree.selected() != "g" {
		t.Errorf("the cursor is at %s, want g", tree.selected())
	}
	if got := order(tree); got[len(got)-1] != "j" {
		t.Errorf("the leaf, a tool's result, is not shown: %v", got)
	}
}

// Parents that are not there, come later, or go in a circle: all is shown once.
func TestTreeOfBadParents(t *testing.T) {
	tree := NewTree("Tree", protocol.Tree{LeafID: "nowhere", Nodes: []protocol.Node{
		{ID: "a", ParentID: "b", Role: "user"},
		{ID: "b", ParentID: "a", Role: "user"},
		{ID: "c", ParentID: "c", Role: "user"},
		{ID: "d", ParentID: "gone", Role: "user"},
	}}, Look{})
	if diff := cmp.Diff([]string{" c", "a", "b", "d"}, sortedRows(order(tree))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// sortedRows puts the rows of other roots, which are indented, first.
func sortedRows(rows []string) []string {
	var first, rest []string
	for _, r := range rows {
		if strings.TrimSpace(r) == "c" {
			first = append(first, r)
		} else {
			rest = append(rest, strings.TrimSpace(r))
		}
	}
	return append(first, rest...)
}

// deep is a tree in which every node of the spine has a branch that is newer
// than the way to the leaf, so that the spine is n branches deep.
func deep(n int) protocol.Tree {
	tree := protocol.Tree{}
	parent := ""
	for i := range n {
		id := fmt.Sprintf("n%d", i)
		tree.Nodes = append(tree.Nodes, protocol.Node{ID: id, ParentID: parent, Role: "user", Snippet: "Question " + id})
		parent = id
	}
	for i := range n {
		tree.Nodes = append(tree.Nodes, protocol.Node{
			ID: fmt.Sprintf("x%d", i), ParentID: fmt.Sprintf("n%d", i),
			Role: "user", Snippet: "Aside",
		})
	}
	return tree
}

func TestTreeOfDeepForks(t *testing.T) {
	tree := NewTree("Tree", deep(5000), Look{})
	if len(tree.rows) != 10_000 {
		t.Fatalf("%d rows, want 10000", len(tree.rows))
	}
	// Wherever the cursor is, the text under it can be read.
	for _, where := range []int{0, 100, 2500, 4999} {
		tree.list.cursor = where
		n := tree.nodes[tree.rows[where].node]
		if view := cell.Sanitize(tree.View(60, 12)); !strings.Contains(view, "› "+n.text) {
			t.Errorf("%q is not to be read in\n%s", n.text, view)
		}
	}
}

func TestTreeOfALongChain(t *testing.T) {
	tree := protocol.Tree{LeafID: "n9999"}
	for i := range 10_000 {
		tree.Nodes = append(tree.Nodes, protocol.Node{
			ID: fmt.Sprintf("n%d", i), ParentID: fmt.Sprintf("n%d", i-1),
			Role: "assistant", Snippet: "said",
		})
	}
	overlay := NewTree("Tree", tree, Look{})
	if r := overlay.rows[9999]; r.depth != 0 || overlay.selected() != "n9999" {
		t.Errorf("the last of the chain is %d deep and the cursor at %s, want 0 and the leaf", r.depth, overlay.selected())
	}
}

func BenchmarkTree10000(b *testing.B) {
	tree := deep(5000)
	b.Run("NewTree", func(b *testing.B) {
		for b.Loop() {
			NewTree("Tree", tree, Look{})
		}
	})
	overlay := NewTree("Tree", tree, Look{})
	overlay.Update(press("/"))
	b.Run("filter", func(b *testing.B) {
		for b.Loop() {
			overlay.Update(press("q"))
			overlay.Update(press("backspace"))
		}
	})
	b.Run("View", func(b *testing.B) {
		for b.Loop() {
			overlay.Update(press("down"))
			overlay.View(200, 60)
		}
	})
}

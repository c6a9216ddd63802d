package plain

import (
	_ "embed"
	"fmt"

	"noused/internal/format"
	"noused/internal/protocol"
)

func Usage(u *protocol.Usage) string {
	text := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
	if u.CachedTokens > 0 {
		text += fmt.Sprintf(", %d cached", u.CachedTokens)
	}
	return text
}

// Tips lists the entries that nothing follows.
func Tips(tree protocol.Tree) (tips []string) {
	parents := make(map[string]bool, len(tree.Nodes))
	for _, n := range tree.Nodes {
		parents[n.ParentID] = true
	}
	for _, n := range tree.Nodes {
		if !parents[n.ID] {
			tips = append(tips, n.ID)
		}
	}
	return tips
}

// Cost is what was used, and what it cost where prices are known.
func Cost(u protocol.Usage) string {
	text := Usage(&u)
	if u.Cost != nil {
		text += fmt.Sprintf(", %.4f %s", u.Cost.Amount, u.Cost.Currency)
	}
	return text
}

// ShortResult is how many lines of a tool's result a transcript shows.
const ShortResult = 5

// Image is an image in one line: "image shot.png, image/png, 120 KiB".
func Image(a protocol.Attachment) string {
	text := "image"
	if name := OneLine(a.Name, LineWidth); name != "" {
		text += " " + name
	}
	return text + ", " + Cell(a.MediaType) + ", " + format.Size(a.Size)
}

// TreeRow is an entry of a session's tree as it is listed.
type TreeRow struct {
	ID, Role, Snippet string
	Depth             int
	Leaf              bool
}

// TreeRows lists a tree from its roots to its tips, a branch after the other. It
// is indented where the tree branches, not at every entry: a long conversation
// without branches stays one column.
func TreeRows(r protocol.Tree) []TreeRow {
	known := make(map[string]bool, len(r.Nodes))
	children := make(map[string][]protocol.Node)
	for _, n := range r.Nodes { // a parent comes before its children: a daemon can send no circle
		if n.ID == "" || known[n.ID] {
			continue
		}
		parent := n.ParentID
		if !known[parent] {
			parent = ""
		}
		known[n.ID] = true
		children[parent] = append(children[parent], n)
	}
	type visit struct {
		node  protocol.Node
		depth int
	}
	var stack []visit
	push := func(parent string, depth int) {
		kids := children[parent]
		if parent != "" && len(kids) > 1 {
			depth++
		}
		for i := len(kids) - 1; i >= 0; i-- {
			stack = append(stack, visit{kids[i], depth})
		}
	}
	push("", 0)
	var rows []TreeRow
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		rows = append(rows, TreeRow{v.node.ID, v.node.Role, v.node.Snippet, v.depth, v.node.ID == r.LeafID})
		push(v.node.ID, v.depth)
	}
	return rows
}

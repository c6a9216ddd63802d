package main

import "noused/internal/protocol"

// treeRow is an entry of a session's tree as it is listed.
type treeRow struct {
	ID, Role, Snippet string
	Depth             int
	Leaf              bool
}

// treeRows lists a tree from its roots to its tips, a branch after the other. It
// is indented where the tree branches, not at every entry: a long conversation
// without branches stays one column.
func treeRows(r protocol.Tree) []treeRow {
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
	var rows []treeRow
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		rows = append(rows, treeRow{v.node.ID, v.node.Role, v.node.Snippet, v.depth, v.node.ID == r.LeafID})
		push(v.node.ID, v.depth)
	}
	return rows
}

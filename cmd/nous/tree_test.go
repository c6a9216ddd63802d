package main

import (
	"testing"

	"noused/internal/protocol"
)

// What a daemon sends as a tree may be a circle, or have one entry twice: each is listed
// once, or not at all.
func TestATreeThatIsNoneEnds(t *testing.T) {
	nodes := []protocol.Node{{ID: ""}, {ID: "a", ParentID: "b"}, {ID: "b", ParentID: "a"}, {ID: "c", ParentID: "c"}}
	for range 64 {
		nodes = append(nodes, protocol.Node{ID: "b", ParentID: "b"}, protocol.Node{ID: "c", ParentID: "b"})
	}
	if rows := treeRows(protocol.Tree{Nodes: nodes}); len(rows) != 3 {
		t.Errorf("got %d rows, want a, b and c", len(rows))
	}
}

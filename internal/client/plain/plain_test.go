package plain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

func TestOneLine(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		width    int
	}{
		{"a\n  b\tc", "a b c", 10},
		{"abcdef", "abcdef", 6},
		{"abcdefg", "abcde…", 6},
		{strings.Repeat("ä", 1000), "ää…", 3},
		{"", "", 3},
	} {
		if got := OneLine(tc.in, tc.width); got != tc.want {
			t.Errorf("%.20q in %d: got %q, want %q", tc.in, tc.width, got, tc.want)
		}
	}
}

func TestTableAlignsByRunes(t *testing.T) {
	got := Table([][]string{{"a", "long cell", "x"}, {"ää", "b", "y"}, {"", "c", ""}})
	want := []string{"a   long cell  x", "ää  b          y", "    c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// What a daemon sends as a tree may be a circle, or have one entry twice: each is listed
// once, or not at all.
func TestATreeThatIsNoneEnds(t *testing.T) {
	nodes := []protocol.Node{{ID: ""}, {ID: "a", ParentID: "b"}, {ID: "b", ParentID: "a"}, {ID: "c", ParentID: "c"}}
	for range 64 {
		nodes = append(nodes, protocol.Node{ID: "b", ParentID: "b"}, protocol.Node{ID: "c", ParentID: "b"})
	}
	if rows := TreeRows(protocol.Tree{Nodes: nodes}); len(rows) != 3 {
		t.Errorf("got %d rows, want a, b and c", len(rows))
	}
}

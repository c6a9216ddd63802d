package pick

import (
	"slices"
	"strings"

	"noused/internal/protocol"
)

// unfolded is how many children a parent has at most that are listed without a filter.
const unfolded = 5

// kin is a session in a list of trees.
type kin struct {
	protocol.SessionInfo
	lines  string // of the tree, before the title
	below  int    // sessions below it
	folded bool
}

// kinOf orders sessions so that children stand below their parents, without the blank ones. A tree stands
// where its root does, or where the first session of it that asks does.
func kinOf(list []protocol.SessionInfo) []kin {
	f := forest{byID: map[string]*protocol.SessionInfo{}, below: map[string][]*protocol.SessionInfo{}}
	for i := range list {
		if s := &list[i]; !s.Blank() && f.byID[s.SessionID] == nil {
			f.byID[s.SessionID] = s
			f.order = append(f.order, s)
		}
	}
	for _, s := range f.order {
		if up := f.above(s); up != nil {
			f.below[up.SessionID] = append(f.below[up.SessionID], s)
		}
	}
	grown := map[string]bool{}
	for _, s := range f.order {
		root := f.root(s)
		if (root == s || s.Need() == protocol.NeedAnswer) && !grown[root.SessionID] {
			grown[root.SessionID] = true
			f.grow(root, "", "", false)
		}
	}
	return f.out
}

type forest struct {
	order []*protocol.SessionInfo
	byID  map[string]*protocol.SessionInfo
	below map[string][]*protocol.SessionInfo
	out   []kin
}

// above is a session's parent, nil where it has none that is listed.
func (f *forest) above(s *protocol.SessionInfo) *protocol.SessionInfo {
	if s.Parent == nil || s.Parent.SessionID >= s.SessionID { // ids are in the order of their times: no circle
		return nil
	}
	return f.byID[s.Parent.SessionID]
}

func (f *forest) root(s *protocol.SessionInfo) *protocol.SessionInfo {
	for up := f.above(s); up != nil; up = f.above(s) {
		s = up
	}
	return s
}

// grow adds a session and those below it.
func (f *forest) grow(s *protocol.SessionInfo, own, lines string, folded bool) {
	at := len(f.out)
	f.out = append(f.out, kin{SessionInfo: *s, lines: own, folded: folded})
	kids := f.below[s.SessionID]
	slices.SortFunc(kids, func(x, y *protocol.SessionInfo) int { return strings.Compare(x.SessionID, y.SessionID) })
	hides := func(kid *protocol.SessionInfo) bool {
		return kid.Need() != protocol.NeedAnswer && (folded || len(kids) > unfolded)
	}
	last := ""
	for _, kid := range kids {
		if !hides(kid) {
			last = kid.SessionID
		}
	}
	for _, kid := range kids {
		mark, next := "├ ", "│ "
		if last == "" || kid.SessionID == last {
			mark, next = "└ ", "  "
		}
		f.grow(kid, lines+mark, lines+next, hides(kid))
	}
	f.out[at].below = len(f.out) - at - 1
}

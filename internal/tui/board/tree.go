package board

import (
	"fmt"
	"slices"
	"strings"

	"noused/internal/format"
	"noused/internal/protocol"
)

// A child session stands below its parent, whatever it needs itself, and a tree stands where its root
// belongs: or with those that need somebody, where a session of it asks.

// unfolded is how many children a parent has at most that are shown unless the user folds them.
const unfolded = 5

// tree is where a row stands in one. The zero tree is that of a row without a parent or a child.
type tree struct {
	above  *row   // the parent, nil of a root
	kids   int    // that are on the board
	depth  int    // of roots 0
	at     int    // the place below the root
	asks   bool   // of a root: a session below it waits for a person
	lines  string // before the title
	folded string // what is not shown below it
}

// parent names the session that a row is a child of, "" is none.
func (r *row) parent() string {
	if r.info.Parent == nil {
		return ""
	}
	return r.info.Parent.SessionID
}

// related tells whether a row is of a tree with others.
func (r *row) related() bool { return r.tree.above != nil || r.tree.kids > 0 || r.parent() != "" }

// top is the root of a row's tree.
func (r *row) top() *row {
	for r.tree.above != nil {
		r = r.tree.above
	}
	return r
}

// treePlace is where the tree of a row belongs.
func (r *row) treePlace() place {
	top := r.top()
	p := top.place
	if top.tree.asks && p.need != protocol.NeedAnswer {
		p.state, p.need = NeedsYou, protocol.NeedAnswer
	}
	return p
}

func (r *row) asks() bool { return r.place.need == protocol.NeedAnswer }

// moves tells whether a tree is another one once one of its rows has changed its place.
func (b *Board) moves(r *row, before place) bool {
	return r.place != before && (r.tree.above == nil || r.place.state != before.state ||
		r.asks() != (before.need == protocol.NeedAnswer))
}

// plant makes trees of the rows that are shown, and leaves out what is folded. What a filter has found
// is not folded, and stands below what it has found, too.
func (b *Board) plant(filtered bool) {
	fits := make(map[*row]bool, len(b.shown))
	for _, r := range b.shown {
		fits[r] = true
	}
	below := map[*row][]*row{}
	for _, r := range b.shown {
		if up := b.above(r); up != nil && fits[up] {
			r.tree.above = up
			below[up] = append(below[up], r)
		}
	}
	if len(below) == 0 {
		return
	}
	p := planting{b: b, below: below, filtered: filtered, hidden: map[*row]bool{}}
	for _, r := range b.shown {
		if r.tree.above == nil && len(below[r]) > 0 {
			p.root, p.at = r, 0
			p.grow(r, "", false)
		}
	}
	b.shown = slices.DeleteFunc(b.shown, func(r *row) bool { return p.hidden[r] })
}

// above is the row of a session's parent, unless it stands below the session itself.
func (b *Board) above(r *row) *row {
	up := b.rows[ID{r.id.Host, r.parent()}]
	if up == nil || up.id.Session >= r.id.Session { // ids are in the order of their times: a daemon sends no circle
		return nil
	}
	return up
}

type planting struct {
	b        *Board
	below    map[*row][]*row
	hidden   map[*row]bool
	filtered bool
	root     *row
	at       int
}

// grow lays out what is below a row.
func (p *planting) grow(r *row, lines string, hidden bool) {
	kids := p.below[r]
	r.tree.kids = len(kids)
	slices.SortFunc(kids, func(x, y *row) int { return strings.Compare(x.id.Session, y.id.Session) })
	fold := !p.filtered && len(kids) > 0 && p.b.isFolded(r)
	var shown []*row
	for _, kid := range kids {
		if p.root.tree.asks = p.root.tree.asks || kid.asks(); !fold && !hidden || kid.asks() {
			shown = append(shown, kid)
		} else {
			p.hidden[kid] = true
		}
	}
	if left := len(kids) - len(shown); left > 0 {
		r.tree.folded = folded(left, kids, p.hidden)
	}
	for _, kid := range kids {
		p.at++
		kid.tree.at, kid.tree.depth = p.at, r.tree.depth+1
		last := len(shown) == 0 || kid == shown[len(shown)-1]
		kid.tree.lines = lines + map[bool]string{false: "├ ", true: "└ "}[last]
		p.grow(kid, lines+map[bool]string{false: "│ ", true: "  "}[last], p.hidden[kid])
	}
}

// folded says what is left out.
func folded(left int, kids []*row, hidden map[*row]bool) string {
	working := 0
	for _, kid := range kids {
		if hidden[kid] && kid.state == Working {
			working++
		}
	}
	text := "▸ " + format.Count(left, "child session")
	if working > 0 {
		text += fmt.Sprintf(", %d working", working)
	}
	return text
}

func (b *Board) isFolded(r *row) bool {
	if by, said := b.folds[r.id]; said {
		return by
	}
	return r.tree.kids > unfolded
}

// fold folds or unfolds the children of the row under the cursor, or goes up from one that has none.
func (b *Board) fold(up bool) {
	r := b.selected
	switch {
	case r == nil:
	case r.tree.kids > 0 && (up != b.isFolded(r)):
		b.folds[r.id] = up
		b.match()
	case up && r.tree.above != nil:
		b.selected = r.tree.above
		b.settle()
	}
}

// below counts the sessions below one.
func (b *Board) below(r *row) int {
	n := 0
	for _, other := range b.rows {
		for up := b.above(other); up != nil; up = b.above(up) {
			if up == r {
				n++
				break
			}
		}
	}
	return n
}

// counts are the sessions of each state: roots, and children that ask.
func (b *Board) counts() (n [states]int) {
	for _, r := range b.rows {
		switch up := b.above(r); {
		case up == nil, r.asks():
			n[r.state]++
		}
	}
	return n
}

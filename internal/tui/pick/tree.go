package pick

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// node is a node of a session's tree made ready for drawing.
type node struct {
	id, role, text string
	folded         string // text
	parent         int    // -1: a root; always less than the node's own number
	path           bool   // on the way from the root to the leaf
	leaf           bool
}

// branchRow is one line of the tree: a node and how many side branches deep it
// is in. Head: it begins the innermost of them.
type branchRow struct {
	node, depth int
	head        bool
}

// Tree shows a session's tree, to go on from another place in it. A chain of
// nodes stays in its column; of the branches at a fork the one towards the leaf
// does, else the newest, and comes last; the others are indented before it.
type Tree struct {
	look  Look
	title string
	nodes []node
	rows  []branchRow
	tools bool // tool results are shown
	list  list

	filter    line
	filtering bool // keys go to the filter
	at        pane
}

// NewTree makes the overlay of the answer of get_tree, the cursor on the leaf.
func NewTree(title string, tree protocol.Tree, l Look) *Tree {
	t := &Tree{look: l, title: cell.Line(title, maxTitle)}
	t.list.rows = 10
	t.SetTree(tree)
	t.moveTo(slices.IndexFunc(t.nodes, func(n node) bool { return n.leaf }))
	return t
}

// SetLook draws the tree in another look from now on.
func (t *Tree) SetLook(l Look) { t.look = l }

// SetTree replaces the tree, for one that has grown; the node under the cursor
// and the filter stay.
func (t *Tree) SetTree(tree protocol.Tree) {
	selected := t.selected()
	number := make(map[string]int, len(tree.Nodes))
	t.nodes = make([]node, 0, len(tree.Nodes))
	for _, n := range tree.Nodes {
		// A parent comes before its children, so that no circle can be made.
		parent, known := number[n.ParentID]
		if !known {
			parent = -1
		}
		number[n.ID] = len(t.nodes)
		text := format.Unmarked(cell.Line(n.Snippet, maxTitle))
		t.nodes = append(t.nodes, node{
			id: n.ID, role: cell.Line(n.Role, 32), text: text, folded: fold(text),
			parent: parent, leaf: n.ID == tree.LeafID,
		})
	}
	if leaf, known := number[tree.LeafID]; known {
		for i := leaf; i >= 0; i = t.nodes[i].parent {
			t.nodes[i].path = true
		}
	}
	t.layout()
	if i, known := number[selected]; known && selected != "" {
		t.moveTo(i)
	}
}

// layout makes the rows of the nodes that are to be seen. One that is not
// leaves its children to the nearest ancestor that is.
func (t *Tree) layout() {
	terms := strings.Fields(fold(t.filter.text))
	seen := func(n node) bool {
		if len(terms) > 0 {
			// Not score: in long texts any few characters are found apart.
			return !slices.ContainsFunc(terms, func(term string) bool {
				return !strings.Contains(n.folded, term) && n.role != term
			})
		}
		return n.role != "tool" || t.tools || n.leaf
	}
	visible := make([]int, len(t.nodes)) // a node's own number if it is seen, else that of the ancestor
	children := map[int][]int{}
	for i, n := range t.nodes {
		above := -1
		if n.parent >= 0 {
			above = visible[n.parent]
		}
		visible[i] = above
		if seen(n) {
			visible[i] = i
			children[above] = append(children[above], i)
		}
	}
	t.rows = t.rows[:0]
	// Without recursion: a chain may be of any length.
	stack := t.branches(nil, children[-1], 0)
	for len(stack) > 0 {
		row := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t.rows = append(t.rows, row)
		stack = t.branches(stack, children[row.node], row.depth)
	}
	t.list.clamp(len(t.rows))
}

// branches puts siblings on the stack, so that the one that goes on in the
// column of its parent comes last.
func (t *Tree) branches(stack []branchRow, siblings []int, depth int) []branchRow {
	if len(siblings) == 0 {
		return stack
	}
	trunk := len(siblings) - 1
	if i := slices.IndexFunc(siblings, func(n int) bool { return t.nodes[n].path }); i >= 0 {
		trunk = i
	}
	stack = append(stack, branchRow{siblings[trunk], depth, false})
	for i := len(siblings) - 1; i >= 0; i-- {
		if i != trunk {
			stack = append(stack, branchRow{siblings[i], depth + 1, true})
		}
	}
	return stack
}

// moveTo puts the cursor on a node, or on the nearest ancestor that is shown.
func (t *Tree) moveTo(n int) {
	row := make(map[int]int, len(t.rows))
	for i, r := range t.rows {
		row[r.node] = i
	}
	for ; n >= 0; n = t.nodes[n].parent {
		if i, shown := row[n]; shown {
			t.list.cursor = i
			return
		}
	}
}

func (t *Tree) selected() string {
	if t.list.cursor < len(t.rows) {
		return t.nodes[t.rows[t.list.cursor].node].id
	}
	return ""
}

// relayout keeps the cursor on its node when other nodes are to be seen.
func (t *Tree) relayout() {
	selected := -1
	if t.list.cursor < len(t.rows) {
		selected = t.rows[t.list.cursor].node
	}
	t.layout()
	t.moveTo(selected)
}

// Update takes a key or a paste. Choose means: go on from the node IDs[0];
// Branch: make a new session of the path to it.
func (t *Tree) Update(msg tea.Msg) (Choice, bool) {
	key := keyOf(msg)
	if key == "ctrl+c" {
		return leave, true
	}
	if t.list.key(key, len(t.rows)) {
		return Choice{}, false
	}
	if t.filtering {
		t.typeFilter(msg, key)
		return Choice{}, false
	}
	switch key {
	case "esc", "q", "ctrl+g":
		if t.filter.text != "" {
			t.filter = line{}
			t.relayout()
			return Choice{}, false
		}
		return leave, true
	case "enter", "b":
		action := Choose
		if key == "b" {
			action = Branch
		}
		if id := t.selected(); id != "" {
			return Choice{Action: action, IDs: []string{id}}, true
		}
	case "t":
		t.tools = !t.tools
		t.relayout()
	case "/":
		t.filtering = true
	case "k":
		t.list.key("up", len(t.rows))
	case "j":
		t.list.key("down", len(t.rows))
	case "g", "home":
		t.list.key("ctrl+home", len(t.rows))
	case "G", "end":
		t.list.key("ctrl+end", len(t.rows))
	}
	return Choice{}, false
}

// typeFilter takes a key while the filter is being typed.
func (t *Tree) typeFilter(msg tea.Msg, key string) {
	before := t.filter.text
	switch {
	case key == "esc":
		t.filter, t.filtering = line{}, false
	case key == "enter", key == "backspace" && before == "":
		t.filtering = false
		return
	default:
		t.filter.update(msg)
	}
	if t.filter.text != before {
		t.relayout()
	}
}

// View draws the tree. Sizes are in cells.
func (t *Tree) View(width, height int) string {
	t.at = t.look.inner(width, height)
	room := t.at
	lines := make([]string, 0, room.height)
	if t.filterShown() {
		text, _ := t.filter.view(room.width - len(t.prompt()))
		lines = append(lines, t.look.Theme.Accent.Render(t.prompt())+text)
		room.height--
	}
	hints := ""
	if room.height >= 6 {
		room.height--
		hints = t.hints(room.width)
	}
	from, to := t.list.window(len(t.rows), max(room.height, 1))
	shift := t.shift(room.width)
	if len(t.rows) == 0 && room.height > 0 {
		text := "nothing matches"
		if len(t.nodes) == 0 {
			text = "nothing was said in this session"
		}
		lines = append(lines, t.look.row(text, false, room.width))
	}
	for i := from; i < to; i++ {
		lines = append(lines, t.row(t.rows[i], i == t.list.cursor, shift, room.width))
	}
	if hints != "" {
		for len(lines) < t.at.height-1 {
			lines = append(lines, "")
		}
		lines = append(lines, hints)
	}
	return t.look.frame(t.title, t.count(), lines, width, height)
}

func (t *Tree) prompt() string {
	if t.look.Plain {
		return plainPrompt
	}
	return filterPrompt
}

func (t *Tree) filterShown() bool {
	return (t.filtering || t.filter.text != "") && t.at.height > 1
}

// Cursor is where in the last View the terminal's cursor belongs: in the
// filter, while that is typed.
func (t *Tree) Cursor() (x, y int, ok bool) {
	room := t.at.width - len(t.prompt())
	if !t.filtering || !t.filterShown() || room < 1 {
		return 0, 0, false
	}
	_, column := t.filter.view(room)
	return t.at.x + len(t.prompt()) + column, t.at.y, true
}

func (t *Tree) count() string {
	if len(t.rows) == len(t.nodes) {
		return strconv.Itoa(len(t.nodes))
	}
	return fmt.Sprintf("%d of %d", len(t.rows), len(t.nodes))
}

func (t *Tree) hints(width int) string {
	if t.filtering {
		return t.look.hints(width, "enter", "done", "esc", "no filter")
	}
	tools := "show tool results"
	if t.tools {
		tools = "hide tool results"
	}
	return t.look.hints(width, "enter", "go on here", "b", "branch", "t", tools, "/", "filter", "esc", "leave")
}

const levelWidth = 2

// shift is how many of the outer levels are left out, so that the node under
// the cursor has at least half of the width for its text.
func (t *Tree) shift(width int) int {
	if t.list.cursor >= len(t.rows) {
		return 0
	}
	return max(t.rows[t.list.cursor].depth-width/2/levelWidth, 0)
}

func (t *Tree) row(r branchRow, selected bool, shift, width int) string {
	n, th := t.nodes[r.node], t.look.Theme
	if t.look.Plain {
		return t.look.row(t.plainRow(r), selected, width)
	}
	lines := ""
	if shown := min(r.depth-shift, width/levelWidth); shown > 0 {
		// Wherever a side branch is drawn, those around it still go on below.
		lines = strings.Repeat("│ ", shown-1) + "│ "
		if r.head {
			lines = strings.Repeat("│ ", shown-1) + "├─"
		}
	}
	if shift > 0 {
		lines = "‹" + lines
	}
	bullet, style := "○ ", th.Dim
	if n.path {
		bullet, style = "● ", th.Accent
	}
	text, after := roleText(n), ""
	if n.leaf {
		after = " ← leaf"
	}
	room := max(width-2-cell.Width(lines)-2, 0)
	if room < 20 {
		after = strings.TrimSuffix(after, " leaf")
	}
	text = cell.Truncate(text, max(room-cell.Width(after), 0))
	if selected {
		return t.look.row(lines+bullet+text+after, true, width)
	}
	return t.look.row(th.Border.Render(lines)+style.Render(bullet)+t.roleStyle(n).Render(text)+th.Accent.Render(after),
		false, width)
}

// plainRow says in words what the other row draws.
func (t *Tree) plainRow(r branchRow) string {
	n := t.nodes[r.node]
	var b strings.Builder
	if r.head {
		fmt.Fprintf(&b, "side branch, level %d: ", r.depth)
	}
	switch {
	case n.leaf:
		b.WriteString("leaf, ")
	case n.path:
		b.WriteString("on the path, ")
	}
	b.WriteString(n.kind() + ": " + n.text)
	return b.String()
}

// kind is what a node is, in a word.
func (n node) kind() string {
	if n.role == "compaction" {
		return "summary"
	}
	return n.role
}

// roleText is a node's text, with what it is unless that is seen from its looks.
func roleText(n node) string {
	switch n.role {
	case "user":
		return "› " + n.text
	case "assistant":
		return n.text
	}
	return n.kind() + ": " + n.text
}

func (t *Tree) roleStyle(n node) lipgloss.Style {
	th := t.look.Theme
	switch n.role {
	case "user":
		return th.User
	case "assistant":
		return th.Assistant
	}
	return th.Dim
}

package pick

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/cell"
)

// Binding is one line of [Help].
type Binding struct {
	Keys  string // "ctrl+r"
	What  string // what they do
	Group string // bindings of a group stand together under its name
}

// minHalves is the width from which the table stands in two halves, side by side.
const minHalves = 70

// gap is between keys and what they do, and between the halves.
const gap = 2

// Help is the table of keys.
type Help struct {
	look     Look
	title    string
	bindings []Binding // by group
	offset   int
	rows     int // that the last View showed
	total    int // lines, in the last View
}

// NewHelp makes a table; the groups are in the order in which they first come.
func NewHelp(title string, bindings []Binding, l Look) *Help {
	h := &Help{look: l, title: cell.Line(title, maxTitle), rows: 10}
	var groups []string
	of := map[string][]Binding{}
	for _, b := range bindings {
		b = Binding{cell.Line(b.Keys, maxTitle), cell.Line(b.What, maxTitle), cell.Line(b.Group, maxTitle)}
		if _, known := of[b.Group]; !known {
			groups = append(groups, b.Group)
		}
		of[b.Group] = append(of[b.Group], b)
	}
	for _, g := range groups {
		h.bindings = append(h.bindings, of[g]...)
	}
	return h
}

// SetLook draws the table in another look from now on.
func (h *Help) SetLook(l Look) { h.look = l }

// Update takes a key: one that scrolls, or one that leaves.
func (h *Help) Update(msg tea.Msg) (Choice, bool) {
	page := max(h.rows-1, 1)
	switch keyOf(msg) {
	case "esc", "enter", "q", "?", "f1", "ctrl+c", "ctrl+g":
		return leave, true
	case "up", "k", "ctrl+p":
		h.offset--
	case "down", "j", "ctrl+n":
		h.offset++
	case "pgup", "b":
		h.offset -= page
	case "pgdown", "space":
		h.offset += page
	case "home", "g", "ctrl+home":
		h.offset = 0
	case "end", "G", "ctrl+end":
		h.offset = h.total
	}
	h.clamp()
	return Choice{}, false
}

func (h *Help) clamp() { h.offset = max(min(h.offset, h.total-h.rows), 0) }

// View draws the table. Sizes are in cells.
func (h *Help) View(width, height int) string {
	at := h.look.inner(width, height)
	lines := h.lines(at.width)
	h.rows, h.total = max(at.height, 0), len(lines)
	hints := at.height >= 6
	if hints {
		h.rows--
	}
	h.clamp()
	info := ""
	if h.total > h.rows {
		info = fmt.Sprintf("%d-%d of %d", h.offset+1, min(h.offset+h.rows, h.total), h.total)
	}
	lines = lines[h.offset:min(h.offset+h.rows, len(lines))]
	if hints {
		for len(lines) < h.rows {
			lines = append(lines, "")
		}
		lines = append(lines, h.hints(at.width))
	}
	return h.look.frame(h.title, info, lines, width, height)
}

func (h *Help) hints(width int) string {
	if h.total <= h.rows {
		return h.look.hints(width, "esc", "leave")
	}
	return h.look.hints(width, "esc", "leave", "pgup, pgdown", "scroll")
}

// lines is the whole table, in halves where it is wide enough.
func (h *Help) lines(width int) []string {
	if width < minHalves {
		return h.column(h.bindings, width, true)
	}
	left, right := h.halves((width - gap) / 2)
	for i := range right {
		if i == len(left) {
			left = append(left, "")
		}
		left[i] = cell.Fit(left[i], (width-gap)/2) + strings.Repeat(" ", gap) + right[i]
	}
	return left
}

// halves are two columns, which part between two groups so that neither is much
// longer than the other.
func (h *Help) halves(width int) (left, right []string) {
	left = h.column(h.bindings, width, false)
	for i := 1; i < len(h.bindings); i++ {
		if h.bindings[i].Group == h.bindings[i-1].Group {
			continue
		}
		l, r := h.column(h.bindings[:i], width, false), h.column(h.bindings[i:], width, false)
		if max(len(l), len(r)) < max(len(left), len(right)) {
			left, right = l, r
		}
	}
	return left, right
}

// column is bindings under each other: the keys, and what they do beside them.
// Where the keys are long and the column is narrow, that begins a line below.
func (h *Help) column(bindings []Binding, width int, spaced bool) (lines []string) {
	keys := 0
	for _, b := range bindings {
		if w := cell.Width(b.Keys); w <= width/4 {
			keys = max(keys, w)
		}
	}
	for i, b := range bindings {
		if first := i == 0 || b.Group != bindings[i-1].Group; first && b.Group != "" {
			if i > 0 && spaced {
				lines = append(lines, "")
			}
			lines = append(lines, h.look.Theme.Title.Render(cell.Truncate(b.Group, width)))
		}
		lines = append(lines, h.binding(b, keys, width)...)
	}
	return lines
}

func (h *Help) binding(b Binding, keys, width int) []string {
	accent := h.look.Theme.Accent
	w := cell.Width(b.Keys)
	if w > keys && w+gap+cell.Width(b.What) <= width {
		return []string{accent.Render(b.Keys) + strings.Repeat(" ", gap) + b.What}
	}
	var lines []string
	for _, l := range cell.Wrap(b.Keys, max(width, 1)) {
		lines = append(lines, accent.Render(l))
	}
	for i, l := range cell.Wrap(b.What, max(width-keys-gap, 1)) {
		if i == 0 && w <= keys {
			lines[0] += strings.Repeat(" ", keys-w+gap) + l
			continue
		}
		lines = append(lines, strings.Repeat(" ", keys+gap)+l)
	}
	return lines
}

// Cursor says that there is nowhere to type.
func (h *Help) Cursor() (x, y int, ok bool) { return 0, 0, false }

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

// maxKeys is the width of the column of keys, at most: longer ones have a line.
const maxKeys = 24

// Help is the table of keys.
type Help struct {
	look     Look
	title    string
	bindings []Binding // by group
	keys     int       // width of their column
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
		if w := cell.Width(b.Keys); w <= maxKeys {
			h.keys = max(h.keys, w)
		}
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

// lines is the whole table: the keys in a column and what they do beside it.
// Where the keys are long or the table is narrow, that begins a line below.
func (h *Help) lines(width int) []string {
	t := h.look.Theme
	const gap = 2
	column := h.keys
	if width < 2*column {
		column = 0
	}
	indent := strings.Repeat(" ", column+gap)
	var lines []string
	for i, b := range h.bindings {
		if i == 0 && b.Group != "" || i > 0 && b.Group != h.bindings[i-1].Group {
			if i > 0 {
				lines = append(lines, "")
			}
			lines = append(lines, t.Title.Render(cell.Truncate(b.Group, width)))
		}
		what := cell.Wrap(b.What, max(width-len(indent), 1))
		first := t.Accent.Render(cell.Truncate(b.Keys, width))
		if w := cell.Width(b.Keys); w <= column {
			first += strings.Repeat(" ", column-w+gap) + what[0]
			what = what[1:]
		}
		lines = append(lines, first)
		for _, l := range what {
			lines = append(lines, indent+l)
		}
	}
	return lines
}

// Cursor says that there is nowhere to type.
func (h *Help) Cursor() (x, y int, ok bool) { return 0, 0, false }

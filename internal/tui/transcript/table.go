package transcript

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"

	"noused/internal/tui/cell"
)

// leastColumn is how narrow a column may become before the cells are no columns any more.
const leastColumn = 3

// table renders a table: as wide as its cells are, their text wrapped where that is too wide.
func (m *markdown) table(t *east.Table, source []byte, width int) []string {
	bar, rule, cross := "│", "─", "┼"
	if !m.look.Color {
		bar, rule, cross = "|", "-", "|"
	}
	var rows [][]string
	widths := make([]int, len(t.Alignments))
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		cells := m.cells(row, source, len(widths))
		for i, text := range cells {
			widths[i] = max(widths[i], min(cell.Width(text), width), 1)
		}
		rows = append(rows, cells)
	}
	var out []string
	fits := narrow(widths, width+1-3*len(widths)) // " a │ b", a space on both sides of each
	for i, row := range rows {
		if !fits {
			out = append(out, wrap(strings.Join(row, " "+bar+" "), width)...)
			continue
		}
		out = append(out, rowLines(row, widths, t.Alignments, bar)...)
		if i == 0 {
			var rules []string
			for _, w := range widths {
				rules = append(rules, strings.Repeat(rule, w+2))
			}
			// The last column has no space behind it that there must be room for.
			out = append(out, strings.TrimSuffix(strings.Join(rules, cross), rule))
		}
	}
	return out
}

// cells are the texts of a row, each on one line.
func (m *markdown) cells(row ast.Node, source []byte, columns int) []string {
	texts := make([]string, columns)
	for i, n := 0, row.FirstChild(); n != nil && i < columns; i, n = i+1, n.NextSibling() {
		texts[i] = strings.ReplaceAll(m.inline(n, source, lipgloss.NewStyle()), "\n", " ")
	}
	return texts
}

// narrow takes from the widest columns what all of them have too much, and tells
// whether they fit then.
func narrow(widths []int, room int) bool {
	if room < leastColumn*len(widths) {
		return false
	}
	sum := 0
	for _, w := range widths {
		sum += w
	}
	for ; sum > room; sum-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		widths[widest]--
	}
	return true
}

// rowLines are the lines of a row, as many as its longest cell has.
func rowLines(row []string, widths []int, align []east.Alignment, bar string) []string {
	columns, height := make([][]string, len(row)), 1
	for i, text := range row {
		columns[i] = wrap(text, widths[i])
		height = max(height, len(columns[i]))
	}
	lines := make([]string, height)
	for at := range lines {
		var parts []string
		for i, column := range columns {
			text := ""
			if at < len(column) {
				text = column[at]
			}
			parts = append(parts, " "+aligned(text, widths[i], align[i])+" ")
		}
		lines[at] = trimEnd(strings.Join(parts, bar))
	}
	return lines
}

// aligned is a text in a column.
func aligned(text string, width int, to east.Alignment) string {
	space := max(width-cell.Width(text), 0)
	left := 0
	switch to {
	case east.AlignRight:
		left = space
	case east.AlignCenter:
		left = space / 2
	}
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", space-left)
}

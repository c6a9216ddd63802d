package transcript

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"

	"noused/internal/tui/cell"
)

// leastRoom is what an item of a list has beside its mark, at least.
const leastRoom = 8

// blocks renders what stands in a document, a list's item or a quote.
func (m *markdown) blocks(parent ast.Node, source []byte, width int) []string {
	var out []string
	wasApart := false
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		lines := m.block(n, source, width)
		apart := n.HasBlankPreviousLines() || wasApart || standsApart(n)
		if wasApart = standsApart(n); apart && len(out) > 0 && len(lines) > 0 {
			out = append(out, "")
		}
		out = append(out, lines...)
	}
	return out
}

// standsApart tells whether a block has blank lines around it, as written or not.
func standsApart(n ast.Node) bool {
	switch n.Kind() {
	case ast.KindHeading, ast.KindThematicBreak, east.KindTable:
		return true
	}
	return false
}

func (m *markdown) block(n ast.Node, source []byte, width int) []string {
	switch n := n.(type) {
	case *ast.List:
		return m.list(n, source, width)
	case *ast.FencedCodeBlock:
		return m.code(textOf(n, source), string(n.Language(source)), width)
	case *ast.CodeBlock:
		return m.code(textOf(n, source), "", width)
	case *ast.Blockquote:
		return m.quote(n, source, width)
	case *east.Table:
		return m.table(n, source, width)
	case *ast.ThematicBreak:
		return []string{m.theme.Border.Render("--------")}
	case *ast.Heading:
		mark := m.theme.Title.Render(strings.Repeat("#", n.Level) + " ")
		return wrap(mark+m.inline(n, source, m.theme.Title), width)
	}
	return wrap(strings.TrimRight(m.inline(n, source, lipgloss.NewStyle()), "\n"), width)
}

func (m *markdown) quote(n ast.Node, source []byte, width int) []string {
	bar := "│ "
	if !m.look.Color {
		bar = "| "
	}
	lines := m.blocks(n, source, max(width-2, leastRoom))
	for i, line := range lines {
		lines[i] = strings.TrimRight(bar+line, " ")
	}
	return lines
}

// textOf is the lines of a block that holds no others.
func textOf(n ast.Node, source []byte) string { return string(n.Lines().Value(source)) }

// list renders a list: each item hangs beside its mark.
func (m *markdown) list(list *ast.List, source []byte, width int) []string {
	var out []string
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if list.IsOrdered() {
			mark = fmt.Sprintf("%d%c ", number, list.Marker)
			number++
		}
		if box := taskBox(item); box != nil {
			mark = "[ ] "
			if box.IsChecked {
				mark = "[✓] "
			}
			box.Parent().RemoveChild(box.Parent(), box)
		}
		lines := m.blocks(item, source, max(width-cell.Width(mark), leastRoom))
		if !list.IsTight && len(out) > 0 {
			out = append(out, "")
		}
		out = append(out, hung(mark, lines)...)
	}
	return out
}

// hung puts a mark before lines.
func hung(mark string, lines []string) []string {
	if len(lines) == 0 {
		return []string{strings.TrimRight(mark, " ")}
	}
	room := strings.Repeat(" ", cell.Width(mark))
	for i, line := range lines {
		lines[i] = trimEnd(mark + line)
		mark = room
	}
	return lines
}

// taskBox is the box that an item's text begins with, nil if it has none.
func taskBox(item ast.Node) *east.TaskCheckBox {
	if text := item.FirstChild(); text != nil && text.FirstChild() != nil {
		box, _ := text.FirstChild().(*east.TaskCheckBox)
		return box
	}
	return nil
}

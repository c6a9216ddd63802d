package transcript

import (
	"fmt"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"

	"noused/internal/tui/cell"
)

// leastRoom is what an item of a list has beside its mark, at least.
const leastRoom = 8

// blocks renders what stands in a document or in a list's item: lists and code
// here, what stands between them as the library does.
func (m *markdown) blocks(parent ast.Node, source []byte, width int) ([]string, error) {
	var out []string
	for n := parent.FirstChild(); n != nil; {
		apart := n.HasBlankPreviousLines()
		lines, next, err := m.block(n, source, width)
		if err != nil {
			return nil, err
		}
		if apart && len(out) > 0 && len(lines) > 0 {
			out = append(out, "")
		}
		out, n = append(out, lines...), next
	}
	return out, nil
}

// block renders a block, and those behind it that belong to the same text. It
// returns the one that follows.
func (m *markdown) block(n ast.Node, source []byte, width int) (lines []string, next ast.Node, err error) {
	switch n := n.(type) {
	case *ast.List:
		lines, err = m.list(n, source, width)
		return lines, n.NextSibling(), err
	case *ast.FencedCodeBlock:
		return m.code(textOf(n, source), string(n.Language(source)), width), n.NextSibling(), nil
	case *ast.CodeBlock:
		return m.code(textOf(n, source), "", width), n.NextSibling(), nil
	}
	if next = n.NextSibling(); next == nil || drawnHere(next) || next.HasBlankPreviousLines() {
		if words := textOf(n, source); isText(n) && simple(words) {
			return wrap(strings.TrimRight(words, "\n"), width), next, nil
		}
	}
	doc := ast.NewDocument()
	for next = n; next != nil && !drawnHere(next) && (next == n || !next.HasBlankPreviousLines()); {
		block := next
		next = block.NextSibling()
		doc.AppendChild(doc, paragraph(block))
	}
	lines, err = m.draw(doc, source, width)
	return lines, next, err
}

func isText(n ast.Node) bool {
	return n.Kind() == ast.KindTextBlock || n.Kind() == ast.KindParagraph
}

func drawnHere(n ast.Node) bool {
	switch n.Kind() {
	case ast.KindList, ast.KindFencedCodeBlock, ast.KindCodeBlock:
		return true
	}
	return false
}

// paragraph is a block; the text of an item that is not set apart becomes one.
func paragraph(n ast.Node) ast.Node {
	if n.Kind() != ast.KindTextBlock {
		return n
	}
	p := ast.NewParagraph()
	for child := n.FirstChild(); child != nil; {
		next := child.NextSibling()
		p.AppendChild(p, child)
		child = next
	}
	n.Parent().RemoveChild(n.Parent(), n)
	return p
}

// textOf is the lines of a block that holds no others.
func textOf(n ast.Node, source []byte) string { return string(n.Lines().Value(source)) }

// list renders a list: each item hangs beside its mark.
func (m *markdown) list(list *ast.List, source []byte, width int) ([]string, error) {
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
		lines, err := m.blocks(item, source, max(width-cell.Width(mark), leastRoom))
		if err != nil {
			return nil, err
		}
		if !list.IsTight && len(out) > 0 {
			out = append(out, "")
		}
		out = append(out, hung(mark, lines)...)
	}
	return out, nil
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

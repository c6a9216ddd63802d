package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"

	"noused/internal/manpage"
)

// pages are the documents that are pages of the manual themselves.
var pages = map[string]string{"tools.md": "noused-tools", "protocol.md": "noused-protocol"}

// converter writes a document as a page. Its error is the first.
type converter struct {
	*manpage.Page
	source []byte
	err    error
}

func convert(source []byte, title manpage.Title) ([]byte, error) {
	c := &converter{manpage.New(title), source, nil}
	doc := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	c.Section("DESCRIPTION")
	c.blocks(doc)
	c.Section("SEE ALSO")
	c.Line(manpage.Bold("nous") + "(1),")
	c.Line(manpage.Bold("noused") + "(1)")
	c.Paragraph(
		manpage.Escape(
			"Documents that are named here with .md are in /usr/share/doc/noused/docs, or in docs of the sources."))
	return c.Bytes(), c.err
}

func (c *converter) blocks(parent ast.Node) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		c.block(n)
	}
}

func (c *converter) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		c.heading(n)
	case *ast.Paragraph, *ast.TextBlock:
		c.Paragraph(c.inline(n))
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		c.Code(string(n.Lines().Value(c.source)))
	case *ast.List:
		c.list(n)
	case *table.Table:
		c.table(n)
	case *ast.Blockquote:
		c.Macro(".RS 4")
		c.blocks(n)
		c.Macro(".RE")
	case *ast.ThematicBreak, *ast.HTMLBlock:
	default:
		c.fail(n)
	}
}

func (c *converter) fail(n ast.Node) {
	if c.err == nil {
		c.err = fmt.Errorf("there is no form for %s", n.Kind())
	}
}

// heading leaves the document's own out: the page has a name.
func (c *converter) heading(n *ast.Heading) {
	switch title := plain(n, c.source); n.Level {
	case 1:
	case 2:
		c.Section(strings.ToUpper(title))
	default:
		c.Subsection(title)
	}
}

func (c *converter) list(list *ast.List) {
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		if list.IsOrdered() {
			c.Macro(".IP", strconv.Itoa(number)+".", "4")
			number++
		} else {
			c.Macro(".IP", `\(bu`, "3")
		}
		c.item(item)
	}
}

// item is what stands beside a bullet: its first text, and then the rest
// further in.
func (c *converter) item(item ast.Node) {
	first := item.FirstChild()
	if first == nil {
		return
	}
	c.Line(c.inline(first))
	if first.NextSibling() == nil {
		return
	}
	c.Macro(".RS")
	for n := first.NextSibling(); n != nil; n = n.NextSibling() {
		c.block(n)
	}
	c.Macro(".RE")
}

// table is a list of items in a page, which has no room for columns: the first
// column, and beside it the others, with their headings where there are several.
func (c *converter) table(t *table.Table) {
	var headings []string
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, c.inline(cell))
		}
		if row.Kind() == table.KindTableHeader {
			headings = cells
			continue
		}
		c.row(headings, cells)
	}
}

func (c *converter) row(headings, cells []string) {
	if cells[0] == "" { // goes on with the row before
		c.Macro(".IP")
	} else {
		c.Macro(".TP")
		c.Line(cells[0])
	}
	for i, cell := range cells[1:] {
		switch {
		case cell == "":
			continue
		case len(cells) > 2 && headings[i+1] != "":
			cell = `\fI` + headings[i+1] + `:\fR ` + cell
		}
		c.Line(cell)
		if i+2 < len(cells) {
			c.Macro(".br")
		}
	}
}

// inline is the text of a block, with its fonts.
func (c *converter) inline(parent ast.Node) string {
	var b strings.Builder
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Text:
			b.WriteString(manpage.Escape(entities.Replace(string(n.Segment.Value(c.source)))))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteString("\n")
			}
		case *ast.String:
			b.WriteString(manpage.Escape(string(n.Value)))
		case *ast.CodeSpan:
			b.WriteString(manpage.Bold(plain(n, c.source)))
		case *ast.Emphasis:
			b.WriteString(map[int]string{1: `\fI`, 2: `\fB`}[n.Level] + c.inline(n) + `\fR`)
		case *ast.Link:
			b.WriteString(c.inline(n) + reference(string(n.Destination), plain(n, c.source)))
		case *ast.AutoLink:
			b.WriteString(manpage.Escape(string(n.URL(c.source))))
		case *ast.Image:
			b.WriteString(c.inline(n))
		default:
			c.fail(n)
		}
	}
	return b.String()
}

var entities = strings.NewReplacer(`\|`, "|", "&lt;", "<", "&gt;", ">", "&amp;", "&")

// reference is where a link leads, unless that is in the page itself, or its
// text says it.
func reference(to, text string) string {
	to, _, _ = strings.Cut(to, "#")
	if page := pages[to]; page != "" {
		return ", " + manpage.Bold(page) + "(7)"
	}
	if name := path.Base(to); to == "" || strings.Contains(text, name) {
		return ""
	}
	return " (" + manpage.Escape(strings.TrimPrefix(to, "../")) + ")"
}

// plain is the text of a node without fonts.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		switch child := child.(type) {
		case *ast.Text:
			b.Write(child.Segment.Value(source))
			if child.SoftLineBreak() {
				b.WriteString(" ")
			}
		case *ast.String:
			b.Write(child.Value)
		default:
			b.WriteString(plain(child, source))
		}
	}
	return b.String()
}

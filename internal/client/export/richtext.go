package export

import (
	"bytes"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// reader is GitHub's Markdown without HTML: what somebody writes between angle
// brackets is a text like any other. What links to something that a browser
// would run, or to a file, is no link; an image is a link, as a page that shows
// it would tell its server who reads it.
var reader = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(
				util.Prioritized(parser.NewSetextHeadingParser(), 100),
				util.Prioritized(parser.NewThematicBreakParser(), 200),
				util.Prioritized(parser.NewListParser(), 300),
				util.Prioritized(parser.NewListItemParser(), 400),
				util.Prioritized(parser.NewCodeBlockParser(), 500),
				util.Prioritized(parser.NewATXHeadingParser(), 600),
				util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
				util.Prioritized(parser.NewBlockquoteParser(), 800),
				util.Prioritized(parser.NewParagraphParser(), 1000),
			),
			parser.WithInlineParsers(
				util.Prioritized(parser.NewCodeSpanParser(), 100),
				util.Prioritized(parser.NewLinkParser(), 200),
				util.Prioritized(parser.NewAutoLinkParser(), 300),
				util.Prioritized(parser.NewEmphasisParser(), 500),
			),
			parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
			parser.WithASTTransformers(util.Prioritized(harmless{}, 1000)),
		)),
		goldmark.WithExtensions(extension.GFM),
	)
})

// richText is a text as HTML, or "" where it is to be shown as it is.
func richText(source string) (out template.HTML) {
	defer func() {
		if recover() != nil { // the library's mistake must not cost the page
			out = ""
		}
	}()
	if tangled(source) {
		return ""
	}
	var page bytes.Buffer
	if err := reader().Convert([]byte(source), &page); err != nil {
		return ""
	}
	return template.HTML(page.String())
}

// Bounds of what is read as Markdown: beyond them it costs more than it is
// worth, as nothing that is meant to be read is like that.
const (
	maxRich  = 1 << 20 // bytes
	maxNest  = 20      // marks that one line begins with
	maxMarks = 10_000  // brackets and emphasis
)

func tangled(source string) bool {
	if len(source) > maxRich {
		return true
	}
	marks := 0
	for _, mark := range []string{"[", "]", "<", "*", "_", "~", "`"} {
		marks += strings.Count(source, mark)
	}
	if marks > maxMarks {
		return true
	}
	for line := range strings.Lines(source) {
		rest := strings.TrimLeft(line, " \t>-+*0123456789.)")
		if strings.Count(line[:len(line)-len(rest)], ">")+len(strings.Fields(line[:len(line)-len(rest)])) > maxNest {
			return true
		}
	}
	return false
}

// harmless takes out of a document what reader's comment says.
type harmless struct{}

func (harmless) Transform(doc *ast.Document, r text.Reader, _ parser.Context) {
	var found []ast.Node
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n.(type) {
		case *ast.Link, *ast.Image, *ast.AutoLink:
			if entering {
				found = append(found, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range found {
		switch n := n.(type) {
		case *ast.Link:
			relink(n, n.Destination)
		case *ast.Image:
			relink(n, n.Destination)
		case *ast.AutoLink:
			if n.AutoLinkType == ast.AutoLinkURL && !safe(n.URL(r.Source())) {
				label := ast.NewString(n.Label(r.Source()))
				label.SetRaw(true) // it has no marks of its own
				n.Parent().ReplaceChild(n.Parent(), n, label)
			}
		}
	}
}

// relink puts in the place of a link or an image a link without a title, or only
// its text.
func relink(n ast.Node, destination []byte) {
	parent := n.Parent()
	if safe(destination) && !linked(parent) {
		link := ast.NewLink()
		link.Destination = destination
		link.SetAttributeString("rel", []byte("noopener noreferrer"))
		parent.InsertBefore(parent, n, link)
		moveChildren(n, func(child ast.Node) { link.AppendChild(link, child) })
	} else {
		moveChildren(n, func(child ast.Node) { parent.InsertBefore(parent, n, child) })
	}
	parent.RemoveChild(parent, n)
}

// linked tells whether a node is in a link already: an image may be.
func linked(n ast.Node) bool {
	for ; n != nil; n = n.Parent() {
		if n.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}

func moveChildren(n ast.Node, to func(ast.Node)) {
	for child := n.FirstChild(); child != nil; {
		next := child.NextSibling()
		to(child)
		child = next
	}
}

// safe tells whether a link may lead there: to the web, to a mail's writing, or
// to something beside the page. The destination is as it is in the source.
func safe(destination []byte) bool {
	target, err := url.Parse(string(util.URLEscape(destination, true)))
	if err != nil {
		return false
	}
	switch strings.ToLower(target.Scheme) {
	case "", "http", "https", "mailto":
		return true
	}
	return false
}

// full reads Markdown with everything in it that a reader of an exported
// document may make something of.
var full = sync.OnceValue(func() goldmark.Markdown { return goldmark.New(goldmark.WithExtensions(extension.GFM)) })

// active is HTML that does more than mark a text.
var active = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?is)<[^>]*=|<\s*/?\s*(script|style|iframe|frame|object|embed|form|meta|link|base|svg|math)`)
})

// loaded tells whether a text, as Markdown, has a link that leads where none
// may lead, or HTML that is active.
func loaded(source string) (found bool) {
	defer func() { found = found || recover() != nil }()
	if tangled(source) {
		return true
	}
	context := parser.NewContext()
	doc := full().Parser().Parse(text.NewReader([]byte(source)), parser.WithContext(context))
	for _, ref := range context.References() {
		found = found || !safe(ref.Destination())
	}
	_ = ast.Walk(doc, func(n ast.Node, _ bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			found = found || !safe(n.Destination)
		case *ast.Image:
			found = found || !safe(n.Destination)
		case *ast.AutoLink:
			found = found || n.AutoLinkType == ast.AutoLinkURL && !safe(n.URL([]byte(source)))
		case *ast.RawHTML, *ast.HTMLBlock:
			found = found || active().MatchString(source)
		}
		return ast.WalkContinue, nil
	})
	return found
}

package transcript

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// splitter finds the blocks of a text, not what stands in them. It is of the
// same parts as newParser's.
var splitter = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(parser.WithBlockParsers(blockParsers()...))
})

// group is a block of code, or blocks of text that no blank line divides.
type group struct {
	from  int      // where its first line begins
	code  ast.Node // nil for text
	end   int      // of code
	over  bool     // code that can hold no more lines
	list  *ast.List
	items []int // where the lines begin that begin its items
}

// groups are the blocks of a text.
func groups(source []byte) []group {
	source = shallow(source)
	var all []group
	inText := false // the last one is text
	for n := splitter().Parse(text.NewReader(source)).FirstChild(); n != nil; n = n.NextSibling() {
		g := group{from: lineStart(source, n.Pos())}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			g.code = n
			g.end, g.over = endOfFence(n, source, g.from)
		case *ast.CodeBlock:
			g.code = n
			g.end = n.Lines().At(n.Lines().Len() - 1).Stop
			g.over = n.NextSibling() != nil
		case *ast.List:
			g.list = n
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				g.items = append(g.items, lineStart(source, item.Pos()))
			}
		}
		if g.code == nil && inText && !blankBefore(source, g.from) {
			continue
		}
		inText = g.code == nil
		all = append(all, g)
	}
	return all
}

// endOfFence is where the line after a fenced block begins, and whether it is
// closed.
func endOfFence(n *ast.FencedCodeBlock, source []byte, from int) (end int, over bool) {
	end = lineEnd(source, from)
	if lines := n.Lines(); lines.Len() > 0 {
		end = lines.At(lines.Len() - 1).Stop
	}
	if over = end < len(source); over {
		end = lineEnd(source, end)
	}
	return end, over
}

func lineStart(source []byte, at int) int {
	return bytes.LastIndexByte(source[:max(at, 0)], '\n') + 1
}

func lineEnd(source []byte, from int) int {
	if i := bytes.IndexByte(source[from:], '\n'); i >= 0 {
		return from + i + 1
	}
	return len(source)
}

func blankBefore(source []byte, at int) bool {
	before := source[:max(at-1, 0)]
	return len(bytes.TrimSpace(before[bytes.LastIndexByte(before, '\n')+1:])) == 0
}

// shallow is a text without nesting so deep that reading it would take long: what
// nobody reads need not be told from a paragraph. No offset changes.
func shallow(source []byte) []byte {
	copied := false
	for at := 0; at < len(source); {
		end := lineEnd(source, at)
		before := len(source[at:end]) - len(bytes.TrimLeft(source[at:end], " \t>-*+0123456789.)"))
		marks := source[at : at+before]
		if bytes.Count(marks, []byte(">"))+len(bytes.Fields(marks)) > 4*maxNesting {
			if !copied {
				source, copied = bytes.Clone(source), true
			}
			for i := at; i < at+before; i++ {
				if source[i] > ' ' {
					source[i] = 'x'
				}
			}
		}
		at = end
	}
	return source
}

// isCode tells whether a group is code where the text goes on in a way: what
// looks like indented code behind a part that was cut off is none.
func (g group) isCode(now open) bool {
	return g.code != nil && (!g.indented() || now.indented || !now.joined)
}

func (g group) indented() bool { return g.code != nil && g.code.Kind() == ast.KindCodeBlock }

func (g group) lang(source []byte) string {
	if code, ok := g.code.(*ast.FencedCodeBlock); ok {
		return string(code.Language(source))
	}
	return ""
}

// goesOn is how the text goes on within code.
func (g group) goesOn(source []byte) open {
	if g.indented() {
		return open{indented: true, joined: true}
	}
	return open{opener: string(source[g.from:lineEnd(source, g.from)]), joined: true}
}

// tooLong is where a part of text has to end because of its size, 0 if it need
// not: at an item where it is a list.
func (g group) tooLong(source []byte, from, to int) int {
	table := false
	for at, n := from, 0; at < to; n++ {
		lines, bytes := partLines, partBytes
		if _, item := slices.BinarySearch(g.items, at); table || g.list != nil && !item {
			lines, bytes = tableLines, tableBytes
		}
		if n > 0 && (n >= lines || at-from >= bytes) {
			return at
		}
		end := lineEnd(source, at)
		table = table || n > 0 && delimiter(strings.TrimSpace(string(source[at:end])))
		at = end
	}
	return 0
}

// alikeFrom tells whether what begins at an offset is read the same without what
// stands before it: an item of a list.
func (g group) alikeFrom(source []byte, at int) bool {
	_, item := slices.BinarySearch(g.items, at)
	indent, _ := indentOf(string(source[at:lineEnd(source, at)]))
	return item && indent < 4
}

// whole tells whether what goes on at an offset says nothing without what stands
// before it: the rows of a table, code in a list.
func (g group) whole(source []byte, at int) bool {
	for from, n := g.from, 0; from < at; n++ {
		end := lineEnd(source, from)
		if n > 0 && delimiter(strings.TrimSpace(string(source[from:end]))) {
			return true
		}
		from = end
	}
	if g.list == nil {
		return false
	}
	inside := false
	_ = ast.Walk(g.list, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if n.Kind() == ast.KindFencedCodeBlock && entering && n.Lines().Len() > 0 {
			lines := n.Lines()
			inside = inside || lines.At(0).Start <= at && at <= lines.At(lines.Len()-1).Stop
		}
		return ast.WalkContinue, nil
	})
	return inside
}

// blockParsers are those of GitHub's Markdown, without HTML.
func blockParsers() []util.PrioritizedValue {
	return []util.PrioritizedValue{
		util.Prioritized(parser.NewSetextHeadingParser(), 100),
		util.Prioritized(parser.NewThematicBreakParser(), 200),
		util.Prioritized(parser.NewListParser(), 300),
		util.Prioritized(parser.NewListItemParser(), 400),
		util.Prioritized(parser.NewCodeBlockParser(), 500),
		util.Prioritized(parser.NewATXHeadingParser(), 600),
		util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
		util.Prioritized(parser.NewBlockquoteParser(), 800),
		util.Prioritized(paragraphs{parser.NewParagraphParser()}, 1000),
	}
}

func indentOf(line string) (n int, rest string) {
	for i := range len(line) {
		switch line[i] {
		case ' ':
			n++
		case '\t':
			n += 4 - n%4
		default:
			return n, strings.TrimRight(line[i:], " \t")
		}
	}
	return n, ""
}

// marked tells whether a line begins a list's item.
func marked(line string) bool {
	if line == "" {
		return false
	}
	switch line[0] {
	case '-', '*', '+':
		return len(line) == 1 || line[1] == ' ' || line[1] == '\t'
	}
	n := 0
	for n < len(line) && n < 10 && line[n] >= '0' && line[n] <= '9' {
		n++
	}
	return n > 0 && n < 10 && n < len(line) && (line[n] == '.' || line[n] == ')') && (n+1 == len(line) || line[n+1] == ' ')
}

// delimiter tells whether a line is the one between a table's head and rows.
func delimiter(line string) bool {
	return strings.IndexByte(line, '|') >= 0 && strings.IndexByte(line, '-') >= 0 && strings.Trim(line, "|:- \t") == ""
}

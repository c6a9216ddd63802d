package transcript

import (
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"noused/internal/tui/cell"
	"noused/internal/tui/highlight"
	"noused/internal/tui/theme"
)

// Bounds of what is rendered as Markdown: the parser takes long for text that is
// mostly marks, and there is no room for what is nested deeper.
const (
	maxNesting = 4
	maxMarks   = 60 // and one of so many characters:
	markEvery  = 8
)

// markdown renders the parts of a text for one look.
type markdown struct {
	look   Look
	theme  theme.Theme // the zero one where there is no colour: marks are in its place
	syntax theme.Syntax
	parser parser.Parser // nil until it is needed
}

func newMarkdown(look Look) *markdown {
	m := &markdown{look: look}
	if look.Color {
		m.theme, m.syntax = theme.New(look.Dark, true), theme.NewSyntax(look.Dark)
	}
	return m
}

// render returns the lines of a part in at most width cells. The text is
// sanitised here.
func (m *markdown) render(source string, width int) []string {
	source = strings.Trim(cell.Sanitize(source), "\n")
	if m.look.Plain || simple(source) || tangled(source) {
		return wrap(source, width)
	}
	lines, ok := m.convert(source, width)
	if !ok {
		return wrap(source, width)
	}
	return fitted(lines, width)
}

// fitted breaks the lines that are too long.
func fitted(lines []string, width int) []string {
	var out []string
	for _, line := range lines {
		if cell.Width(line) <= width {
			out = append(out, line)
		} else {
			out = append(out, wrap(line, width)...)
		}
	}
	return out
}

// wrap breaks a sanitised text, which may be styled, into lines.
func wrap(text string, width int) []string {
	lines := cell.Wrap(text, width)
	for i, line := range lines {
		lines[i] = trimEnd(line)
	}
	return lines
}

// convert parses and draws. What the library cannot get over is a text like any
// other: somebody else's mistake in a message must not end the program.
func (m *markdown) convert(source string, width int) (lines []string, ok bool) {
	defer func() {
		if recover() != nil {
			m.parser = nil // its state may be anything
			lines, ok = nil, false
		}
	}()
	if m.parser == nil {
		m.parser = newParser()
	}
	doc := m.parser.Parse(text.NewReader([]byte(source)))
	return m.blocks(doc, []byte(source), width), true
}

// paragraphs begin with any indentation: a line of a list or a quote that only
// code would be is a text, too, and would be left out otherwise.
type paragraphs struct{ parser.BlockParser }

func (paragraphs) CanAcceptIndentedLine() bool { return true }

// newParser reads GitHub's Markdown without what would be left out: HTML, for
// people and models write <path> and vector<int> and mean the words, and the
// targets of links that stand apart ("[1]: https://…"), for the links to them
// may be in other parts.
func newParser() parser.Parser {
	md := goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(blockParsers()...),
			parser.WithInlineParsers(
				util.Prioritized(parser.NewCodeSpanParser(), 100),
				util.Prioritized(parser.NewLinkParser(), 200),
				util.Prioritized(parser.NewAutoLinkParser(), 300),
				util.Prioritized(parser.NewEmphasisParser(), 500),
			),
		)),
		goldmark.WithExtensions(extension.GFM),
	)
	return md.Parser()
}

// code returns the lines of a code block, coloured where its language is known.
func (m *markdown) code(text, lang string, width int) []string {
	text = strings.TrimSuffix(cell.Sanitize(text), "\n")
	indent := "  "
	if m.look.Plain || width < 20 {
		indent = ""
	}
	if m.look.Color && len(text) <= 2*partBytes {
		text = strings.Join(m.coloured(text, lang), "\n")
	}
	lines := wrap(text, width-len(indent))
	for i, line := range lines {
		lines[i] = strings.TrimRight(indent+line, " ")
	}
	return lines
}

// coloured are the lines of sanitised code, in the colours of its language.
func (m *markdown) coloured(code, lang string) []string {
	var lines []string
	for _, line := range highlight.Lines(code, lang) {
		lines = append(lines, m.syntax.Render(line))
	}
	return lines
}

// simple tells whether Markdown means nothing in a text.
func simple(text string) bool {
	if strings.ContainsAny(text, "*_`[]<|~\\&@") || strings.Contains(text, "://") || strings.Contains(text, "www.") {
		return false
	}
	for line := range strings.SplitSeq(text, "\n") {
		indent, rest := indentOf(line)
		if indent >= 4 || rest != "" && (marked(rest) || strings.IndexByte("=-+#>", rest[0]) >= 0) {
			return false
		}
	}
	return true
}

// tangled tells whether a text is more marks than words, or nested deeper than
// anybody reads.
func tangled(text string) bool {
	marks := 0
	for line := range strings.SplitSeq(text, "\n") {
		before := line[:len(line)-len(strings.TrimLeft(line, " \t>-*+0123456789.)"))]
		items := strings.Count(before, "- ") + strings.Count(before, "* ") + strings.Count(before, "+ ") +
			strings.Count(before, ". ")
		indent, rest := indentOf(line)
		deep := strings.Count(before, ">") + items + indent/4
		across := strings.Trim(line, "-* ") == ""
		if deep > maxNesting && !across && (indent < 4 || marked(rest) || rest[0] == '>') {
			return true
		}
		for _, mark := range []string{"[", "*", "_", "~"} {
			marks += strings.Count(line, mark)
		}
	}
	return marks > maxMarks && marks > len(text)/markEvery
}

// sgr is how long the colour sequence is with which s begins, 0 if with none.
func sgr(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s) && i < 40; i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case (c < '0' || c > '9') && c != ';' && c != ':':
			return 0
		}
	}
	return 0
}

// trimEnd takes the spaces off a line's end, and ends its style.
func trimEnd(line string) string {
	if strings.IndexByte(line, '\x1b') < 0 {
		return strings.TrimRight(line, " ")
	}
	for {
		was := len(line)
		line = strings.TrimRight(line, " ")
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\x1b[m"), "\x1b[0m")
		if len(line) == was {
			break
		}
	}
	for { // a style that nothing is written in
		i := strings.LastIndexByte(line, '\x1b')
		if i < 0 || sgr(line[i:]) != len(line)-i {
			break
		}
		line = strings.TrimRight(line[:i], " ")
	}
	if strings.IndexByte(line, '\x1b') < 0 {
		return line
	}
	return line + "\x1b[m"
}

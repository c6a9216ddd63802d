package transcript

import (
	"bytes"
	"strings"

	"charm.land/glamour/v2/ansi"
	"charm.land/glamour/v2/styles"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/quick"
	xansi "github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// Bounds of what is rendered as Markdown. The renderer takes more than twice as
// long for each level of quotes, and long for text that is mostly marks.
const (
	maxNesting = 4
	maxMarks   = 60 // and one of so many characters:
	markEvery  = 8
)

// markdown renders the parts of a text for one look.
type markdown struct {
	look    Look
	parser  parser.Parser
	drawing map[int]renderer.Renderer // by width
}

// maxWidths bounds the renderers that are kept.
const maxWidths = 16

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

// convert runs the libraries. What they cannot get over is a text like any
// other: somebody else's mistake in a message must not end the program.
func (m *markdown) convert(source string, width int) (lines []string, ok bool) {
	defer func() {
		if recover() != nil {
			m.parser, m.drawing = nil, nil // their state may be anything
			lines, ok = nil, false
		}
	}()
	if m.parser == nil {
		m.parser = newParser()
	}
	doc := m.parser.Parse(text.NewReader([]byte(source)))
	lines, err := m.blocks(doc, []byte(source), width)
	return lines, err == nil
}

// draw renders blocks with the library.
func (m *markdown) draw(doc ast.Node, source []byte, width int) ([]string, error) {
	if m.drawing == nil || len(m.drawing) >= maxWidths {
		m.drawing = map[int]renderer.Renderer{}
	}
	if m.drawing[width] == nil {
		m.drawing[width] = newRenderer(m.look, width)
	}
	var buf bytes.Buffer
	if err := m.drawing[width].Render(&buf, nameCode(doc, source), doc); err != nil {
		return nil, err
	}
	out := buf.String()
	if !m.look.Color {
		out = xansi.Strip(out)
	}
	var lines []string
	for line := range strings.SplitSeq(onlyStyles(out), "\n") {
		if line = trimEnd(line); line != "" || len(lines) > 0 && lines[len(lines)-1] != "" {
			lines = append(lines, line)
		}
	}
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	return lines, nil
}

// nameCode gives the code of quotes a language where it has none that is known:
// the library would try to guess it, which takes long. It returns the source,
// with that name behind it.
func nameCode(doc ast.Node, source []byte) []byte {
	name := text.NewSegment(len(source), len(source)+len("text"))
	var unknown []ast.Node
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		code, fenced := n.(*ast.FencedCodeBlock)
		if entering && (n.Kind() == ast.KindCodeBlock || fenced && !isLanguage(string(code.Language(source)))) {
			unknown = append(unknown, n)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range unknown {
		named := ast.NewFencedCodeBlock(ast.NewTextSegment(name))
		named.SetLines(n.Lines())
		n.Parent().ReplaceChild(n.Parent(), n, named)
	}
	return append(source[:len(source):len(source)], "text"...)
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

func newRenderer(look Look, width int) renderer.Renderer {
	render := ansi.NewRenderer(ansi.Options{WordWrap: width, PreserveNewLines: true, InlineTableLinks: true, Styles: styleOf(look)})
	return renderer.NewRenderer(renderer.WithNodeRenderers(util.Prioritized(render, 1000)))
}

// styleOf is glamour's own style without its margins, in the terminal's own
// colour where a text has no role.
func styleOf(look Look) ansi.StyleConfig {
	s := styles.LightStyleConfig
	switch {
	case !look.Color:
		s = styles.ASCIIStyleConfig
	case look.Dark:
		s = styles.DarkStyleConfig
	}
	var none uint
	s.Document.Margin, s.Document.Color = &none, nil
	s.Document.BlockPrefix, s.Document.BlockSuffix = "", ""
	s.CodeBlock.Margin, s.CodeBlock.Chroma = &none, nil
	if !look.Color {
		s.Code.Prefix, s.Code.Suffix = "`", "`"
	} else {
		s.CodeBlock.Theme = codeTheme(look)
		code := hex(theme.New(look.Dark, true).Code.GetForeground())
		s.Code.Color, s.Code.BackgroundColor, s.Code.Prefix, s.Code.Suffix = &code, nil, "", ""
		s.H1.BackgroundColor, s.H1.Color = nil, nil
		s.H1.Prefix, s.H1.Suffix = "# ", ""
	}
	return s
}

func codeTheme(look Look) string {
	if look.Dark {
		return "github-dark"
	}
	return "github"
}

// code returns the lines of a code block, coloured where its language is known.
func (m *markdown) code(text, lang string, width int) []string {
	text = strings.TrimSuffix(cell.Sanitize(text), "\n")
	indent := "  "
	if m.look.Plain || width < 20 {
		indent = ""
	}
	if m.look.Color && lang != "" && len(text) <= 2*partBytes {
		if out, ok := highlight(text, lang, codeTheme(m.look)); ok {
			text = strings.TrimSuffix(out, "\n")
		}
	}
	lines := wrap(text, width-len(indent))
	for i, line := range lines {
		lines[i] = strings.TrimRight(indent+line, " ")
	}
	return lines
}

// isLanguage tells whether the highlighter knows a language.
func isLanguage(name string) bool { return name != "" && len(name) < 40 && lexers.Get(name) != nil }

func highlight(text, lang, theme string) (out string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	if !isLanguage(lang) {
		return "", false
	}
	var buf bytes.Buffer
	if err := quick.Highlight(&buf, text, lang, "terminal256", theme); err != nil {
		return "", false
	}
	return onlyStyles(buf.String()), true
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
		items := strings.Count(before, "- ") + strings.Count(before, "* ") + strings.Count(before, "+ ") + strings.Count(before, ". ")
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

// onlyStyles is what a renderer made, without anything but text and colours: a
// character that Markdown writes as a number can be a control character.
func onlyStyles(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	for {
		i := strings.IndexByte(s, '\x1b')
		if i < 0 {
			out.WriteString(cell.Sanitize(s))
			return out.String()
		}
		out.WriteString(cell.Sanitize(s[:i]))
		s = s[i:]
		n := sgr(s)
		if n > 0 {
			out.WriteString(s[:n])
		} else {
			n = osc8(s)
		}
		s = s[max(n, 1):]
	}
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

// osc8 is how long the link's beginning or end is with which s begins.
func osc8(s string) int {
	if !strings.HasPrefix(s, "\x1b]8;") {
		return 0
	}
	for i, c := range []byte(s) {
		switch {
		case c == '\a':
			return i + 1
		case c == '\n':
			return i
		case c == '\x1b' && i > 0:
			if strings.HasPrefix(s[i:], "\x1b\\") {
				return i + 2
			}
			return i
		}
	}
	return len(s)
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

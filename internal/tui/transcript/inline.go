package transcript

import (
	"html"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"

	"noused/internal/tui/cell"
)

// inline renders what stands in a paragraph, a heading or a table's cell. It has
// line breaks where the source has some, and no escape sequences but those of styles.
func (m *markdown) inline(parent ast.Node, source []byte, in lipgloss.Style) string {
	var out strings.Builder
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		out.WriteString(m.span(n, source, in))
	}
	return out.String()
}

func (m *markdown) span(n ast.Node, source []byte, in lipgloss.Style) string {
	switch n := n.(type) {
	case *ast.Text:
		out := render(in, plainText(n.Value(source)))
		if n.SoftLineBreak() || n.HardLineBreak() {
			out += "\n"
		}
		return out
	case *ast.String:
		return render(in, plainText(n.Value))
	case *ast.CodeSpan:
		return m.marked(render(m.theme.Code.Inherit(in), codeText(n, source)), "`")
	case *ast.Emphasis:
		if n.Level == 1 {
			return m.marked(m.inline(n, source, in.Italic(m.look.Color)), "*")
		}
		return m.marked(m.inline(n, source, in.Bold(m.look.Color)), "**")
	case *east.Strikethrough:
		return m.marked(m.inline(n, source, in.Strikethrough(m.look.Color)), "~~")
	case *ast.AutoLink:
		return render(m.theme.Target.Inherit(in), cell.Sanitize(string(n.Label(source))))
	case *ast.Link:
		return m.link(m.inline(n, source, m.theme.Link.Inherit(in)), n.Destination, in)
	case *ast.Image:
		alt := m.inline(n, source, m.theme.Dim.Inherit(in))
		if alt != "" {
			alt = render(m.theme.Dim.Inherit(in), "Image: ") + alt + render(m.theme.Dim.Inherit(in), " →")
		}
		return m.link(alt, n.Destination, in)
	}
	return m.inline(n, source, in)
}

// link is the words of a link and where it leads, which is shown: what it is called is
// somebody else's word for it.
func (m *markdown) link(words string, destination []byte, in lipgloss.Style) string {
	target := plainText(destination)
	is := ansi.Strip(words)
	switch {
	case target == "" || target[0] == '#' || is == target || "mailto:"+is == target:
		return words
	case words != "":
		words += render(in, " ")
	}
	return words + render(m.theme.Target.Inherit(in), target)
}

// marked is a text between marks where there are no colours.
func (m *markdown) marked(text, mark string) string {
	if m.look.Color {
		return text
	}
	return mark + text + mark
}

// render styles a text on one line. lipgloss would write the style anew before each
// character where it has a line below or through it.
func render(style lipgloss.Style, text string) string {
	if text == "" {
		return ""
	}
	open, end, _ := strings.Cut(style.Render("x"), "x")
	return open + text + end
}

// codeText is what stands between backticks, on one line.
func codeText(n ast.Node, source []byte) string {
	var out strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if text, ok := child.(*ast.Text); ok {
			out.Write(text.Value(source))
		}
	}
	return strings.ReplaceAll(cell.Sanitize(out.String()), "\n", " ")
}

// longestReference is that of a character by its name.
const longestReference = 40

// plainText is a text of Markdown without backslashes and references to characters,
// sanitised and on one line: a reference can be to a control character.
func plainText(source []byte) string {
	var out strings.Builder
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case c == '\\' && i+1 < len(source) && util.IsPunct(source[i+1]):
			i++
			out.WriteByte(source[i])
		case c == '&':
			reference, character := referenceTo(string(source[i:min(i+longestReference, len(source))]))
			out.WriteString(character)
			i += len(reference) - 1
		default:
			out.WriteByte(c)
		}
	}
	return strings.ReplaceAll(cell.Sanitize(out.String()), "\n", " ")
}

// referenceTo is the reference that a text begins with, and its character; "&" is
// itself where it begins none.
func referenceTo(text string) (reference, character string) {
	if end := strings.IndexByte(text, ';'); end > 0 {
		reference = text[:end+1]
		character = html.UnescapeString(reference)
		if character != reference && (character == ";" || !strings.HasSuffix(character, ";")) {
			return reference, character
		}
	}
	return "&", "&"
}

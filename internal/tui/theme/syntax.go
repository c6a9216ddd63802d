package theme

import (
	"strings"

	"charm.land/lipgloss/v2"

	"noused/internal/tui/highlight"
)

// Syntax are the styles of source code, by what a piece of it is. What has no
// style of its own is in the terminal's own colour. The zero Syntax styles nothing.
type Syntax struct {
	Comment  lipgloss.Style
	Keyword  lipgloss.Style
	Type     lipgloss.Style
	Function lipgloss.Style
	String   lipgloss.Style
	Number   lipgloss.Style // and constants
	Name     lipgloss.Style // of a variable, a key, an attribute
	Tag      lipgloss.Style
	Meta     lipgloss.Style // a decorator, a directive
	Added    lipgloss.Style // a line of a diff
	Removed  lipgloss.Style
}

// NewSyntax is the colours of code on a dark or a light background: those that
// GitHub has, but where they are too pale.
func NewSyntax(dark bool) Syntax {
	fg := func(onDark, onLight string) lipgloss.Style {
		if dark {
			onLight = onDark
		}
		return lipgloss.NewStyle().Foreground(colour(onLight))
	}
	return Syntax{
		Comment:  fg(onDark.dim, onLight.dim).Italic(true),
		Keyword:  fg("#ff7b72", "#b3202c"),
		Type:     fg("#ffa657", "#8a3500"),
		Function: fg("#d2a8ff", "#7a46d8").Bold(true),
		String:   fg("#a5d6ff", "#0a3069"),
		Number:   fg("#79c0ff", "#0550ae"),
		Name:     fg("#79c0ff", "#0550ae"),
		Tag:      fg("#7ee787", "#116329"),
		Meta:     fg(onDark.dim, onLight.dim).Bold(true),
		Added:    fg(onDark.ok, onLight.ok),
		Removed:  fg(onDark.fail, onLight.fail),
	}
}

// Render is a line of code in its colours.
func (s *Syntax) Render(line []highlight.Token) string {
	var out strings.Builder
	for _, token := range line {
		if style := s.style(token.Kind); style != nil {
			out.WriteString(style.Render(token.Text))
		} else {
			out.WriteString(token.Text)
		}
	}
	return out.String()
}

// style is the one of a kind of code, nil for text.
func (s *Syntax) style(kind highlight.Kind) *lipgloss.Style {
	switch kind {
	case highlight.Comment:
		return &s.Comment
	case highlight.Keyword:
		return &s.Keyword
	case highlight.Type:
		return &s.Type
	case highlight.Function:
		return &s.Function
	case highlight.String:
		return &s.String
	case highlight.Number:
		return &s.Number
	case highlight.Name:
		return &s.Name
	case highlight.Tag:
		return &s.Tag
	case highlight.Meta:
		return &s.Meta
	case highlight.Added:
		return &s.Added
	case highlight.Removed:
		return &s.Removed
	}
	return nil
}

package theme

import "charm.land/lipgloss/v2"

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
	}
}

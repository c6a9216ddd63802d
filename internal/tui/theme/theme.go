// Package theme gives the terminal interface its styles, one for each role that
// a text can play.
//
// The colours are exact ones, readable on every common dark or light background
// (contrast of at least 4.5 to 1 for text), and chosen so that they stay apart
// when the program that draws them lowers them to the 256 or 16 colours of the
// terminal. Plain text has no colour: it is in the terminal's own.
//
// A [Theme] is a value and may be used by any goroutine. The package refuses to
// look at the terminal or the environment: its caller knows both.
package theme

import (
	"image/color"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// Theme are the styles of the roles. The zero Theme styles nothing: the plain
// look.
type Theme struct {
	Text      lipgloss.Style // everything without a role of its own
	Dim       lipgloss.Style // less important text: details, ages, hints
	Accent    lipgloss.Style // what is active: the prompt mark, the running state, the leaf
	Title     lipgloss.Style // of an overlay, of a block
	User      lipgloss.Style // what the user said
	Assistant lipgloss.Style // what the model said
	Thinking  lipgloss.Style // what the model thought
	Tool      lipgloss.Style // a tool's name
	Error     lipgloss.Style // failed
	Warn      lipgloss.Style // look at this, but nothing failed
	OK        lipgloss.Style // worked
	Added     lipgloss.Style // a line that an edit adds
	Removed   lipgloss.Style // a line that an edit takes out
	Code      lipgloss.Style // code within a text
	Link      lipgloss.Style // what a link is called
	Target    lipgloss.Style // where it leads
	Match     lipgloss.Style // what a search found
	Border    lipgloss.Style // lines around and between; no text
	Selected  lipgloss.Style // the row that a key acts on
	AddedOn   lipgloss.Style // for Band: behind a line that an edit adds
	RemovedOn lipgloss.Style // behind one that it takes out
	UserOn    lipgloss.Style // behind what the user said
}

// palette are the colours of the roles that have one.
type palette struct {
	dim, accent, user, tool, fail, warn, ok, code, border string
	link, target                                          string
	selected, selectedOn                                  string
	text, addedOn, removedOn, userOn                      string
}

var (
	onDark = palette{
		dim: "#a0a0a0", accent: "#56b6f7", user: "#5fd7d7", tool: "#f7a7f7",
		fail: "#ff8787", warn: "#ffff87", ok: "#87d787", code: "#d7d787", border: "#8a8a8a",
		link: "#5fd787", target: "#5fafaf",
		selected: "#ffffff", selectedOn: "#1f4f8f",
		text: "#e4e4e4", addedOn: "#10301c", removedOn: "#3a1517", userOn: "#2b2b33",
	}
	onLight = palette{
		dim: "#626262", accent: "#0057b7", user: "#005f87", tool: "#870087",
		fail: "#b30000", warn: "#7a5200", ok: "#0a660a", code: "#874700", border: "#767676",
		link: "#006b45", target: "#006b6b",
		selected: "#000000", selectedOn: "#c0d8f8",
		text: "#1a1a1a", addedOn: "#e1f5e3", removedOn: "#fce8e8", userOn: "#eceff4",
	}
)

// New is the theme for a dark or a light background. Without color it tells
// roles apart by weight, slant and inversion only, as NO_COLOR asks.
func New(dark, color bool) Theme {
	if !color {
		return uncoloured()
	}
	p := onLight
	if dark {
		p = onDark
	}
	fg := func(hex string) lipgloss.Style { return lipgloss.NewStyle().Foreground(colour(hex)) }
	on := func(hex string) lipgloss.Style { return fg(p.text).Background(colour(hex)) }
	return Theme{
		Dim:      fg(p.dim),
		Accent:   fg(p.accent),
		Title:    fg(p.accent).Bold(true),
		User:     fg(p.user).Bold(true),
		Thinking: fg(p.dim).Italic(true),
		Tool:     fg(p.tool),
		Error:    fg(p.fail),
		Warn:     fg(p.warn),
		OK:       fg(p.ok),
		Added:    fg(p.ok),
		Removed:  fg(p.fail),
		Code:     fg(p.code),
		Link:     fg(p.link).Bold(true),
		Target:   fg(p.target).Underline(true),
		Match:    fg(p.warn).Bold(true),
		Border:   fg(p.border),
		Selected: fg(p.selected).Background(colour(p.selectedOn)),

		AddedOn: on(p.addedOn), RemovedOn: on(p.removedOn), UserOn: on(p.userOn),
	}
}

func uncoloured() Theme {
	plain := lipgloss.NewStyle()
	return Theme{
		Dim:      plain.Faint(true),
		Accent:   plain.Bold(true),
		Title:    plain.Bold(true),
		User:     plain.Bold(true),
		Thinking: plain.Faint(true).Italic(true),
		Error:    plain.Bold(true),
		Warn:     plain.Bold(true),
		Match:    plain.Bold(true).Underline(true),
		Border:   plain.Faint(true),
		Selected: plain.Reverse(true),
	}
}

// Band is a line on the background of a style, filled up to a width. What the line has of
// colours stays in front of it. A style without a background leaves the line as it is.
func Band(style lipgloss.Style, line string, width int) string {
	bg := style.GetBackground()
	if _, none := bg.(lipgloss.NoColor); none {
		return line
	}
	begin := ansi.NewStyle().ForegroundColor(style.GetForeground()).BackgroundColor(bg).String()
	fill := strings.Repeat(" ", max(width-ansi.StringWidth(line), 0))
	return begin + strings.ReplaceAll(line, ansi.ResetStyle, ansi.ResetStyle+begin) + fill + ansi.ResetStyle
}

func colour(hex string) color.Color { return lipgloss.Color(hex) }

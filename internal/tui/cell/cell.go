// Package cell measures and cuts text in terminal cells: the one place where the
// terminal interface decides how wide a text is. What of somebody else's text
// may reach the terminal is said by package plaintext.
//
// Every function is pure and may be called from any goroutine. The package
// refuses to style, and to lay out more than a line or a block of lines.
package cell

import (
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"noused/internal/format"
	"noused/internal/plaintext"
)

// tabStop is how far apart the columns are to which a tab goes.
const tabStop = 4

// Sanitize is text as plaintext.Clean lets it through, with tabs as spaces.
func Sanitize(text string) string {
	if isPlain(text) {
		return text
	}
	text = plaintext.Clean(text)
	if strings.IndexByte(text, '\t') < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+2*tabStop)
	column := 0 // in characters: only to place tabs, so widths are not worth their price
	for _, r := range text {
		switch r {
		case '\t':
			n := tabStop - column%tabStop
			out = append(out, "    "[:n]...)
			column += n
			continue
		case '\n':
			column = -1
		}
		out = utf8.AppendRune(out, r)
		column++
	}
	return string(out)
}

// isPlain tells whether text is printable ASCII and line breaks, as most is.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c != '\n' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

// Line is text sanitised and on one line: every run of white space is one
// space, and what lies beyond the first limit bytes is not looked at and shown
// as "…".
func Line(text string, limit int) string {
	cut := len(text) > limit
	text = strings.Join(strings.Fields(Sanitize(format.Cut(text, limit))), " ")
	if cut {
		text += "…"
	}
	return text
}

// Width is how many cells text takes, which may be styled and must be one line.
func Width(text string) int {
	if w, ok := simpleWidth(text); ok {
		return w
	}
	return ansi.StringWidth(text)
}

// simpleWidth is the width of printable ASCII, "…", lines of frames and styles,
// which is nearly everything and needs no look at its grapheme clusters.
func simpleWidth(text string) (width int, ok bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case ' ' <= c && c <= '~':
			width++
		case strings.HasPrefix(text[i:], "…"), strings.HasPrefix(text[i:], "\xe2\x94") && i+2 < len(text): // U+2500 to U+253F
			i += len("…") - 1
			width++
		case strings.HasPrefix(text[i:], "\x1b["):
			end := strings.IndexByte(text[i:], 'm')
			if end < 0 || strings.Trim(text[i+2:i+end], "0123456789;:") != "" {
				return 0, false
			}
			i += end
		default:
			return 0, false
		}
	}
	return width, true
}

// Truncate is text in at most width cells, its end replaced by "…" if it does
// not fit. It may be styled.
func Truncate(text string, width int) string {
	switch {
	case width <= 0:
		return ""
	case Width(text) <= width:
		return text
	case isPlain(text):
		return text[:width-1] + "…"
	}
	return ansi.Truncate(text, width, "…")
}

// TruncateLeft is text in at most width cells, its beginning replaced by "…"
// if it does not fit: for paths and for a line that is being typed.
func TruncateLeft(text string, width int) string {
	if width <= 0 {
		return ""
	}
	for over := Width(text) - width; over > 0; over++ {
		// A wide character that straddles the cut leaves one cell too many.
		switch cut := ansi.TruncateLeft(text, over+1, "…"); {
		case cut == "":
			return "…"
		case Width(cut) <= width:
			return cut
		}
	}
	return text
}

// Fit is text in exactly width cells: truncated, or followed by spaces.
func Fit(text string, width int) string {
	w := Width(text)
	if w > width {
		text = Truncate(text, width)
		w = Width(text)
	}
	return text + strings.Repeat(" ", max(width-w, 0))
}

// Block is lines as exactly height lines of exactly width cells, joined by line
// breaks: what is too much is cut, what is missing is blank.
func Block(lines []string, width, height int) string {
	fitted := make([]string, max(height, 0))
	for i := range fitted {
		var line string
		if i < len(lines) {
			line = lines[i]
		}
		fitted[i] = Fit(line, width)
	}
	return strings.Join(fitted, "\n")
}

// Wrap breaks text, which may be styled, into lines of at most width cells:
// between words where it can, else between characters. Styles go on in the next
// line, each line ends what it began.
func Wrap(text string, width int) []string {
	if width <= 0 {
		return nil
	}
	lines := strings.Split(lipgloss.Wrap(text, width, ""), "\n")
	for i, line := range lines {
		lines[i] = Truncate(line, width)
	}
	return lines
}

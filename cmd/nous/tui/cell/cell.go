// Package cell measures, cleans and cuts text in terminal cells: the one place
// where the terminal interface decides how wide a text is and what of somebody
// else's text may reach the terminal.
//
// Every function is pure and may be called from any goroutine. The package
// refuses to style, and to lay out more than a line or a block of lines.
package cell

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// tabStop is how far apart the columns are to which a tab goes.
const tabStop = 4

// escapes are terminal sequences. One that never ends takes no more than its
// line with it.
var escapes = regexp.MustCompile(
	"(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]?" + // CSI
		"|(?:\x1b[\\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\x07\x1b\n\u009c]*(?:\x07|\x1b\\\\|\u009c)?" + // OSC, DCS, SOS, PM, APC
		"|\x1b[ -/]*[0-~]?")

// Sanitize is text without what would let it drive the terminal or lie about
// its own order: escape sequences, control characters, and the characters that
// reorder a line are gone, invalid UTF-8 is shown as U+FFFD, tabs are spaces.
// Line breaks stay. Of a line that a carriage return wrote over, the last
// writing is left, as on a terminal.
func Sanitize(text string) string {
	if isPlain(text) {
		return text
	}
	text = strings.ToValidUTF8(text, "\ufffd")
	if strings.ContainsFunc(text, func(r rune) bool { return r == '\x1b' || r >= 0x80 && r <= 0x9f }) {
		text = escapes.ReplaceAllString(text, "")
	}
	var out strings.Builder
	out.Grow(len(text))
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		sanitizeLine(&out, line)
	}
	return out.String()
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

func sanitizeLine(out *strings.Builder, line string) {
	column := 0 // only to place tabs, so a grapheme's width is not worth its price
	for _, r := range line {
		switch {
		case r == '\t':
			n := tabStop - column%tabStop
			out.WriteString(strings.Repeat(" ", n))
			column += n
		case r == '\u2028' || r == '\u2029':
			out.WriteByte('\n')
			column = 0
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r >= 0xe0000 && r <= 0xe007f || r == '\ufeff':
		default:
			out.WriteRune(r)
			column++
		}
	}
}

// Line is text sanitised and on one line: every run of white space is one
// space, and what lies beyond the first limit bytes is not looked at and shown
// as "…".
func Line(text string, limit int) string {
	cut := len(text) > limit
	if cut {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	text = strings.Join(strings.Fields(Sanitize(text)), " ")
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

// Package cell measures, cleans and cuts text in terminal cells: the one place
// where the terminal interface decides how wide a text is and what of somebody
// else's text may reach the terminal.
//
// Every function is pure and may be called from any goroutine. The package
// refuses to style, and to lay out more than a line or a block of lines.
package cell

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// tabStop is how far apart the columns are to which a tab goes.
const tabStop = 4

// Sanitize is text without what would let it drive the terminal or lie about
// its own order: escape sequences, control characters, and the characters that
// reorder a line are gone, invalid UTF-8 is shown as U+FFFD, tabs are spaces.
// Line breaks stay. Of a line that a carriage return wrote over, the last
// writing is left, as on a terminal.
func Sanitize(text string) string {
	if isPlain(text) {
		return text
	}
	c := cleaner{out: make([]byte, 0, len(text)+utf8.UTFMax)}
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if n := escape(rest, r, size); n > 0 {
			rest = rest[n:]
			continue
		}
		c.add(r, r == utf8.RuneError && size == 1)
		rest = rest[size:]
	}
	return string(c.out)
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

// cleaner collects what is left of a text.
type cleaner struct {
	out      []byte
	line     int  // where in out the line begins
	column   int  // in characters: only to place tabs, so widths are not worth their price
	returned bool // a carriage return came: what is next writes over the line
	invalid  bool // the last one was no character; a run of these is shown once
}

func (c *cleaner) add(r rune, invalid bool) {
	again := invalid && c.invalid
	c.invalid = invalid
	switch {
	case again:
		return
	case r == '\r':
		c.returned = true
		return
	case r == '\n' || r == '\u2028' || r == '\u2029':
		c.out = append(c.out, '\n')
		c.line, c.column, c.returned = len(c.out), 0, false
		return
	case r != '\t' && refused(r):
		return
	}
	if c.returned {
		c.out, c.column, c.returned = c.out[:c.line], 0, false
	}
	if r != '\t' {
		c.out = utf8.AppendRune(c.out, r)
		c.column++
		return
	}
	for n := tabStop - c.column%tabStop; n > 0; n-- {
		c.out = append(c.out, ' ')
		c.column++
	}
}

// refused are control characters, those that reorder a line, and those that are
// never seen but carry text (tag characters).
func refused(r rune) bool {
	switch {
	case r < ' ', 0x7f <= r && r <= 0x9f, r == '\ufeff', 0xe0000 <= r && r <= 0xe007f:
		return true
	}
	return r >= 0x061c && unicode.Is(unicode.Bidi_Control, r)
}

// escape is how many bytes a terminal sequence takes with which text begins, 0
// if it does not begin with one. One that never ends takes no more than its
// line. The first character and its size are given.
func escape(text string, r rune, size int) int {
	if r == 0x1b {
		if len(text) == 1 {
			return 1
		}
		switch next := text[1]; {
		case next == '[':
			return control(text, 2)
		case strings.IndexByte("]PX^_", next) >= 0:
			return command(text, 2)
		}
		n := skip(text, 1, ' ', '/')
		return min(skip(text, n, '0', '~'), n+1)
	}
	switch r {
	case 0x9b:
		return control(text, size)
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f:
		return command(text, size)
	}
	return 0
}

// skip is where in text, from i on, the first byte not in a range is.
func skip(text string, i int, from, to byte) int {
	for i < len(text) && from <= text[i] && text[i] <= to {
		i++
	}
	return i
}

// control is where a CSI sequence ends whose parameters begin at i.
func control(text string, i int) int {
	i = skip(text, skip(text, i, '0', '?'), ' ', '/')
	return min(skip(text, i, '@', '~'), i+1)
}

// command is where an OSC, DCS, SOS, PM or APC sequence ends whose text begins
// at i.
func command(text string, i int) int {
	for ; i < len(text); i++ {
		switch text[i] {
		case '\n':
			return i
		case '\a':
			return i + 1
		case 0x1b:
			if strings.HasPrefix(text[i:], "\x1b\\") {
				return i + 2
			}
			return i
		case 0xc2:
			if strings.HasPrefix(text[i:], "\u009c") {
				return i + 2
			}
		}
	}
	return i
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

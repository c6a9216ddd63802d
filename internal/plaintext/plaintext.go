// Package plaintext is the one filter between somebody else's text and a
// terminal, a pipe or a file that will be looked at in one: what a model, a
// tool, a server or a file's name says must not drive the terminal, nor lie
// about the order of its own characters.
//
// The rules, for text (Clean) and for JSON (JSON):
//
//   - TAB and LF stay. Everything that is printable stays, emoji and their
//     joiners too.
//   - Escape sequences (CSI, OSC, DCS, SOS, PM, APC and the short ones, in 7 and
//     in 8 bits) go as a whole; one that never ends takes no more than its line.
//   - Of a line that a carriage return wrote over the last writing is left, as
//     on a terminal; in messages and files (Text) it breaks the line. CR LF is LF.
//     U+2028 and U+2029 are LF.
//   - Every other control character goes: C0, DEL, C1 (U+0080 to U+009F).
//   - So do the characters that reorder a line (U+061C, U+200E, U+200F, U+202A to
//     U+202E, U+2066 to U+2069), the byte order mark, and the tag characters
//     (U+E0000 to U+E007F), which are never seen but carry text.
//   - A run of bytes that is no UTF-8 is shown as one U+FFFD.
//
// In JSON nothing goes: the same characters are written \uXXXX, so that the value
// stays what it was.
//
// Every function is pure and may be called from any goroutine. The package
// refuses to measure, to cut and to style.
package plaintext

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Clean is text by the rules above. A second time it changes nothing. What is
// printable ASCII is returned as it is and costs one look at each byte.
func Clean(text string) string {
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

// Text is Clean for what is read and not watched, as messages are: nothing writes over what
// came before, so that a carriage return is a line break. One at the end goes, as a line
// feed may follow in what comes next.
func Text(text string) string {
	if i := strings.IndexByte(text, '\r'); i >= 0 && i < len(text)-1 {
		text = breaks.Replace(strings.TrimSuffix(text, "\r"))
	}
	return Clean(text)
}

var breaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// isPlain tells whether text is printable ASCII, tabs and line breaks, as most is.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// cleaner collects what is left of a text.
type cleaner struct {
	out      []byte
	line     int  // where in out the line begins
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
		c.line, c.returned = len(c.out), false
		return
	case refused(r):
		return
	}
	if c.returned {
		c.out, c.returned = c.out[:c.line], false
	}
	c.out = utf8.AppendRune(c.out, r)
}

// refused are the characters that do not stay, but for those that end a line.
func refused(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < ' ', 0x7f <= r && r <= 0x9f, r == '\ufeff', 0xe0000 <= r && r <= 0xe007f:
		return true
	}
	return r >= 0x061c && unicode.Is(unicode.Bidi_Control, r)
}

// escape is how many bytes a terminal sequence takes with which text begins, 0
// if it does not begin with one. The first character and its size are given.
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

// JSON is a JSON text of equal value without the characters that Clean takes
// out: in its strings they are written \uXXXX, and a carriage return between its
// tokens is a space. What is no UTF-8 is U+FFFD. A text with nothing to escape is
// returned itself, not a copy.
func JSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, unfit) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\r': // no string has one as it is
			out = append(out, ' ')
		case !unfit(r):
			out = append(out, text[:size]...)
		case r == utf8.RuneError:
			out = utf8.AppendRune(out, r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return out
}

// unfit is what JSON does not leave as it is. A U+FFFD may be one or stand for
// bytes that are none.
func unfit(r rune) bool {
	return r == utf8.RuneError || r == '\u2028' || r == '\u2029' || refused(r)
}

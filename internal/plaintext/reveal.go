package plaintext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reveal is text with everything in it that a terminal does not show as itself
// written as its number, ⟨U+202E⟩: for what somebody is to judge, where Clean
// would hide what is there. LF stays, and so do tabs. hidden: there was such a
// character.
func Reveal(text string) (shown string, hidden bool) {
	if isPlain(text) {
		return text, false
	}
	var out strings.Builder
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, "⟨%02X⟩", rest[0])
			hidden = true
		case unseen(r):
			fmt.Fprintf(&out, "⟨U+%04X⟩", r)
			hidden = true
		default:
			out.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return out.String(), hidden
}

// unseen tells whether a character cannot be seen, looks like a space and is none,
// or acts on its neighbours.
func unseen(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || ' ' <= r && r <= '~':
		return false
	case r == 0x2800: // a blank of braille
		return true
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Bidi_Control)
}

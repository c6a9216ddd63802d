package plaintext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reveal is text as somebody is shown it who is to judge it: nothing of it goes, as
// it would with Clean, and no two texts look the same. What a terminal does not show
// as itself is written as its number, ⟨U+202E⟩, and a byte that is no UTF-8 as ⟨FF⟩:
// controls, what reorders, joins or is not seen, other blanks than a space, a space
// that ends a line, a line break that ends the text, accents that no letter carries
// or of which there are more than two, and the brackets themselves. A tab is "⇥   ".
// Other line breaks stay. hidden: something is written as its number.
func Reveal(text string) (shown string, hidden bool) {
	if isShown(text) {
		return text, false
	}
	shown, _, hidden = reveal(text, false, len(text)*len("⟨U+10FFFF⟩"))
	return shown, hidden
}

// RevealLine is Reveal in which line breaks are written as their number, too: for
// what stands on a line of its own.
func RevealLine(text string) string {
	shown, _ := RevealHead(text, len(text)*len("⟨U+10FFFF⟩"))
	return shown
}

// RevealHead is as much of the beginning of RevealLine as has at most width
// characters, and how many bytes of the text are not in it.
func RevealHead(text string, width int) (shown string, left int) {
	shown, left, _ = reveal(text, true, width)
	return shown, left
}

// isShown tells whether text is printable ASCII and line breaks, without a blank
// that cannot be seen, as most is.
func isShown(text string) bool {
	for i := range len(text) {
		c := text[i]
		ends := i+1 == len(text)
		if (c < ' ' || c > '~') && c != '\n' || c == '\n' && ends || c == ' ' && (ends || text[i+1] == '\n') {
			return false
		}
	}
	return true
}

const (
	shownTab = "⇥   "
	// mostMarks is how many accents a letter has: two in Vietnamese.
	mostMarks = 2
)

func reveal(text string, oneLine bool, width int) (shown string, left int, hidden bool) {
	var out strings.Builder
	marks := mostMarks // of the letter before
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		end := i+size == len(text)
		piece, number := text[i:i+size], false
		mark := unicode.Is(unicode.M, r)
		switch {
		case r == '\t':
			piece = shownTab
		case r == '\n':
			number = oneLine || end
		case r == ' ':
			number = end || text[i+size] == '\n'
		case mark && marks == mostMarks, r == utf8.RuneError && size == 1:
			number = true
		default:
			number = unseen(r)
		}
		switch {
		case !number:
		case r == utf8.RuneError && size == 1:
			piece = fmt.Sprintf("⟨%02X⟩", text[i])
		default:
			piece = fmt.Sprintf("⟨U+%04X⟩", r)
		}
		if width -= utf8.RuneCountInString(piece); width < 0 {
			return out.String(), len(text) - i, hidden
		}
		switch {
		case number:
			marks = mostMarks
		case mark:
			marks++
		case unicode.IsLetter(r):
			marks = 0
		default:
			marks = mostMarks
		}
		hidden = hidden || number
		out.WriteString(piece)
		i += size
	}
	return out.String(), 0, hidden
}

// unseen tells whether a character cannot be seen, looks like a space, a semicolon or
// another of ASCII and is none, acts on its neighbours, or would be taken for one that
// Reveal writes.
func unseen(r rune) bool {
	switch r {
	case 0x2800, 0x1d159, 0x13441, 0x13442, 0x16fe4: // blanks: of braille, of music, of hieroglyphs, of Khitan
		return true
	case 0x037e, 0x1fef, 0x212a: // ; ` and K by other numbers
		return true
	case 0x27e8, 0x2329, 0x3008, 0x276c, 0x2991, 0x29fc, 0x21e5: // ⟨ and what looks like it, and ⇥
		return true
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
		unicode.Bidi_Control)
}

// RevealDiff is Reveal of a diff as the daemon makes it, whose lines begin with a mark,
// a number and a tab.
func RevealDiff(diff string) (shown string, hidden bool) {
	lines := strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
	for i, line := range lines {
		head, rest, cut := strings.Cut(line, "\t")
		if cut && strings.Trim(head, "+- 0123456789") == "" {
			head += " "
		} else {
			head, rest = "", line
		}
		rest = RevealLine(rest)
		hidden = hidden || strings.Contains(rest, "⟨")
		lines[i] = head + rest
	}
	return strings.Join(lines, "\n"), hidden
}

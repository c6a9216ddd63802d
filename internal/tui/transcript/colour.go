package transcript

import (
	"regexp"
	"strings"
	"sync"

	"charm.land/lipgloss/v2"

	"noused/internal/tui/cell"
	"noused/internal/tui/highlight"
	"noused/internal/tui/theme"
)

// diffLine is a line of a diff: its mark, the number that edit writes before the
// code and a tab, and the code. A header is code alone.
type diffLine struct{ mark, number, code string }

var numbered = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ *[0-9]+\t`) })

func parseDiff(text string) []diffLine {
	var out []diffLine
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		l := diffLine{code: line}
		if line != "" && strings.IndexByte("+- ", line[0]) >= 0 {
			l.mark, l.code = line[:1], line[1:]
			if number := numbered().FindString(l.code); number != "" {
				l.number, l.code = number[:len(number)-1]+" ", l.code[len(number):]
			}
		}
		l.code = cell.Sanitize(l.code)
		out = append(out, l)
	}
	return out
}

// diffLines draws the lines of a diff of a file in a language, "" if that is not
// known. What is taken out is of one colour; the rest has the language's, behind
// a mark in a colour of its own.
func (t *Transcript) diffLines(text, lang string, width int) []string {
	lines := parseDiff(text)
	coloured := t.coloured(lines, lang)
	var out []string
	for i, l := range lines {
		style, band, word := t.theme.Dim, lipgloss.Style{}, ""
		switch {
		case l.mark == "+":
			style, band, word = t.theme.Added, t.theme.AddedOn, "added: "
		case l.mark == "-":
			style, band, word = t.theme.Removed, t.theme.RemovedOn, "removed: "
		case strings.HasPrefix(l.code, "@@"):
			style = t.theme.Accent
		}
		var drawn []string
		switch {
		case t.look.Plain && word != "":
			drawn = wrap(word+l.number+l.code, width)
		case coloured != nil && (l.mark == "+" || l.mark == " "):
			drawn = wrap(style.Render(l.mark+l.number)+coloured[i], width)
		default:
			drawn = styled(style, wrap(l.mark+l.number+l.code, width))
		}
		for _, line := range drawn {
			out = append(out, theme.Band(band, line, width))
		}
	}
	return out
}

// coloured is the code of the lines that are there now, in the colours of its
// language, nil where there are none. The lines are read as one text, for a comment or a string may
// be longer than one.
func (t *Transcript) coloured(lines []diffLine, lang string) []string {
	if !t.look.Color || t.look.Plain || !highlight.Known(lang) {
		return nil
	}
	var code strings.Builder
	for _, l := range lines {
		if l.mark == "+" || l.mark == " " { // the file as it is now
			code.WriteString(l.code)
		}
		code.WriteByte('\n')
	}
	if code.Len() > 2*partBytes {
		return nil
	}
	return t.md.coloured(code.String(), lang)
}

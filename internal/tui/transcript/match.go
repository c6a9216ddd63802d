package transcript

import (
	"bytes"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// want is a text that is looked for in lines. It may go on in the next line
// where a line ends at a space, or was too long.
type want struct {
	text    string // without the white space around it
	exact   bool   // capital letters matter
	letters []byte // and digits, folded
	pattern *regexp.Regexp
	scratch []byte
}

// Where a line ends there is a broken line, which a word may go on behind, or
// another end, which stands for a space.
const (
	lineOver = '\n'
	brokenAt = '\v'
)

func wantOf(text string) want {
	w := want{text: strings.Join(strings.Fields(cell.Sanitize(text)), " ")}
	if w.text == "" {
		return w
	}
	w.exact = strings.ContainsFunc(w.text, unicode.IsUpper)
	w.letters = appendLetters(nil, w.text)
	var p strings.Builder
	if !w.exact {
		p.WriteString("(?i)")
	}
	word := false
	for _, r := range w.text {
		switch {
		case r == ' ':
			p.WriteString(`(?: *[\n\v] *| +)`)
		case word:
			p.WriteString(`(?: *\v *)?`)
		}
		if word = r != ' '; word {
			p.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	w.pattern = regexp.MustCompile(p.String())
	return w
}

// within tells whether nothing can match but where another text does.
func (w want) within(other want) bool { return strings.HasPrefix(w.text, other.text) }

// mayBeIn tells, at little cost, whether a text may have a match once it is
// drawn. Marks may be gone or others there then, but letters and digits stay.
func (w *want) mayBeIn(text string, markdown bool) bool {
	if markdown && strings.IndexByte(text, '&') >= 0 { // which may begin a character's name
		return true
	}
	if len(w.letters) > 0 {
		w.scratch = appendLetters(w.scratch[:0], text)
		return bytes.Contains(w.scratch, w.letters)
	}
	first, _ := utf8.DecodeRuneInString(w.text)
	return first >= utf8.RuneSelf || strings.ContainsRune(text, first)
}

// appendLetters appends the letters and digits of a text, capital or not the
// same.
func appendLetters(to []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z':
			to = append(to, c-'a'+'A')
		case 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
			to = append(to, c)
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if i += size - 1; unicode.IsLetter(r) || unicode.IsDigit(r) {
				to = utf8.AppendRune(to, folded(r))
			}
		}
	}
	return to
}

// folded is the same character for all that differ by their case only.
func folded(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// hit is where a match stands: in one line, or where it was broken in more.
type hit []stretch

// stretch is a part of a line, in cells.
type stretch struct{ line, from, to int }

// in finds the matches in lines that were drawn for a width.
func (w *want) in(lines []string, width int) []hit {
	plain := make([]string, len(lines))
	begins := make([]int, len(lines))
	var all strings.Builder
	for i, line := range lines {
		plain[i] = strings.TrimRight(ansi.Strip(line), " ")
		begins[i] = all.Len()
		all.WriteString(plain[i])
		if strings.HasSuffix(plain[i], "-") || cell.Width(plain[i]) >= width-1 { // a wide character leaves one free
			all.WriteByte(brokenAt)
		} else {
			all.WriteByte(lineOver)
		}
	}
	var hits []hit
	for _, at := range w.pattern.FindAllStringIndex(all.String(), -1) {
		var h hit
		for i := sort.SearchInts(begins, at[0]+1) - 1; i < len(lines) && begins[i] < at[1]; i++ {
			from, to := max(at[0]-begins[i], 0), min(at[1]-begins[i], len(plain[i]))
			if s := cells(plain[i], from, to); s.to > s.from {
				h = append(h, stretch{i, s.from, s.to})
			}
		}
		if len(h) > 0 {
			hits = append(hits, h)
		}
	}
	return hits
}

// cells are those that bytes of a line are drawn in, but for the spaces at their
// beginning, which are no part of what was written.
func cells(line string, from, to int) (s stretch) {
	for from < to && line[from] == ' ' {
		from++
	}
	column, begun := 0, false
	for at := 0; at < to; {
		cluster, w := ansi.FirstGraphemeCluster(line[at:], ansi.GraphemeWidth)
		if at += max(len(cluster), 1); at > from && !begun {
			s.from, begun = column, true
		}
		column += w
	}
	s.to = column
	return s
}

// lit are the lines of a piece with what was found in them.
func (t *Transcript) lit(b *block, i int, p *piece) []string {
	hits := t.matches(b, p)
	if len(hits) == 0 {
		return p.lines
	}
	look := theme.New(t.look.Dark, t.look.Color)
	others := look.Match.Reverse(t.look.Color)
	ranges := make([][]lipgloss.Range, len(p.lines))
	for n, h := range hits {
		style := others
		if at := t.find.at; at != nil && *at == (match{b, i, n}) {
			style = look.Selected
		}
		for _, s := range h {
			ranges[s.line] = append(ranges[s.line], lipgloss.NewRange(s.from, s.to, style))
		}
	}
	lines := slices.Clone(p.lines)
	for i, line := range lines {
		lines[i] = lipgloss.StyleRanges(line, ranges[i]...)
	}
	return lines
}

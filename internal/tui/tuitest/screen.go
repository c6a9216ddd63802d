package tuitest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/hinshun/vt10x"
)

// screen is vt10x with what it lacks: it knows characters of two cells and of
// several runes, repeats (REP), colours with colons, frames that are shown at
// once (mode 2026), and it answers what programs ask a terminal at their start.
// Sequences with a prefix that it would take for others are kept from it.
type screen struct {
	vt    vt10x.Terminal
	light bool
	modes map[int]bool

	rest    []byte // of an unfinished sequence
	frame   []byte // what is shown when the frame ends
	framing bool
	last    string // the last character, for REP
	glyphs  []string
	runes   map[string]rune
}

// Characters of several runes stand in a cell as one rune of this area, and the
// second cell of a wide one holds filler.
const (
	firstGlyph = 0xF0000
	filler     = 0xFFFFD
)

func newScreen(cols, rows int, light bool) *screen {
	return &screen{
		vt: vt10x.New(vt10x.WithSize(cols, rows)), light: light,
		modes: map[int]bool{25: true}, runes: map[string]rune{},
	}
}

func (s *screen) resize(cols, rows int) { s.vt.Resize(cols, rows) }

// write draws, and returns what the terminal answers.
func (s *screen) write(data []byte) (answers []byte) {
	data = append(s.rest, data...)
	s.rest = nil
	whole := wholeRunes(data)
	defer func(cut []byte) { s.rest = append(s.rest, cut...) }(data[whole:])
	data = data[:whole]
	parser := ansi.GetParser()
	defer ansi.PutParser(parser)
	for len(data) > 0 {
		seq, width, n, state := ansi.DecodeSequence(data, ansi.NormalState, parser)
		if n == len(data) && state != ansi.NormalState {
			s.rest = bytes.Clone(data)
			break
		}
		data = data[n:]
		switch {
		case width > 0:
			s.print(string(seq), width)
		case len(seq) > 1 && seq[0] == ansi.ESC:
			answers = append(answers, s.sequence(seq, parser)...)
		default:
			s.draw(seq)
		}
	}
	return answers
}

// wholeRunes is the length of data without a character that is cut off at its
// end.
func wholeRunes(data []byte) int {
	for i := len(data) - 1; i >= 0 && i >= len(data)-utf8.UTFMax; i-- {
		if utf8.RuneStart(data[i]) {
			if !utf8.FullRune(data[i:]) {
				return i
			}
			break
		}
	}
	return len(data)
}

// draw hands on to vt10x, at the frame's end while there is one.
func (s *screen) draw(data []byte) {
	if s.framing {
		s.frame = append(s.frame, data...)
		return
	}
	_, _ = s.vt.Write(data)
}

func (s *screen) print(glyph string, width int) {
	s.last = glyph
	r, size := utf8.DecodeRuneInString(glyph)
	if size < len(glyph) {
		r = s.runeFor(glyph)
	}
	s.draw(utf8.AppendRune(nil, r))
	for range width - 1 {
		s.draw(utf8.AppendRune(nil, filler))
	}
}

func (s *screen) runeFor(glyph string) rune {
	r, ok := s.runes[glyph]
	if !ok {
		r = rune(firstGlyph + len(s.glyphs))
		s.runes[glyph] = r
		s.glyphs = append(s.glyphs, glyph)
	}
	return r
}

func (s *screen) sequence(seq []byte, p *ansi.Parser) (answer []byte) {
	cmd := ansi.Cmd(p.Command())
	switch seq[1] {
	case '[':
		return s.csi(seq, cmd, p)
	case ']':
		return s.osc(seq)
	case 'P', '_', '^', 'X':
		return nil
	}
	s.draw(seq)
	return nil
}

func (s *screen) csi(seq []byte, cmd ansi.Cmd, p *ansi.Parser) (answer []byte) {
	first, _ := p.Param(0, 0)
	switch final, prefix := cmd.Final(), cmd.Prefix(); {
	case final == 'c' && prefix == 0:
		return []byte("\x1b[?62;22c")
	case final == 'p' && cmd.Intermediate() == '$' && prefix == '?':
		state := 0 // not known
		if first == 2026 {
			state = 2 // off
		}
		return fmt.Appendf(nil, "\x1b[?%d;%d$y", first, state)
	case prefix == '?' && (final == 'h' || final == 'l'):
		s.setModes(p, final == 'h')
		s.draw(seq)
	case prefix != 0 || cmd.Intermediate() != 0: // keyboard protocols, cursor shapes
	case final == 'b':
		n := max(first, 1)
		for range min(n, 1000) {
			s.print(s.last, ansi.StringWidth(s.last))
		}
	case final == 'm':
		s.draw(colons.replace(seq))
	case final == 't':
	case final == 'n' && first == 6:
		at := s.vt.Cursor()
		return fmt.Appendf(nil, "\x1b[%d;%dR", at.Y+1, at.X+1)
	default:
		s.draw(seq)
	}
	return nil
}

func (s *screen) setModes(p *ansi.Parser, set bool) {
	for i := range p.Params() {
		mode, _ := p.Param(i, 0)
		s.modes[mode] = set
		if mode != 2026 {
			continue
		}
		s.framing = set
		if !set {
			_, _ = s.vt.Write(s.frame)
			s.frame = s.frame[:0]
		}
	}
}

type replacer struct{}

var colons replacer

// replace writes a colour with colons as older terminals do: 38:2::1:2:3 as
// 38;2;1;2;3, and any underline as the plain one.
func (replacer) replace(seq []byte) []byte {
	if !bytes.ContainsRune(seq, ':') {
		return seq
	}
	params := strings.Split(string(seq[2:len(seq)-1]), ";")
	for i, param := range params {
		parts := strings.Split(param, ":")
		switch {
		case parts[0] == "4" && len(parts) > 1 && parts[1] == "0":
			params[i] = "24"
		case parts[0] == "4":
			params[i] = "4"
		case len(parts) == 6:
			params[i] = strings.Join(append(parts[:2:2], parts[3:]...), ";")
		default:
			params[i] = strings.Join(parts, ";")
		}
	}
	return []byte("\x1b[" + strings.Join(params, ";") + "m")
}

func (s *screen) osc(seq []byte) (answer []byte) {
	body := strings.TrimRight(string(seq[2:]), "\x07\x1b\\")
	back, front := "0000/0000/0000", "ffff/ffff/ffff"
	if s.light {
		back, front = front, back
	}
	switch body {
	case "10;?":
		return []byte("\x1b]10;rgb:" + front + "\x1b\\")
	case "11;?":
		return []byte("\x1b]11;rgb:" + back + "\x1b\\")
	}
	if strings.HasPrefix(body, "0;") || strings.HasPrefix(body, "2;") {
		s.draw(seq)
	}
	return nil
}

// cell is one character with its look.
type cell struct {
	text  string // "" in the second cell of a wide character
	style style
}

// style is a look; colours are "" for the terminal's own, a number of the
// palette, or #rrggbb.
type style struct {
	fg, bg                           string
	bold, italic, underline, reverse bool
}

// The bits of vt10x's Glyph.Mode.
const (
	bitReverse = 1 << iota
	bitUnderline
	bitBold
	_
	bitItalic
)

func (s *screen) rows() [][]cell {
	s.vt.Lock()
	defer s.vt.Unlock()
	cols, rows := s.vt.Size()
	out := make([][]cell, rows)
	for y := range rows {
		for x := range cols {
			out[y] = append(out[y], s.cell(s.vt.Cell(x, y)))
		}
	}
	return out
}

func (s *screen) cell(g vt10x.Glyph) cell {
	c := cell{style: style{
		bold: g.Mode&bitBold != 0, italic: g.Mode&bitItalic != 0,
		underline: g.Mode&bitUnderline != 0, reverse: g.Mode&bitReverse != 0,
	}}
	if c.style.reverse { // it swaps them by itself
		g.FG, g.BG = g.BG, g.FG
	}
	c.style.fg, c.style.bg = colour(g.FG), colour(g.BG)
	switch {
	case g.Char == filler:
	case g.Char >= firstGlyph && int(g.Char-firstGlyph) < len(s.glyphs):
		c.text = s.glyphs[g.Char-firstGlyph]
	case g.Char == 0:
		c.text = " "
	default:
		c.text = string(g.Char)
	}
	return c
}

func colour(c vt10x.Color) string {
	switch {
	case c >= vt10x.DefaultFG:
		return ""
	case c < 256:
		return strconv.Itoa(int(c))
	default:
		return fmt.Sprintf("#%06x", int(c))
	}
}

func (s *screen) text() string {
	var out strings.Builder
	for _, row := range s.rows() {
		var line strings.Builder
		for _, c := range row {
			line.WriteString(c.text)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// styled writes each run of one look that is not plain as {look|text}. A row's
// trailing blanks of the plain look are left out.
func (s *screen) styled() string {
	var out strings.Builder
	for _, row := range s.rows() {
		for len(row) > 0 && row[len(row)-1] == (cell{text: " "}) {
			row = row[:len(row)-1]
		}
		for _, run := range runs(row) {
			if look := run.style.String(); look != "" {
				out.WriteString("{" + look + "|" + run.text + "}")
			} else {
				out.WriteString(run.text)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// run is neighbours of one look.
type run struct {
	style style
	text  string
	x, n  int // the first cell, and how many
}

func runs(row []cell) []run {
	var out []run
	for x, c := range row {
		if n := len(out); n > 0 && out[n-1].style == c.style {
			out[n-1].text += c.text
			out[n-1].n++
			continue
		}
		out = append(out, run{c.style, c.text, x, 1})
	}
	return out
}

// String names a look in few words: "bold #ff0000 on 4".
func (s style) String() string {
	var words []string
	for _, w := range []struct {
		on   bool
		word string
	}{
		{s.bold, "bold"},
		{s.italic, "italic"},
		{s.underline, "underline"},
		{s.reverse, "reverse"},
		{s.fg != "", s.fg},
		{s.bg != "", "on " + s.bg},
	} {
		if w.on {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, " ")
}

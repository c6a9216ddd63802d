package transcript

import (
	"bytes"
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"noused/internal/client/conversation"
)

// Bounds of one part. They bound what is rendered again for each delta, and
// what a renderer is ever given at once.
const (
	partBytes, partLines   = 4 << 10, 40
	tableBytes, tableLines = 16 << 10, 200            // a table looks wrong in parts
	windowBytes            = tableBytes + 2*partBytes // that are parsed at once
)

// part is a piece of a text that can be rendered on its own.
type part struct {
	text   string
	code   bool   // the inside of a fenced code block
	plain  bool   // not Markdown: what was cut off a block too long for one part
	joined bool   // it goes on where the part before it ended: no blank line between
	lang   string // of code
}

// body is a text that may grow, cut into parts as it does. Where the cuts are
// depends on the text alone, not on how it came.
type body struct {
	plain bool // no Markdown: cut by size only
	text  *conversation.Text
	of    int // the text's count of replacements

	parts []part // what cannot change any more
	start int    // where the part begins that can
	now   open
}

// newBody is the body of an empty text.
func newBody(plain bool) body { return body{plain: plain, text: &conversation.Text{}} }

// open is how the text goes on where a part was cut off because of its size. The
// zero open is a new block.
type open struct {
	opener   string // the line that opened the code block that it is in
	indented bool   // it is in indented code
	plain    bool   // it is in something that says nothing in parts
	joined   bool
}

// cut looks at what has come since, and returns the parts that are complete and,
// with ok, what is left over.
func (b *body) cut() (done []part, rest part, ok bool) {
	if n := b.text.Replaced(); n != b.of {
		*b = body{plain: b.plain, text: b.text, of: n}
	}
	text := b.text.String()
	for b.advance(text) {
	}
	rest = b.rest(text[b.start:])
	return b.parts, rest, strings.TrimSpace(rest.text) != ""
}

// advance adds what is complete among the next lines, and tells whether it got
// anywhere. A line without an end is not looked at: it may become anything. Few
// blocks need more than the first window.
func (b *body) advance(text string) bool {
	was, left := b.start, text[b.start:]
	for _, window := range []int{2 * partBytes, windowBytes} {
		lines, long := wholeLines(left[:min(len(left), window)])
		switch {
		case b.plain:
			b.takePlain(text, was+lines)
		case lines > 0:
			b.addLines([]byte(b.now.opener+left[:lines]), was-len(b.now.opener))
		}
		switch {
		case b.start > was:
		case long:
			b.force(left[:breakAt(left, lines)])
		case window == windowBytes && len(left) > window: // blank lines
			b.force(left[:lines])
		}
		if b.start > was || len(left) <= window {
			break
		}
	}
	return b.start > was
}

// wholeLines is how much of a text is lines that are over and short enough for a
// part, and whether one that is too long stands behind them.
func wholeLines(text string) (n int, long bool) {
	for n < len(text) {
		end := strings.IndexByte(text[n:], '\n') + 1
		if end > partBytes || end == 0 && len(text)-n >= partBytes {
			return n, true
		}
		if end == 0 {
			break
		}
		n += end
	}
	return n, false
}

// breakAt is where a line that is too long for a part is broken: before a letter,
// which begins no block, and behind a space if there is one; else before what is
// no mark of a fence. It depends on a part's bytes of the line and no more.
func breakAt(text string, from int) int {
	line := text[from : from+partBytes]
	letter, character := 0, 0
	for i := len(line) - 1; i > partBytes/2; i-- {
		if utf8.RuneStart(line[i]) && strings.IndexByte(" \t`~", line[i]) < 0 {
			character = max(character, i)
		}
		if r, _ := utf8.DecodeRuneInString(line[i:]); !unicode.IsLetter(r) {
			continue
		}
		if line[i-1] == ' ' {
			return from + i
		}
		letter = max(letter, i)
	}
	return from + cmp.Or(letter, character, partBytes)
}

// takePlain cuts by size only.
func (b *body) takePlain(text string, end int) {
	lines := 0
	for at := b.start; at < end; {
		at += strings.IndexByte(text[at:], '\n') + 1
		if lines++; lines >= partLines || at-b.start >= partBytes {
			b.emit(part{text: text[b.start:at]}, at, open{joined: true})
			lines = 0
		}
	}
}

// addLines adds the parts that are complete in whole lines. shift is where these
// begin in the text.
func (b *body) addLines(lines []byte, shift int) {
	all := groups(lines)
	from := len(b.now.opener)
	for i, g := range all {
		last := i == len(all)-1
		to := len(lines)
		if !last {
			to = all[i+1].from
		}
		if g.isCode(b.now) {
			if !b.takeCode(g, lines, shift, last) {
				return
			}
			from = b.start - shift
			continue
		}
		for at := g.tooLong(lines, from, to); at > 0; at = g.tooLong(lines, from, to) {
			whole := b.now.plain || g.whole(lines, at)
			b.emit(b.textPart(lines[from:at]), shift+at, open{joined: true, plain: whole})
			if whole || !g.alikeFrom(lines, at) {
				return
			}
			from = at
		}
		if last {
			return
		}
		b.emit(b.textPart(lines[from:to]), shift+to, open{})
		from = to
	}
}

// takeCode adds a code block, in pieces where it is long, and tells whether it is
// over.
func (b *body) takeCode(g group, lines []byte, shift int, last bool) bool {
	var piece []byte
	n := 0
	for i := range g.code.Lines().Len() {
		line := g.code.Lines().At(i)
		code := line.Value(lines)
		blank := g.indented() && len(bytes.TrimSpace(code)) == 0 // then more of it has to come
		if blank && n == 0 {
			continue
		}
		piece = append(piece, code...)
		if n++; !blank && (n >= partLines || len(piece) >= partBytes) {
			b.emit(b.codePart(g, piece, lines), shift+line.Stop, g.goesOn(lines))
			piece, n = nil, 0
		}
	}
	if last && !g.over {
		return false
	}
	if len(piece) == 0 && b.now.joined {
		b.start, b.now = shift+g.end, open{}
	} else {
		b.emit(b.codePart(g, piece, lines), shift+g.end, open{})
	}
	return true
}

// force ends the part within a line.
func (b *body) force(text string) {
	end := b.start + len(text)
	if b.plain {
		b.emit(part{text: text}, end, open{joined: true})
		return
	}
	source := []byte(b.now.opener + text)
	all := groups(source)
	if len(all) == 1 && all[0].isCode(b.now) {
		b.emit(b.codePart(all[0], all[0].code.Lines().Value(source), source), end, all[0].goesOn(source))
		return
	}
	next := open{joined: true, plain: b.now.plain}
	if n := len(all); n > 0 && all[n-1].isCode(open{}) { // begun in this part
		next = all[n-1].goesOn(source)
	}
	b.emit(b.textPart([]byte(text)), end, next)
}

// rest is the part that can still change.
func (b *body) rest(text string) part {
	if b.plain {
		return part{text: text, plain: true, joined: b.now.joined}
	}
	source := []byte(b.now.opener + text)
	all := groups(source)
	if len(all) != 1 || !all[0].isCode(b.now) {
		return b.textPart([]byte(text))
	}
	return b.codePart(all[0], all[0].code.Lines().Value(source), source)
}

func (b *body) textPart(text []byte) part {
	return part{text: string(text), plain: b.now.plain, joined: b.now.joined}
}

func (b *body) codePart(g group, code, source []byte) part {
	return part{text: string(code), code: true, lang: g.lang(source), joined: b.now.joined}
}

// emit adds a part that ends at an offset, and notes how the text goes on.
func (b *body) emit(p part, end int, next open) {
	if p.plain = p.plain || b.plain; b.plain || p.code || strings.TrimSpace(p.text) != "" {
		b.parts = append(b.parts, p)
	}
	b.start, b.now = end, next
}

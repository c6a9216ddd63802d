package transcript

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Bounds of one part. They bound what is rendered again for each delta, and
// what a renderer is ever given at once.
const (
	partBytes, partLines   = 4 << 10, 40
	tableBytes, tableLines = 16 << 10, 200 // a table looks wrong in parts
	maxText                = 16 << 20      // bytes of one message that are kept
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
// depends on the text alone, not on how it came. The zero body is an empty
// Markdown text.
type body struct {
	plain bool // no Markdown: cut by size only
	text  strings.Builder
	over  bool // more came than is kept

	parts []part // what cannot change any more
	start int    // where the part begins that can
	seen  int    // where the first line begins that was not looked at
	now   open
}

// open is what is known of the part that is being read.
type open struct {
	lines              int
	blank              bool // the last line was blank
	list, table, plain bool
	indented           bool // code, by its indentation
	joined             bool
	fence              fence // within code, or within a list's item
	code               bool
	lang               string
}

// fence is what opened a code block: its character and how often.
type fence struct {
	char byte
	n    int
}

// add appends to the text, as far as that is kept.
func (b *body) add(s string) {
	if room := maxText - b.text.Len(); len(s) > room {
		b.over = true
		for room > 0 && !utf8.RuneStart(s[room]) {
			room--
		}
		s = s[:room]
	}
	b.text.WriteString(s)
}

// set replaces the text.
func (b *body) set(s string) {
	if !b.over && s == b.text.String() {
		return
	}
	*b = body{plain: b.plain}
	b.add(s)
}

// cut looks at the lines that have come since, and returns the parts that are
// complete and, with ok, what is left over.
func (b *body) cut() (done []part, rest part, ok bool) {
	text := b.text.String()
	for b.seen < len(text) {
		b.outdent(text)
		end := strings.IndexByte(text[b.seen:], '\n')
		if end >= 0 {
			end += b.seen + 1
		} else if len(text)-b.seen < partBytes {
			break
		}
		if end < 0 || end-b.seen > partBytes {
			end = breakAt(text, b.seen)
			b.force(text, end)
			continue
		}
		b.line(text, b.seen, end)
		b.seen = end
	}
	b.outdent(text)
	left := text[b.start:]
	if b.now.code { // the last line may be about to close it, or has nothing after it
		last := left[strings.LastIndexByte(left, '\n')+1:]
		if strings.Trim(last, string(b.now.fence.char)+" \r") == "" {
			left = left[:len(left)-len(last)]
		}
	}
	rest = b.partOf(left)
	return b.parts, rest, strings.TrimSpace(rest.text) != ""
}

// outdent ends indented code before a line that is none, be that whole or not.
func (b *body) outdent(text string) {
	if !b.now.indented {
		return
	}
	line, _, _ := strings.Cut(text[b.seen:], "\n")
	if indent, rest := indentOf(strings.TrimRight(line, "\r")); rest != "" && indent < 4 {
		b.emit(text, b.seen)
		b.now = open{}
	}
}

// breakAt is where a line that is too long for a part is broken.
func breakAt(text string, from int) int {
	end := from + partBytes
	if i := strings.LastIndexByte(text[from:end], ' '); i > partBytes/2 {
		return from + i + 1
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return end
}

// force ends the part within a line.
func (b *body) force(text string, end int) {
	b.emit(text, end)
	b.now.joined = true
	b.seen = end
}

func (b *body) partOf(text string) part {
	if b.now.indented {
		text = undent(text)
	}
	return part{text: text, code: b.now.code || b.now.indented, lang: b.now.lang, plain: b.plain || b.now.plain, joined: b.now.joined}
}

// undent takes its indentation off indented code, and the blank lines behind it.
func undent(text string) string {
	lines := strings.Split(strings.TrimRight(text, " \t\r\n"), "\n")
	for i, line := range lines {
		lines[i] = dedent(line, 4)
	}
	return strings.Join(lines, "\n") + "\n"
}

// emit ends the part at an offset. What is known of the next is set by the
// caller; within code it is code again.
func (b *body) emit(text string, end int) {
	if p := b.partOf(text[b.start:end]); b.plain || p.code || strings.TrimSpace(p.text) != "" {
		b.parts = append(b.parts, p)
	}
	b.start, b.now.lines = end, 0
}

func (b *body) line(text string, from, to int) {
	line := strings.TrimRight(text[from:to], "\r\n")
	s := &b.now
	switch {
	case b.plain:
		if s.lines++; s.lines >= partLines || to-b.start >= partBytes {
			b.emit(text, to)
			s.joined = true
		}
		return
	case s.code:
		b.codeLine(text, line, from, to)
		return
	}
	indent, rest := indentOf(line)
	if rest == "" {
		s.blank = true
		s.lines++
		return
	}
	if s.fence.n > 0 { // in a list's item
		if s.fence.closedBy(indent, rest) {
			s.fence = fence{}
		}
	} else if f, lang, ok := opening(rest); ok && (indent == 0 || indent < 4 && !s.list) {
		b.emit(text, from)
		b.start = to
		*s = open{code: true, fence: f, lang: lang}
		return
	} else {
		if s.blank && s.lines > 0 && !s.indented && !(s.list && (indent > 0 || marked(rest))) {
			b.emit(text, from)
			*s = open{}
		}
		if s.lines == 0 && indent >= 4 && !s.joined {
			s.indented = true
		}
		if marked(rest) { // an item may begin with a fence
			f, _, ok = openingOf(line[len(containers.FindString(line)):])
		}
		if ok && (s.list || marked(rest) && s.lines == 0 && !s.indented) {
			s.fence = f
		}
	}
	b.bound(text, from, indent, rest)
	switch {
	case s.lines == 0:
		s.list = !s.indented && marked(rest)
	case delimiter(rest):
		s.table = true
	}
	s.blank = false
	s.lines++
}

// bound ends a part that has become too long before the line at from: at an
// item where it is a list.
func (b *body) bound(text string, from, indent int, rest string) {
	s := &b.now
	size := from - b.start
	lines, bytes := partLines, partBytes
	if s.table || s.list && (indent > 0 || !marked(rest)) {
		lines, bytes = tableLines, tableBytes
	}
	if s.lines == 0 || s.lines < lines && size < bytes {
		return
	}
	b.emit(text, from)
	*s = open{joined: true, indented: s.indented, plain: s.table || s.plain || s.fence.n > 0}
}

func (b *body) codeLine(text, line string, from, to int) {
	s := &b.now
	if indent, rest := indentOf(line); s.fence.closedBy(indent, rest) {
		if from > b.start || !s.joined {
			b.emit(text, from)
		}
		b.start = to
		*s = open{}
		return
	}
	if s.lines++; s.lines >= partLines || to-b.start >= partBytes {
		b.emit(text, to)
		s.joined = true
	}
}

func indentOf(line string) (n int, rest string) {
	for i := range len(line) {
		switch line[i] {
		case ' ':
			n++
		case '\t':
			n += 4 - n%4
		default:
			return n, strings.TrimRight(line[i:], " \t")
		}
	}
	return n, ""
}

// containers are the marks of quotes and lists that a line begins with.
var containers = regexp.MustCompile(`^(?:[ \t]|>|[-*+][ \t]|[0-9]{1,9}[.)][ \t])*`)

// nameFences gives the code blocks of a text a language where they have none
// that is known: a renderer would try to guess it, which takes long.
func nameFences(text string, known func(string) bool) string {
	if !strings.Contains(text, "```") && !strings.Contains(text, "~~~") {
		return text
	}
	lines := strings.Split(text, "\n")
	var in fence
	for i, line := range lines {
		before := containers.FindString(line)
		rest := line[len(before):]
		if rest == "" {
			continue
		}
		if in.n > 0 && !strings.ContainsAny(before, "-*+.)") { // else an item begins, which ends the last one's code
			if in.closedBy(0, strings.TrimRight(rest, " \t")) {
				in = fence{}
			}
			continue
		}
		f, lang, ok := opening(rest)
		if !ok {
			continue
		}
		if in = f; !known(lang) {
			lines[i] = before + strings.Repeat(string(f.char), f.n) + "text"
		}
	}
	return strings.Join(lines, "\n")
}

// opening reads the line that opens a fenced code block.
func opening(line string) (f fence, lang string, ok bool) {
	if line[0] != '`' && line[0] != '~' {
		return f, "", false
	}
	f.char = line[0]
	info := strings.TrimLeft(line, line[:1])
	f.n = len(line) - len(info)
	if f.n < 3 || f.char == '`' && strings.IndexByte(info, '`') >= 0 {
		return fence{}, "", false
	}
	if words := strings.Fields(info); len(words) > 0 {
		lang = words[0]
	}
	return f, lang, true
}

func (f fence) closedBy(indent int, line string) bool {
	return f.n > 0 && line != "" && line[0] == f.char && len(line) >= f.n && strings.Trim(line, line[:1]) == "" && (indent < 4 || f.n > 0 && indent < 12)
}

// marked tells whether a line begins a list's item.
func marked(line string) bool {
	if line == "" {
		return false
	}
	switch line[0] {
	case '-', '*', '+':
		return len(line) == 1 || line[1] == ' ' || line[1] == '\t'
	}
	n := 0
	for n < len(line) && n < 10 && line[n] >= '0' && line[n] <= '9' {
		n++
	}
	return n > 0 && n < 10 && n < len(line) && (line[n] == '.' || line[n] == ')') && (n+1 == len(line) || line[n+1] == ' ')
}

// delimiter tells whether a line is the one between a table's head and rows.
func delimiter(line string) bool {
	return strings.IndexByte(line, '|') >= 0 && strings.IndexByte(line, '-') >= 0 && strings.Trim(line, "|:- \t") == ""
}

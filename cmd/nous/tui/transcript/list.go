package transcript

import (
	"regexp"
	"strings"

	"noused/cmd/nous/tui/cell"
)

// The library that renders Markdown runs the blocks of a list's item together.
// So lists are taken apart here: each item is a text of its own, which hangs
// beside its mark.

// item is one item of a list: its mark, and its text without the indentation.
type item struct {
	mark  string
	lines []string
	loose bool // a blank line stands before it
}

// itemStart is the line that begins an item: its indentation, its mark, and the
// room before its text.
var itemStart = regexp.MustCompile(`^([ ]*)([-*+]|[0-9]{1,9}[.)])(?:([ \t]+)(.*))?$`)

// task is the box of a task at the beginning of an item's text.
var task = regexp.MustCompile(`^\[([ xX])\][ \t]+`)

// isList tells whether a text begins with a list's item.
func isList(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	indent, rest := indentOf(line)
	return indent < 4 && rest != "" && marked(rest) && itemStart.MatchString(strings.TrimRight(line, " \t\r"))
}

// items takes a list apart.
func items(text string) []item {
	var all []item
	var in fence
	from, blank := 0, false // where the text of the current item begins
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		indent, rest := indentOf(line)
		m := itemStart.FindStringSubmatch(line)
		switch {
		case rest == "":
			blank = true
			if len(all) > 0 {
				all[len(all)-1].lines = append(all[len(all)-1].lines, "")
			}
			continue
		case m != nil && in.n == 0 && (len(all) == 0 || indent < from):
			it := item{mark: m[2], loose: blank && len(all) > 0}
			from = len(m[1]) + len(m[2]) + 1
			if room := len(m[3]); room >= 1 && room <= 4 && !strings.Contains(m[3], "\t") {
				from += room - 1
				it.lines = append(it.lines, m[4])
			} else if m[4] != "" { // what is further away is code
				it.lines = append(it.lines, strings.TrimPrefix(m[3], " ")+m[4])
			}
			all = append(all, it)
			rest = m[4]
		default:
			last := &all[len(all)-1]
			last.lines = append(last.lines, dedent(line, from))
		}
		blank = false
		if f, _, ok := openingOf(rest); in.n > 0 {
			if in.closedBy(max(indent-from, 0), rest) {
				in = fence{}
			}
		} else if ok {
			in = f
		}
	}
	return all
}

func openingOf(line string) (fence, string, bool) {
	if line == "" {
		return fence{}, "", false
	}
	return opening(line)
}

// dedent takes up to n columns of indentation off a line.
func dedent(line string, n int) string {
	for n > 0 && line != "" {
		switch line[0] {
		case ' ':
			n--
		case '\t':
			if n < 4 {
				return strings.Repeat(" ", 4-n) + line[1:]
			}
			n -= 4
		default:
			return line
		}
		line = line[1:]
	}
	return line
}

// list renders a list in at most width cells, as deep as anybody reads.
func (m *markdown) list(text string, width, depth int) []string {
	all := items(text)
	loose := false
	for _, it := range all {
		loose = loose || it.loose
	}
	var out []string
	for i, it := range all {
		if loose && i > 0 {
			out = append(out, "")
		}
		mark := it.mark
		if len(mark) == 1 {
			mark = "•"
		}
		if box := task.FindStringSubmatch(firstOf(it.lines)); box != nil {
			mark = "[ ]"
			if box[1] != " " {
				mark = "[✓]"
			}
			it.lines[0] = it.lines[0][len(box[0]):]
		}
		mark += " "
		room := width - cell.Width(mark)
		if room < 8 {
			out = append(out, wrap(mark+strings.Join(it.lines, "\n"), width)...)
			continue
		}
		for j, line := range m.item(it.lines, room, depth) {
			before := strings.Repeat(" ", cell.Width(mark))
			if j == 0 {
				before = mark
			}
			out = append(out, trimEnd(before+line))
		}
	}
	return out
}

func firstOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// item renders the text of an item: what is no list as any text, what is one as
// a list in the list.
func (m *markdown) item(lines []string, width, depth int) []string {
	var out []string
	apart := false // a blank line stands between the pieces
	add := func(drawn []string) {
		if apart && len(out) > 0 {
			out = append(out, "")
		}
		out, apart = append(out, drawn...), false
	}
	for len(lines) > 0 {
		for len(lines) > 0 && lines[0] == "" {
			lines, apart = lines[1:], true
		}
		n, isList := ofOneKind(lines)
		text := strings.Join(lines[:n], "\n")
		lines = lines[n:]
		switch trimmed := strings.TrimRight(text, "\n"); {
		case trimmed == "":
		case isList && depth < maxNesting:
			add(m.list(trimmed, width, depth+1))
		case isList:
			add(wrap(trimmed, width))
		default:
			add(m.text(trimmed, width))
		}
		apart = apart || strings.HasSuffix(text, "\n")
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// ofOneKind is how many of the lines are of one kind, a list or no list.
func ofOneKind(lines []string) (n int, list bool) {
	var in fence
	blank := false
	for i, line := range lines {
		indent, rest := indentOf(line)
		begins := in.n == 0 && indent < 4 && rest != "" && marked(rest) && itemStart.MatchString(strings.TrimRight(line, " \t"))
		switch {
		case i == 0:
			list = begins
		case !list && begins, list && blank && indent == 0 && rest != "" && !begins:
			return i, list
		}
		if f, _, ok := openingOf(rest); in.n > 0 {
			if in.closedBy(indent, rest) {
				in = fence{}
			}
		} else if ok {
			in = f
		}
		blank = rest == ""
	}
	return len(lines), list
}

// text renders blocks that are no lists.
func (m *markdown) text(text string, width int) []string {
	var b body
	b.set(text)
	parts, rest, ok := b.cut()
	if ok || rest.code {
		parts = append(parts[:len(parts):len(parts)], rest)
	}
	var out []string
	for i, p := range parts {
		if i > 0 && !p.joined && strings.Contains(text, "\n\n") {
			out = append(out, "")
		}
		switch {
		case p.code:
			out = append(out, m.code(p.text, p.lang, width)...)
		case p.plain:
			out = append(out, wrap(cell.Sanitize(p.text), width)...)
		default:
			out = append(out, m.render(p.text, width)...)
		}
	}
	return out
}

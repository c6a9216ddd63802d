package builtin

import (
	"fmt"
	"slices"
	"strings"

	"noused/internal/format"
)

// diffContext is how many lines around a change are shown.
const diffContext = 2

// detail is how much of a diff is shown: changes, lines of each side of one, and
// characters of a line.
type detail struct{ hunks, lines, text int }

var (
	brief = detail{10, 40, 200}          // for who knows what it wanted
	whole = detail{10_000, 10_000, 2000} // for who is to judge it
)

// diff shows what an edition changes: whole lines with their numbers, old ones
// after "-", new ones after "+", some around them after a blank.
func (e *edition) diff(most detail) string {
	var out strings.Builder
	// The number of the line at offset seen, up to where all is shown; lines and
	// hunks so far.
	line, seen, shown, grown, hunks := 1, 0, 0, 0, 0
	for i := 0; i < len(e.at); hunks++ {
		// One hunk has all places that share a line.
		start := strings.LastIndexByte(e.text[:e.at[i]], '\n') + 1
		end, changed := start, strings.Builder{}
		for {
			changed.WriteString(e.text[max(end, start):e.at[i]])
			changed.WriteString(e.after)
			end = e.at[i] + len(e.before)
			if i++; i == len(e.at) || strings.IndexByte(e.text[end:e.at[i]], '\n') >= 0 {
				break
			}
		}
		rest := lineEnd(e.text, end)
		changed.WriteString(e.text[end:rest])
		line += strings.Count(e.text[seen:start], "\n")
		seen = start
		if hunks == most.hunks {
			fmt.Fprintf(&out, "[and more]\n")
			break
		}
		next := len(e.text)
		if i < len(e.at) {
			next = strings.LastIndexByte(e.text[:e.at[i]], '\n') + 1
		}
		h := hunk{rows(e.text[start:rest]), rows(changed.String()), line, line + grown}
		grown += h.show(&out, most, rows(lastLines(e.text[shown:start], diffContext)),
			rows(firstLines(e.text[rest:next], diffContext)))
		shown = rest
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// lineEnd is the offset after the line that at lies in.
func lineEnd(s string, at int) int {
	if i := strings.IndexByte(s[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(s)
}

// hunk is a change of whole lines, with the numbers of the first one before
// and after.
type hunk struct {
	was, is       []string
	line, newLine int
}

// show writes a hunk, with some of the unchanged lines before and behind it,
// and returns by how many lines it makes the file longer.
func (h hunk) show(out *strings.Builder, most detail, before, behind []string) (growth int) {
	was, is, line, newLine := h.was, h.is, h.line, h.newLine
	growth = len(is) - len(was)
	same := 0
	for same < min(len(was), len(is)) && was[same] == is[same] {
		same++
	}
	before = slices.Concat(before, was[:same])
	before = before[max(0, len(before)-diffContext):]
	was, is = was[same:], is[same:]
	line, newLine = line+same, newLine+same
	same = 0
	for same < min(len(was), len(is)) && was[len(was)-1-same] == is[len(is)-1-same] {
		same++
	}
	behind = slices.Concat(was[len(was)-same:], behind)
	behind = behind[:min(len(behind), diffContext)]
	was, is = was[:len(was)-same], is[:len(is)-same]

	around := len(before) + len(behind)
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(line-len(before), len(was)+around), span(newLine-len(before), len(is)+around))
	show := func(mark string, from int, rows []string) {
		for i, row := range rows[:min(len(rows), most.lines)] {
			fmt.Fprintf(out, "%s%6d\t%s\n", mark, from+i, format.Fit(strings.TrimRight(row, "\r\n"), most.text))
		}
		if len(rows) > most.lines {
			fmt.Fprintf(out, "%s      \t[and %d more lines]\n", mark, len(rows)-most.lines)
		}
	}
	show(" ", newLine-len(before), before)
	show("-", line, was)
	show("+", newLine, is)
	show(" ", newLine+len(is), behind)
	return growth
}

// span is how a hunk's header names lines of a file: the first one and how many,
// unchanged ones among them; the one before where there are none.
func span(first, n int) string {
	if n == 0 {
		first--
	}
	return fmt.Sprintf("%d,%d", first, n)
}

// rows are the lines of a text with their ends.
func rows(s string) []string {
	if s == "" {
		return nil
	}
	r := strings.SplitAfter(s, "\n")
	if r[len(r)-1] == "" {
		r = r[:len(r)-1]
	}
	return r
}

func firstLines(s string, n int) string {
	end := 0
	for range n {
		end = lineEnd(s, end)
	}
	return s[:end]
}

// lastLines is the end of a text that is empty or ends with a line.
func lastLines(s string, n int) string {
	start := len(s)
	for range n {
		if start == 0 {
			break
		}
		start = strings.LastIndexByte(s[:start-1], '\n') + 1
	}
	return s[start:]
}

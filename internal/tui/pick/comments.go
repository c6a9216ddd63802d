package pick

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"noused/internal/format"
	"noused/internal/tui/cell"
)

// maxComments bounds how many wait to be sent.
const maxComments = 100

// Comments are what a person has written about the changes of a session and not sent yet, with
// what is being written. They outlive the [Changes] that they are written in. The zero Comments
// are none.
type Comments struct {
	list  []comment
	draft *draft
}

// comment is about a line of a file, or, with number 0, about the file.
type comment struct {
	path   string
	old    bool // it is a line of the file as it was
	number int
	quote  string
	text   string
}

// draft is a comment that is being written.
type draft struct {
	comment      // as it was before
	at      int  // in the list; -1: it is new
	line    line // what is written
	leaving bool // Esc was pressed once
}

// Len counts them.
func (c *Comments) Len() int {
	n := len(c.list)
	if c.draft != nil && c.draft.at < 0 && strings.TrimSpace(c.draft.line.text) != "" {
		n++
	}
	return n
}

// Clear forgets them all.
func (c *Comments) Clear() { *c = Comments{} }

// Text is all of them as they are sent, "" where there are none. Folder is what the paths are
// relative to, where that has to be said.
func (c *Comments) Text(folder string) string {
	all := slices.Clone(c.list)
	if d := c.draft; d != nil {
		all = put(all, d)
	}
	if len(all) == 0 {
		return ""
	}
	slices.SortStableFunc(all, func(a, b comment) int {
		if a.path != b.path {
			return strings.Compare(a.path, b.path)
		}
		return a.number - b.number
	})
	var out strings.Builder
	out.WriteString("Comments on the changes")
	if folder != "" {
		out.WriteString(", with paths from " + pathText(folder))
	}
	out.WriteString(":\n")
	for _, one := range all {
		out.WriteString("\n" + one.where() + "\n")
		if one.quote != "" {
			out.WriteString("> " + one.quote + "\n")
		}
		out.WriteString(one.text + "\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// where names the line.
func (c comment) where() string {
	switch path := pathText(c.path); {
	case c.number == 0:
		return path
	case c.old:
		return fmt.Sprintf("%s:%d (removed)", path, c.number)
	default:
		return fmt.Sprintf("%s:%d", path, c.number)
	}
}

// about names the line where it is not there any more.
func (c comment) about() string {
	if c.quote == "" {
		return c.where()
	}
	return c.where() + " " + strconv.Quote(cell.Line(c.quote, maxAbout))
}

// maxAbout is how much is shown of a line that is not there any more, in bytes.
const maxAbout = 60

// pathText is a path on one line.
func pathText(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(path)
	}
	return path
}

// put is a list with what is written of a draft: a comment without a text is none.
func put(list []comment, d *draft) []comment {
	is := d.comment
	is.text = strings.TrimSpace(d.line.text)
	switch {
	case d.at < 0 && is.text == "":
		return list
	case d.at < 0:
		return append(list, is)
	case is.text == "":
		return slices.Delete(list, d.at, d.at+1)
	}
	list[d.at] = is
	return list
}

// keep ends the writing of a draft.
func (c *Comments) keep() {
	c.list = put(c.list, c.draft)
	c.draft = nil
}

// of are those of a file, by where they are in the list.
func (c *Comments) of(path string) (at []int) {
	for i, one := range c.list {
		if one.path == path {
			at = append(at, i)
		}
	}
	return at
}

// on tells whether one is, or is being written, on a line.
func (c *Comments) on(path string, old bool, number int) bool {
	same := func(one comment) bool { return one.path == path && one.old == old && one.number == number }
	return slices.ContainsFunc(c.list, same) || c.draft != nil && same(c.draft.comment)
}

// count is "2 comments".
func (c *Comments) count() string { return format.Count(c.Len(), "comment") }

// follow moves the comments of a file to where the lines that they quote are now.
func (c *Comments) follow(path string, lines []patchLine) {
	for _, i := range c.of(path) {
		c.list[i].follow(lines)
	}
	if d := c.draft; d != nil && d.path == path {
		d.follow(lines)
	}
}

func (c *comment) follow(lines []patchLine) {
	if c.number == 0 {
		return
	}
	best := 0
	for _, l := range lines {
		if !l.code() || l.old() != c.old || l.quote()[1:] != c.quote[1:] {
			continue
		}
		if best == 0 || distance(l.number, c.number) < distance(best, c.number) {
			best = l.number
		}
	}
	if best > 0 {
		c.number = best
	}
}

func distance(a, b int) int { return max(a-b, b-a) }

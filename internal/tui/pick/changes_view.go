package pick

import (
	"fmt"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// maxShownLine is how much of a line is drawn, in bytes.
const maxShownLine = 16 << 10

// View draws the changes. Sizes are in cells.
func (c *Changes) View(width, height int) string {
	c.at = c.look.inner(width, height)
	c.drawn.ok = false
	room, foot := c.at, ""
	if room.height >= 6 {
		room.height--
		foot = c.foot(room.width)
	}
	lines := c.lines(room)
	if foot != "" {
		for len(lines) < room.height {
			lines = append(lines, "")
		}
		lines = append(lines, foot)
	}
	return c.look.frame("Changes", c.info(), lines, width, height)
}

// lines are the rows that fit, the cursor among them.
func (c *Changes) lines(room pane) []string {
	if len(c.rows) == 0 {
		text := "…"
		switch {
		case c.problem != "":
			text = c.problem
		case c.loaded:
			text = "the session has changed nothing"
		}
		return cell.Wrap(cell.Sanitize(text), room.width)
	}
	c.list.rows = max(room.height, 1)
	c.list.clamp(len(c.rows))
	at := &c.list.offset
	*at = max(min(*at, c.list.cursor), 0)
	drawn := map[int][]string{}
	used := 0
	for i := c.list.cursor; i >= *at; i-- {
		drawn[i] = c.draw(i, room)
		if used += len(drawn[i]); used > room.height && i < c.list.cursor {
			*at = i + 1
			break
		}
	}
	var lines []string
	for i := *at; i < len(c.rows) && len(lines) < room.height; i++ {
		own := drawn[i]
		if own == nil {
			own = c.draw(i, room)
		}
		if c.rows[i].kind == draftRow {
			c.drawn.x, c.drawn.y, c.drawn.ok = c.at.x+2+len(c.mark()), c.at.y+len(lines), true
		}
		lines = append(lines, own...)
	}
	return lines[:min(len(lines), max(room.height, 0))]
}

// draw is a row in at least a line, and no more than there is room for.
func (c *Changes) draw(i int, room pane) []string {
	r, on := c.rows[i], i == c.list.cursor
	width := max(room.width-2, 1) // behind the mark of the cursor
	th := c.look.Theme
	var text string
	var band lipgloss.Style
	style := th.Text
	switch r.kind {
	case fileRow:
		return []string{c.look.row(c.fileText(r.file, width, on), on, room.width)}
	case childRow:
		return []string{c.look.row(c.childText(r.at, width, on), on, room.width)}
	case draftRow:
		written, _ := c.comments.draft.line.view(width - len(c.mark()))
		return []string{"  " + th.Accent.Render(c.mark()) + written}
	case commentRow:
		one := c.comments.list[r.at]
		text, style = c.mark()+one.text, th.Accent
		if r.line < 0 {
			text = c.mark() + one.about() + ": " + one.text
		}
	case noteRow:
		text, style = r.note, th.Dim
		if r.file >= 0 {
			text = "  " + text
		}
	case lineRow:
		var code string
		text, code, style, band = c.lineText(r)
		if tokens := c.tokens(r); tokens != nil && !on {
			text, code, style = style.Render(text), c.look.Syntax.Render(tokens), th.Text
		}
		text += code
	}
	if r.kind != lineRow {
		text = cell.Sanitize(text)
	}
	var lines []string
	for n, part := range cell.Wrap(text, width) {
		if n == max(room.height-1, 1) {
			lines[n-1] = cell.Truncate(lines[n-1]+" …", room.width)
			break
		}
		switch {
		case on && n == 0:
			lines = append(lines, c.look.row(part, true, room.width))
		case on && !c.look.Plain:
			lines = append(lines, th.Selected.Render(cell.Fit("  "+part, room.width)))
		default:
			lines = append(lines, "  "+theme.Band(band, style.Render(part), width))
		}
	}
	return lines
}

// mark stands before a comment.
func (c *Changes) mark() string {
	if c.look.Plain {
		return "comment: "
	}
	return "  > "
}

// shown is the text of a line as it is drawn, sanitised.
func (l patchLine) shown() string {
	text := format.Cut(l.text, maxShownLine)
	if len(text) < len(l.text) {
		text += " …"
	}
	return cell.Sanitize(strings.ReplaceAll(text, "\r", " "))
}

// lineText is a line of a diff: its number and mark, and the code behind them, sanitised.
func (c *Changes) lineText(r changesRow) (head, code string, style, band lipgloss.Style) {
	th, f := c.look.Theme, &c.files[r.file]
	l := f.lines[r.line]
	code = l.shown()
	number := strings.Repeat(" ", f.digits())
	if l.code() {
		number = fmt.Sprintf("%*d", f.digits(), l.number)
	}
	switch l.mark {
	case '@':
		return "", code, th.Accent, band
	case 'i':
		return number + " ", code, th.Dim, band
	case '+':
		style, band = th.Added, th.AddedOn
	case '-':
		style, band = th.Removed, th.RemovedOn
	}
	mark := string(l.mark)
	if word := map[byte]string{'+': "added: ", '-': "removed: "}[l.mark]; c.look.Plain && word != "" {
		mark = word
	}
	return number + " " + mark, code, style, band
}

// digits are as many as the longest number of a line has.
func (f *changedFile) digits() int {
	most := 0
	if n := len(f.lines); n > 0 {
		for _, l := range f.lines[max(0, n-3):] {
			most = max(most, l.number)
		}
	}
	return max(len(strconv.Itoa(most)), 3)
}

var changeMarks = map[string]string{
	protocol.ChangeAdded: "A", protocol.ChangeModified: "M", protocol.ChangeDeleted: "D", protocol.ChangeRenamed: "R",
}

// fileText names a file, how it has changed, and how many lines came and went.
func (c *Changes) fileText(i, width int, on bool) string {
	f, th := &c.files[i], c.look.Theme
	if on {
		th = theme.Theme{}
	}
	fold, status := "▸ ", changeMarks[f.Status]+" "
	if f.open {
		fold = "▾ "
	}
	if c.look.Plain {
		fold, status = "", f.Status+" "
	}
	name := shownPath(f.Path)
	if f.OldPath != "" {
		name = shownPath(f.OldPath) + " → " + name
	}
	var right []string
	if n := len(c.comments.of(f.Path)); n > 0 && !f.open {
		right = append(right, th.Accent.Render(format.Count(n, "comment")))
	}
	switch {
	case f.LeftOut:
		right = append(right, th.Dim.Render("not kept"))
	case f.Binary:
		right = append(right, th.Dim.Render("binary"))
	default:
		right = append(right, th.Added.Render(fmt.Sprintf("+%d", f.Added))+" "+
			th.Removed.Render(fmt.Sprintf("−%d", f.Removed)))
	}
	if f.Shared {
		right = append(right, th.Warn.Render("shared"))
	}
	end := strings.Join(right, " ")
	used := cell.Width(fold) + cell.Width(status)
	name = cell.TruncateLeft(name, max(width-used-1-cell.Width(end), 4))
	return cell.Truncate(fold+th.Accent.Render(status)+name+
		strings.Repeat(" ", max(width-used-cell.Width(name)-cell.Width(end), 1))+end, width)
}

// childText names a child session, and how many files it has changed.
func (c *Changes) childText(i, width int, on bool) string {
	child, th := c.children[i], c.look.Theme
	if on {
		th = theme.Theme{}
	}
	name := "→ " + cell.Line(child.Title, maxTitle)
	if c.look.Plain {
		name = cell.Line(child.Title, maxTitle)
	}
	end := format.Count(child.Files, "file")
	name = cell.Truncate(name, max(width-1-cell.Width(end), 4))
	return cell.Truncate(name+strings.Repeat(" ", max(width-cell.Width(name)-cell.Width(end), 1))+
		th.Dim.Render(end), width)
}

// shownPath is a path on one line, that drives no terminal.
func shownPath(path string) string { return cell.Line(pathText(path), maxPath) }

// maxPath is how much of a path is looked at, in bytes.
const maxPath = 4 << 10

// info is what stands beside the title.
func (c *Changes) info() string {
	if !c.loaded {
		return ""
	}
	added, removed := 0, 0
	for _, f := range c.files {
		added, removed = added+f.Added, removed+f.Removed
	}
	text := fmt.Sprintf("%s +%d −%d", format.Count(len(c.files), "file"), added, removed)
	if c.comments.Len() > 0 {
		text += " · " + c.comments.count()
	}
	return text
}

// foot is what has just been said, or what the keys do.
func (c *Changes) foot(width int) string {
	r, ok := c.row()
	comment := "comment"
	if about := c.about(r); ok && about != "" {
		comment += " on " + about
	}
	switch {
	case c.notice != "":
		return c.look.Theme.Warn.Render(cell.Truncate(cell.Line(c.notice, maxTitle), width))
	case c.comments.draft != nil:
		return c.look.hints(width, "enter", "keeps the comment", "esc", "drops it", "s", "sends it then")
	case r.kind == commentRow:
		return c.look.hints(width, "c", "edit", "d", "remove", "s", "send all", "f", "follow-up", "esc", "leave")
	case r.kind == childRow:
		return c.look.hints(width, "enter", "its changes", "r", "read again", "esc", "leave")
	case c.comments.Len() > 0:
		return c.look.hints(width, "c", comment, "s", "send "+c.comments.count(), "f", "follow-up", "n, p", "hunk",
			"esc", "leave")
	}
	return c.look.hints(width, "enter", "open", "n, p", "hunk", "c", comment, "r", "read again", "esc", "leave")
}

// Cursor is where in the last View the terminal's cursor belongs: in the comment that is
// written.
func (c *Changes) Cursor() (x, y int, ok bool) {
	d := c.comments.draft
	if d == nil || !c.drawn.ok {
		return 0, 0, false
	}
	_, column := d.line.view(max(c.at.width-2-len(c.mark()), 1))
	x = c.drawn.x + column
	return x, c.drawn.y, x < c.at.x+c.at.width // a box may have no room for the text
}

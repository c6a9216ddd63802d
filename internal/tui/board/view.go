package board

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/tui/cell"
)

// Sizes of the screen from which on there is room for more.
const (
	previewHeight = 18 // a preview
	modelWidth    = 72 // the column of models
	modelCells    = 18
	ageCells      = 4
)

// line is one of the list: the heading of the group that begins at a row, or the
// row.
type line struct {
	heading bool
	at      int // in shown
}

// View draws the board in exactly width by height cells, as it is at now.
func (b *Board) View(width, height int, now time.Time) string {
	b.cursor.on = false
	top := []string{b.headline(width)}
	for _, note := range b.notes() {
		top = append(top, b.theme.Warn.Render(cell.Truncate(cell.Line(note, maxText), width)))
	}
	top = append(top, b.filterLine(width, len(top)))
	told := b.besideLine(width)
	room := max(height-len(top)-len(told)-1, 0)
	below := b.asked(width, room)
	if below == nil {
		below = b.preview(width, room)
	}
	list := b.list(width, room-len(below), now)
	all := append(slices.Concat(top, list, below, told), b.bottom(width, height-1))
	if b.approval.Focused() {
		x, y, on := b.approval.Cursor()
		b.cursor.x, b.cursor.y, b.cursor.on = x, len(top)+len(list)+y, on
	}
	return cell.Block(all, width, height)
}

// maxAway is of how many hosts that are away the board says why.
const maxAway = 3

// notes are what the daemons cannot tell, and the hosts that are away.
func (b *Board) notes() (notes []string) {
	if b.note != "" {
		notes = append(notes, b.note)
	}
	away := b.awayHosts()
	for _, name := range away[:min(len(away), maxAway)] {
		notes = append(notes, name+": "+b.hosts[name].away)
	}
	if left := len(away) - maxAway; left > 0 {
		notes = append(notes, fmt.Sprintf("%d more cannot be reached", left))
	}
	return notes
}

func (b *Board) awayHosts() (names []string) {
	for name, h := range b.hosts {
		if h.away != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Cursor is where in the last View the terminal's cursor belongs.
func (b *Board) Cursor() (x, y int, ok bool) { return b.cursor.x, b.cursor.y, b.cursor.on }

// headline says how many sessions there are of each state.
func (b *Board) headline(width int) string {
	counted := []string{b.theme.Title.Render("Board")}
	counts := b.counts()
	for s := range states {
		n := counts[s]
		if n == 0 {
			continue
		}
		style := b.theme.Dim
		switch s {
		case NeedsYou:
			style = b.theme.Error
		case Working:
			style = b.theme.Accent
		case Done:
			style = b.theme.OK
		}
		what := s.String()
		if s == NeedsYou && n > 1 {
			what = "need you"
		}
		counted = append(counted, style.Render(fmt.Sprintf("%d %s", n, what)))
	}
	if b.any(func(h *host) bool { return h.more }) {
		counted = append(counted, b.theme.Dim.Render("older ones left out"))
	}
	text := strings.Join(counted, " · ")
	if b.link == "" {
		return text
	}
	link := b.theme.Warn.Render(cell.Truncate(b.link, width/2))
	text = cell.Truncate(text, width-cell.Width(link)-1)
	return text + strings.Repeat(" ", max(width-cell.Width(text)-cell.Width(link), 0)) + link
}

// any tells whether something is so of a host.
func (b *Board) any(so func(*host) bool) bool {
	for _, h := range b.hosts {
		if so(h) {
			return true
		}
	}
	return false
}

func (b *Board) filterLine(width, y int) string {
	const prompt = "/ "
	text, column := b.filter.View(width - len(prompt))
	if b.say.of == nil && b.gone == nil {
		b.cursor.x, b.cursor.y, b.cursor.on = len(prompt)+column, y, true
	}
	if b.filter.Text() == "" {
		text = b.theme.Dim.Render("type to filter: title, folder, model or id")
	}
	return b.theme.Accent.Render(prompt) + text
}

// list are the groups and their rows, of which the one under the cursor is among
// them, in exactly height lines.
func (b *Board) list(width, height int, now time.Time) []string {
	if height <= 0 {
		return nil
	}
	if len(b.shown) == 0 {
		return padded([]string{"", "  " + b.theme.Dim.Render(b.nothing())}, height)
	}
	selected := b.layOut()
	b.page = height
	b.offset = max(min(b.offset, len(b.lines)-height), 0)
	if selected <= b.offset {
		b.offset = selected
		if b.lines[max(selected-1, 0)].heading {
			b.offset = max(selected-1, 0)
		}
	}
	b.offset = max(b.offset, selected-height+1)
	out := make([]string, 0, height)
	for _, l := range b.lines[b.offset:min(b.offset+height, len(b.lines))] {
		if l.heading {
			out = append(out, b.heading(l.at, width))
		} else {
			out = append(out, b.drawn(b.shown[l.at], width, now))
		}
	}
	return padded(out, height)
}

// layOut says which line of the list is what, and which the cursor is on.
func (b *Board) layOut() (selected int) {
	b.lines = b.lines[:0]
	for i := range b.shown {
		if b.begins(i) {
			b.lines = append(b.lines, line{true, i})
		}
		if i == b.at {
			selected = len(b.lines)
		}
		b.lines = append(b.lines, line{false, i})
	}
	return selected
}

func (b *Board) nothing() string {
	switch {
	case b.note == "" && !b.any(func(h *host) bool { return h.loaded || h.away != "" }):
		return "reading the sessions …"
	case len(b.rows) > 0:
		return "no session has that in its title, folder, model or id"
	}
	return "there is no session"
}

func padded(lines []string, height int) []string {
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:height]
}

// heading is that of the group that begins at a row.
func (b *Board) heading(i, width int) string {
	r, n := b.shown[i].top(), 1
	for next := i + 1; next < len(b.shown) && !b.begins(next); next++ {
		if b.shown[next].tree.above == nil {
			n++
		}
	}
	group := r.treePlace().state
	style := b.theme.Title
	switch group {
	case NeedsYou:
		style = b.theme.Error
	case Idle:
		style = b.theme.Dim
	}
	state, count := group.String(), fmt.Sprintf(" · %d", n)
	dot := b.theme.Dim.Render(" · ")
	before := style.Render(state) + dot
	if r.id.Host != "" {
		before += b.theme.Accent.Render(cell.Truncate(cell.Line(r.id.Host, maxTitle), width/3)) + dot
	}
	folder := b.folder(r.info.Workdir, width-cell.Width(before)-cell.Width(count))
	return before + b.theme.Text.Render(folder) + b.theme.Dim.Render(count)
}

// folder is a folder in at most width cells.
func (b *Board) folder(path string, width int) string {
	if path == "" {
		return cell.Truncate("folder not known", width)
	}
	const gone = " (gone)"
	if b.swept[path] && width > len(gone) {
		return cell.Folder(path, b.home, width-len(gone)) + gone
	}
	return cell.Folder(path, b.home, width)
}

var marks = [states]string{"!", "●", "✓", "·"}

// drawn is a row: its title, what it needs or does, the last that was said, the
// model, its age.
func (b *Board) drawn(r *row, width int, now time.Time) string {
	room := width - 4 // the cursor and the mark
	model, age := "", ""
	if width >= modelWidth {
		model = "  " + cell.Fit(cell.Line(r.info.Model.Name, maxTitle), modelCells)
	}
	if width >= 40 {
		age = fmt.Sprintf(" %*s", ageCells, format.ShortAge(r.info.UpdatedAt, now))
	}
	room -= cell.Width(model) + cell.Width(age)
	titled := min(max(room*2/5, 14), room)
	title := cell.Fit(r.tree.lines+r.title(), titled)
	does, said := r.does(now), r.said()
	rest := room - titled - 2
	sign, away := marks[r.state], b.host(r.id.Host).away != ""
	if away {
		sign, does = "○", "reconnecting"
	}
	does = joined(does, r.tree.folded)
	if r == b.selected {
		return b.theme.Selected.Render(cell.Fit("❯ "+sign+" "+title+"  "+cell.Fit(joined(does, said), max(rest, 0))+model+age,
			width))
	}
	style, mark := b.theme.Dim, b.theme.Dim
	titleStyle := b.theme.Text
	switch {
	case away:
		titleStyle = b.theme.Dim
	case r.state == NeedsYou:
		style, mark = b.theme.Error, b.theme.Error
	case r.state == Working:
		style, mark = b.theme.Accent, b.theme.Accent
	case r.state == Done:
		mark = b.theme.OK
	}
	line := "  " + mark.Render(sign) + " " + titleStyle.Render(title)
	if rest > 0 {
		does = cell.Truncate(does, rest)
		line += "  " + style.Render(does)
		left := rest - cell.Width(does)
		if does != "" {
			said = "  " + said
		}
		line += b.theme.Dim.Render(cell.Fit(said, left))
	}
	return line + b.theme.Dim.Render(model+age)
}

func joined(does, said string) string {
	if does == "" || said == "" {
		return does + said
	}
	return does + "  " + said
}

// preview is the end of the conversation under the cursor, under a line that
// names it; nothing where there is no room.
func (b *Board) preview(width, room int) []string {
	b.previews.room = room+3 >= previewHeight && b.selected != nil
	if !b.previews.room {
		return nil
	}
	i := b.selected.info
	about := []string{b.selected.title()}
	for _, text := range []string{b.selected.id.Host, i.Model.Provider + "/" + i.Model.Name, i.SessionID} {
		if text = strings.Trim(text, "/"); text != "" {
			about = append(about, cell.Line(text, maxTitle))
		}
	}
	head := cell.Truncate("── "+strings.Join(about, " · ")+" ", width)
	lines := []string{b.theme.Border.Render(head + strings.Repeat("─", max(width-cell.Width(head), 0)))}
	height := min(max(room/3, 5), 14)
	said, known := b.previews.lines[b.selected.id]
	switch {
	case !known:
		said = []string{"…"}
	case len(said) == 0:
		said = []string{"nothing was said yet"}
	}
	var wrapped []string
	for _, line := range said {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for n, part := range cell.Wrap(line, width) {
			if n > 0 && len(indent) < width/2 {
				part = indent + part
			}
			wrapped = append(wrapped, part)
		}
	}
	for _, line := range wrapped[max(len(wrapped)-height+1, 0):] {
		style := b.theme.Dim
		if strings.HasPrefix(line, "› ") {
			style = b.theme.User
		}
		lines = append(lines, style.Render(cell.Truncate(line, width)))
	}
	return padded(lines, height)
}

// bottom is the line that is being written, an approval, what came of an action,
// or what the keys do.
func (b *Board) bottom(width, y int) string {
	switch {
	case b.gone != nil:
		rest := " for good? y: yes, any other key: no"
		if n := b.below(b.gone); n > 0 {
			rest = " and its " + format.Count(n, "child session") + rest
		}
		what := cell.Truncate("delete "+b.gone.title(), max(width-cell.Width(rest), 16))
		return b.theme.Warn.Render(cell.Truncate(what+rest, width))
	case b.say.of != nil:
		return b.writing(width, y)
	case b.told != "":
		return b.came(width)
	}
	return b.theme.Dim.Render(hints(width, b.keys()))
}

// came is what came of an action.
func (b *Board) came(width int) string {
	style := b.theme.Text
	if b.bad {
		style = b.theme.Error
	}
	return style.Render(cell.Truncate(cell.Line(b.told, 4*maxText), width))
}

// besideLine is that above the line that is being written.
func (b *Board) besideLine(width int) []string {
	if b.told == "" || b.say.of == nil || b.gone != nil {
		return nil
	}
	return []string{b.came(width)}
}

// keys are what the keys do with the session under the cursor.
func (b *Board) keys() []string {
	if b.selected == nil {
		return []string{"Esc back"}
	}
	keys := []string{"Enter open", "Esc back", "Tab say", "F2 rename", "Ctrl+D delete"}
	if b.selected.info.Working != nil || b.selected.state == Working {
		keys = []string{"Enter open", "Esc back", "Tab steer", "Ctrl+X abort", "F2 rename"}
	}
	if b.approval.Focused() {
		return []string{"Esc to the list"}
	}
	if b.approval.ID() != "" {
		keys = append([]string{b.key + " answer"}, keys...)
	}
	if b.selected.tree.folded != "" {
		keys = append(keys, "→ unfold")
	}
	return append(keys, "Alt+↓ next group")
}

func (b *Board) writing(width, y int) string {
	prompt, hint := "say to "+b.say.of.title(), "  Enter sends"
	switch {
	case b.say.rename:
		prompt, hint = "call it", "  Enter renames"
	case b.say.of.info.Working != nil || b.say.of.state == Working:
		prompt, hint = "steer "+b.say.of.title(), "  Enter steers, Tab queues"
	}
	prompt = cell.Truncate(prompt, max(width/3, 8)) + ": "
	if cell.Width(prompt)+cell.Width(hint) > width*2/3 {
		hint = ""
	}
	text, column := b.say.line.View(width - cell.Width(prompt) - cell.Width(hint))
	b.cursor.x, b.cursor.y, b.cursor.on = cell.Width(prompt)+column, y, true
	return b.theme.Accent.Render(prompt) + text + b.theme.Dim.Render(hint)
}

// hints are as many as fit.
func hints(width int, all []string) string {
	text := all[0]
	for _, hint := range all[1:] {
		if next := text + " · " + hint; cell.Width(next) <= width {
			text = next
		}
	}
	return cell.Truncate(text, width)
}

// Lines are the board as it is at now, line by line: for screen readers and for
// pipes.
func (b *Board) Lines(now time.Time) []string {
	var lines []string
	for i, r := range b.shown {
		if b.begins(i) {
			at := ""
			if r.id.Host != "" {
				at = "on " + cell.Line(r.id.Host, maxTitle) + ", "
			}
			lines = append(lines, fmt.Sprintf("%s, %sin %s:", r.treePlace().state, at,
				b.folder(r.top().info.Workdir, maxText)))
		}
		said := []string{cell.Line(r.info.SessionID, maxTitle), r.title()}
		for _, text := range []string{
			r.does(now), r.tree.folded, cell.Line(r.info.Model.Name, maxTitle),
			format.ShortAge(r.info.UpdatedAt, now), r.said(),
		} {
			if text != "" {
				said = append(said, text)
			}
		}
		lines = append(lines, strings.Repeat("  ", 1+r.tree.depth)+said[0]+": "+strings.Join(said[1:], ", "))
	}
	lines = append(lines, b.notes()...)
	if len(b.shown) == 0 {
		lines = append(lines, cmp.Or(b.link, b.nothing()))
	}
	return lines
}

package pick

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"

	"noused/internal/format"
	"noused/internal/tui/cell"
)

// View draws the picker. Sizes are in cells.
func (p *Picker) View(width, height int) string {
	p.at = p.look.inner(width, height)
	p.list.rows = max(p.at.height, 1)
	main, beside, below := p.layout()
	lines := p.column(main)
	switch {
	case beside.width > 0:
		lines = p.joinBeside(lines, main, beside)
	case below.height > 0:
		rule := "─"
		if p.look.Plain {
			rule = "-"
		}
		for len(lines) < main.height {
			lines = append(lines, "")
		}
		lines = append(lines, p.look.Theme.Border.Render(strings.Repeat(rule, below.width)))
		lines = append(lines, p.previewLines(below)...)
	}
	return p.look.frame(p.title, p.count(), lines, width, height)
}

// layout parts the pane into the list and, where there is room, a preview beside
// or below it.
func (p *Picker) layout() (main, beside, below pane) {
	main = p.at
	p.pane = true
	switch {
	case !p.preview:
	case main.width >= 90 && main.height >= 6 && !p.look.Plain:
		beside = pane{0, 0, main.width * 2 / 5, main.height}
		main.width -= beside.width + 3
		return main, beside, below
	case main.height >= 20 && main.width >= 20:
		below = pane{0, 0, main.width, main.height * 2 / 5}
		main.height -= below.height + 1
		return main, beside, below
	}
	p.pane = false
	return main, beside, below
}

func (p *Picker) joinBeside(lines []string, main, beside pane) []string {
	side, preview := " "+p.look.Theme.Border.Render("│")+" ", p.previewLines(beside)
	joined := make([]string, main.height)
	for i := range joined {
		left, right := "", ""
		if i < len(lines) {
			left = lines[i]
		}
		if i < len(preview) {
			right = preview[i]
		}
		joined[i] = cell.Fit(left, main.width) + side + right
	}
	return joined
}

// note is all that the note under the cursor says, "" where none is there.
func (p *Picker) note() string {
	if p.list.cursor >= len(p.shown) || !p.entries[p.shown[p.list.cursor]].Note {
		return ""
	}
	e := p.entries[p.shown[p.list.cursor]]
	return cell.Sanitize(e.Title + ": " + format.Cut(e.Detail, maxNote))
}

func (p *Picker) previewLines(room pane) []string {
	if note := p.note(); note != "" {
		lines := cell.Wrap(note, room.width)
		return lines[:min(len(lines), room.height)]
	}
	id := p.selected()
	if id == "" {
		return nil
	}
	text, known := p.previews[id]
	if !known {
		return []string{p.look.Theme.Dim.Render("loading")}
	}
	var lines []string
	for _, t := range text {
		if len(lines) >= room.height {
			break
		}
		// No more of a long line than the pane could show.
		lines = append(lines, cell.Wrap(format.Cut(t, room.width*room.height*4), room.width)...)
	}
	return lines[:min(len(lines), room.height)]
}

func (p *Picker) count() string {
	shown, all := len(p.shown), len(p.entries)
	switch {
	case p.several:
		on := 0
		for _, e := range p.entries {
			if p.checked[e.ID] {
				on++
			}
		}
		return fmt.Sprintf("%d of %d on", on, all)
	case shown != all:
		return fmt.Sprintf("%d of %d", shown, all)
	}
	return strconv.Itoa(all)
}

// column is the filter, the list and the hints.
func (p *Picker) column(room pane) []string {
	first := p.filterLine(room.width)
	height, hints := room.height-1, ""
	if room.height >= 6 {
		height--
		hints = p.hints(room.width)
	}
	var said []string
	if note := p.note(); note != "" && !p.pane {
		said = cell.Wrap(note, room.width)
		said = said[:min(len(said), height/2)]
		height -= len(said)
	}
	lines := append(make([]string, 0, room.height), first)
	if height > 0 {
		lines = append(lines, p.rows(room.width, height)...)
	}
	if hints != "" || said != nil {
		for len(lines) < height+1 {
			lines = append(lines, "")
		}
		lines = append(lines, said...)
	}
	if hints != "" {
		lines = append(lines, hints)
	}
	return lines
}

func (p *Picker) hints(width int) string {
	pairs := []string{"enter", "choose"}
	if p.several {
		pairs = []string{"tab", "on or off", "enter", "use these"}
	}
	if p.deletes != "" {
		pairs = append(pairs, "ctrl+d", "delete")
	}
	return p.look.hints(width, append(pairs, "esc", "leave")...)
}

func (p *Picker) prompt() string {
	if p.look.Plain {
		return plainPrompt
	}
	return filterPrompt
}

func (p *Picker) filterLine(width int) string {
	if p.deleting {
		e := p.entries[p.shown[p.list.cursor]]
		title, ask := e.Title, "? y/n"
		if e.With != "" { // that is told, whatever room there is
			title, ask = strings.TrimSuffix(title, " · "+e.With), " and its "+e.With+ask
		}
		question := "Delete " + p.deletes + " " + title
		if width < 30 {
			question = "Delete " + title
		}
		return p.look.Theme.Warn.Render(cell.Truncate(question, max(width-len(ask), 0)) + ask)
	}
	prompt := p.prompt()
	text, _ := p.filter.view(width - len(prompt))
	return p.look.Theme.Accent.Render(prompt) + text
}

// Cursor is where in the last View the terminal's cursor belongs.
func (p *Picker) Cursor() (x, y int, ok bool) {
	if p.deleting {
		return 0, 0, false
	}
	prompt := len(p.prompt())
	main, _, _ := p.layout()
	if main.width <= prompt || main.height < 1 {
		return 0, 0, false
	}
	_, column := p.filter.view(main.width - prompt)
	return p.at.x + prompt + column, p.at.y, true
}

func (p *Picker) rows(width, height int) []string {
	if len(p.shown) == 0 {
		text := "nothing matches"
		if len(p.entries) == 0 {
			text = "nothing here"
		}
		return []string{p.look.row(text, false, width)}
	}
	from, to := p.list.window(len(p.shown), height)
	title, columns := p.widthsFor(width - 2 - p.lead())
	terms := p.terms()
	rows := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		rows = append(rows, p.row(p.entries[p.shown[i]], i == p.list.cursor, terms, title, columns, width))
	}
	return rows
}

// lead is the width of what stands before every title.
func (p *Picker) lead() int {
	w := 0
	if p.several {
		w += len("[x] ")
	}
	if p.current != "" {
		w += len("* ")
	}
	return w
}

const columnGap = 2

// widthsFor parts a width into that of the titles and those of the columns. The
// columns on the left matter most; only what is long anyway may be cut.
func (p *Picker) widthsFor(width int) (title int, columns []int) {
	const long, worth = 24, 12
	used := 0
	room := width - min(p.widest, max(12, width/2))
	for _, w := range p.widths {
		left := room - used - columnGap
		if left < w && (w < long || left < worth) {
			break
		}
		columns = append(columns, min(w, left))
		used += columnGap + min(w, left)
	}
	title = max(width-used, 0)
	if !p.found {
		title = min(title, p.widest)
	}
	return title, columns
}

func (p *Picker) row(e entry, selected bool, terms []string, title int, columns []int, width int) string {
	t := p.look.Theme
	paint := func(style lipgloss.Style, text string) string {
		if selected || p.look.Plain || text == "" {
			return text // the row has one style
		}
		return style.Render(text)
	}
	var b strings.Builder
	if p.several {
		box := "[ ] "
		if p.checked[e.ID] {
			box = "[x] "
		}
		b.WriteString(box)
	}
	if p.current != "" {
		star := "  "
		if e.ID == p.current {
			star = "* "
		}
		b.WriteString(paint(t.Accent, star))
	}
	why := e.hiddenMatch(terms)
	if why != "" || cell.Width(e.Title) > title && cut(terms, e.Title, title) {
		// What was found matters more than the columns.
		title, columns = width-2-p.lead(), nil
	}
	if e.Bad && len(columns) == 0 {
		b.WriteString(paint(t.Error, "! ")) // there is no room to say why
		title -= len("! ")
	}
	shown := e.Title
	if len(terms) == 0 {
		shown = e.Branch + shown
	}
	b.WriteString(p.titleCell(shown, why, terms, title, paint))
	for i, w := range columns {
		var text string
		if i < len(e.columns) {
			text = e.columns[i]
		}
		text = cell.Fit(text, w)
		style := t.Dim
		switch {
		case e.Bad:
			style = t.Error
		case p.marked && i == 0:
			style = t.Accent
		}
		b.WriteString(strings.Repeat(" ", columnGap) + paint(style, text))
	}
	return p.look.row(b.String(), selected, width)
}

// hiddenMatch is a part of Search around a term that neither the title nor a column has.
func (e entry) hiddenMatch(terms []string) string {
	if e.Search == "" {
		return ""
	}
	for _, term := range terms {
		if strings.Contains(e.title, term) || strings.Contains(fold(strings.Join(e.columns, "\n")), term) {
			continue
		}
		if found := excerpt(e.Search, term); found != "" {
			return found
		}
	}
	return ""
}

// cut tells whether one of the terms stands in a title where a width cuts it off.
func cut(terms []string, title string, width int) bool {
	seen := utf8.RuneCountInString(cell.Truncate(title, width)) - 1 // the "…"
	for i := range marks(terms, fold(title)) {
		if i >= seen {
			return true
		}
	}
	return false
}

// titleCell is the title in exactly width cells, with what the filter found
// elsewhere after it.
func (p *Picker) titleCell(title, why string, terms []string, width int,
	paint func(lipgloss.Style, string) string,
) string {
	t := p.look.Theme
	title = cell.Truncate(title, width)
	gap := ""
	if why != "" {
		// The title may not take the room of what was found.
		title = cell.Truncate(title, max(width/2, width-2-cell.Width(why)))
		gap = "  "
	}
	room := max(width-cell.Width(title)-len(gap), 0)
	on := marks(terms, fold(title))
	var b strings.Builder
	characters := []rune(title)
	for from, to := 0, 0; from < len(characters); from = to {
		for to = from + 1; to < len(characters) && on[to] == on[from]; to++ {
		}
		part := string(characters[from:to])
		if on[from] {
			part = paint(t.Match, part)
		}
		b.WriteString(part)
	}
	return cell.Fit(b.String()+gap+paint(t.Dim, cell.Truncate(why, room)), width)
}

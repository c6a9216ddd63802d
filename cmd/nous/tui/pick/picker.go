package pick

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"noused/cmd/nous/tui/cell"
)

// Item is one line of a [Picker].
type Item struct {
	ID      string // what a Choice names; no two are the same
	Title   string
	Mark    string // a word on its state, "running"; may be empty
	Bad     bool   // it does not work: Mark and Detail say why
	Detail  string // columns, parted by tabs; each is aligned
	Search  string // what a filter finds beside Title, Mark and Detail, in lines; the line found is shown
	Checked bool   // in a picker that allows several: on at first
}

// Bounds of what is kept and drawn of an item.
const (
	maxTitle    = 256     // bytes
	maxDetail   = 256     // bytes of a column
	maxColumns  = 6       // of Mark and Detail together
	maxSearch   = 4 << 10 // bytes
	maxPreview  = 400     // lines
	maxPreviews = 64      // kept
)

// entry is an item made ready for matching and drawing.
type entry struct {
	Item
	columns     []string // Mark, if any item has one, and the Detail
	title, rest string   // folded
}

// Picker lets the user choose of a list by typing a part of what is meant.
type Picker struct {
	look    Look
	title   string
	current string // ID of what is chosen now
	several bool
	deletes string // what an item is called, where one may be deleted
	preview bool

	entries []entry
	marked  bool  // an item has a Mark
	found   bool  // an item has a Search
	widths  []int // of the columns
	widest  int   // title
	checked map[string]bool

	filter   line
	shown    []int // of entries, best first
	list     list
	deleting bool // the question stands

	previews map[string][]string
	asked    string // the preview asked for last
	pane     bool   // the last View had room for one
	at       pane   // of the last View
}

// Option is a property of a [Picker].
type Option func(*Picker)

// With draws the picker in a look.
func With(l Look) Option { return func(p *Picker) { p.look = l } }

// Current marks the item that is chosen now, and begins at it.
func Current(id string) Option { return func(p *Picker) { p.current = id } }

// Several lets Tab turn items on and off; Enter chooses all that are on.
func Several() Option { return func(p *Picker) { p.several = true } }

// Deletes lets the user delete items, each of which is called what: "session".
func Deletes(what string) Option { return func(p *Picker) { p.deletes = what } }

// Previews shows a preview where there is room; see [Picker.NeedsPreview].
func Previews() Option { return func(p *Picker) { p.preview = true } }

// New makes a picker.
func New(title string, items []Item, opts ...Option) *Picker {
	p := &Picker{title: cell.Line(title, maxTitle), checked: map[string]bool{}, previews: map[string][]string{}}
	for _, o := range opts {
		o(p)
	}
	p.list.rows = 10
	p.SetItems(items)
	if i := slices.IndexFunc(p.entries, func(e entry) bool { return e.ID == p.current }); i >= 0 {
		p.list.cursor = i
	}
	return p
}

// SetLook draws the picker in another look from now on.
func (p *Picker) SetLook(l Look) { p.look = l }

// SetItems replaces the items; the filter, the item under the cursor and what
// the user turned on and off stay. Previews of items that have changed are
// asked for again.
func (p *Picker) SetItems(items []Item) {
	selected, old := p.selected(), map[string]Item{}
	for _, e := range p.entries {
		old[e.ID] = e.Item
	}
	p.marked = slices.ContainsFunc(items, func(i Item) bool { return i.Mark != "" })
	p.entries, p.widths, p.widest, p.found = make([]entry, len(items)), nil, 0, false
	for i, item := range items {
		before, known := old[item.ID]
		if !known {
			p.checked[item.ID] = item.Checked
		}
		e := p.entry(item)
		if known && before != e.Item {
			delete(p.previews, item.ID)
			if p.asked == item.ID {
				p.asked = ""
			}
		}
		p.entries[i] = e
		p.found = p.found || e.Search != ""
		p.widest = max(p.widest, cell.Width(e.Title))
		for c, column := range e.columns {
			if c == len(p.widths) {
				p.widths = append(p.widths, 0)
			}
			p.widths[c] = max(p.widths[c], cell.Width(column))
		}
	}
	p.match()
	if i := slices.IndexFunc(p.shown, func(n int) bool { return p.entries[n].ID == selected }); i >= 0 {
		p.list.cursor = i
	}
	if p.deleting && p.selected() != selected {
		p.deleting = false // what the question was about is gone
	}
}

func (p *Picker) entry(item Item) entry {
	item.Title, item.Mark = cell.Line(item.Title, maxTitle), cell.Line(item.Mark, maxDetail)
	item.Search = cell.Sanitize(head(item.Search, maxSearch))
	e := entry{Item: item}
	if p.marked {
		e.columns = append(e.columns, item.Mark)
	}
	if item.Detail != "" {
		for column := range strings.SplitSeq(item.Detail, "\t") {
			if len(e.columns) < maxColumns {
				e.columns = append(e.columns, cell.Line(column, maxDetail))
			}
		}
	}
	e.title = fold(item.Title)
	e.rest = fold(item.Search + "\n" + strings.Join(e.columns, "\n"))
	return e
}

// Query is what the user has typed as the filter. The shell may look for it
// elsewhere and add what it found with SetItems.
func (p *Picker) Query() string { return strings.TrimSpace(p.filter.text) }

func (p *Picker) terms() []string { return strings.Fields(fold(p.filter.text)) }

// match finds what the filter lets through.
func (p *Picker) match() {
	terms := p.terms()
	p.shown = make([]int, 0, len(p.entries))
	if len(terms) == 0 {
		for i := range p.entries {
			p.shown = append(p.shown, i)
		}
		p.list.clamp(len(p.shown))
		return
	}
	scores := make([]int, len(p.entries))
	for i := range p.entries {
		if scores[i] = score(terms, p.entries[i].title, p.entries[i].rest); scores[i] > 0 {
			p.shown = append(p.shown, i)
		}
	}
	slices.SortStableFunc(p.shown, func(a, b int) int { return scores[b] - scores[a] })
	p.list.clamp(len(p.shown))
}

// selected is the ID under the cursor, "" if nothing is shown.
func (p *Picker) selected() string {
	if p.list.cursor < len(p.shown) {
		return p.entries[p.shown[p.list.cursor]].ID
	}
	return ""
}

// Update takes a key or a paste. After a Choice to delete the picker stays: the
// shell deletes, and gives it the items that are left.
func (p *Picker) Update(msg tea.Msg) (Choice, bool) {
	key := keyOf(msg)
	if p.deleting {
		return p.answer(key), false
	}
	switch key {
	case "esc", "ctrl+c", "ctrl+g":
		return leave, true
	case "enter":
		return p.choose()
	case "tab", "shift+tab":
		p.toggle(key == "tab")
		return Choice{}, false
	case "ctrl+d":
		p.deleting = p.deletes != "" && p.selected() != ""
		return Choice{}, false
	case "delete":
		if p.filter.at == len(p.filter.text) {
			p.deleting = p.deletes != "" && p.selected() != ""
			return Choice{}, false
		}
	}
	if p.list.key(key, len(p.shown)) {
		return Choice{}, false
	}
	if before := p.filter.text; p.filter.update(msg) && p.filter.text != before {
		p.list.cursor = 0 // at what fits best
		p.match()
	}
	return Choice{}, false
}

func (p *Picker) choose() (Choice, bool) {
	if p.several {
		c := Choice{Action: Choose}
		for _, e := range p.entries {
			if p.checked[e.ID] {
				c.IDs = append(c.IDs, e.ID)
			}
		}
		return c, true
	}
	if id := p.selected(); id != "" {
		return Choice{Action: Choose, IDs: []string{id}}, true
	}
	return Choice{}, false
}

func (p *Picker) toggle(down bool) {
	id := p.selected()
	if !p.several || id == "" {
		return
	}
	p.checked[id] = !p.checked[id]
	if down {
		p.list.key("down", len(p.shown))
	} else {
		p.list.key("up", len(p.shown))
	}
}

// answer is what becomes of the question whether to delete. Only y means yes:
// Enter is what one hits by habit.
func (p *Picker) answer(key string) Choice {
	switch key {
	case "":
		return Choice{} // a paste is no answer
	case "y", "Y":
		p.deleting = false
		return Choice{Action: Delete, IDs: []string{p.selected()}}
	}
	p.deleting = false
	return Choice{}
}

// NeedsPreview is the item whose preview is on the screen and was not yet asked
// for; the shell answers, at any time, with SetPreview. To be called after View.
func (p *Picker) NeedsPreview() (id string, ok bool) {
	id = p.selected()
	if !p.preview || !p.pane || id == "" || id == p.asked {
		return "", false
	}
	if _, known := p.previews[id]; known {
		return "", false
	}
	p.asked = id
	return id, true
}

// SetPreview gives an item its preview, of which the first 400 lines are used.
func (p *Picker) SetPreview(id string, lines []string) {
	if len(p.previews) >= maxPreviews {
		clear(p.previews)
	}
	clean := make([]string, min(len(lines), maxPreview))
	for i := range clean {
		clean[i] = cell.Sanitize(lines[i])
	}
	p.previews[id] = clean
	if p.asked == id {
		p.asked = ""
	}
}

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

func (p *Picker) previewLines(room pane) []string {
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
		lines = append(lines, cell.Wrap(head(t, room.width*room.height*4), room.width)...)
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
	lines := append(make([]string, 0, room.height), first)
	if height > 0 {
		lines = append(lines, p.rows(room.width, height)...)
	}
	if hints != "" {
		for len(lines) < height+1 {
			lines = append(lines, "")
		}
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

const (
	filterPrompt = "/ "
	plainPrompt  = "Filter: "
)

func (p *Picker) prompt() string {
	if p.look.Plain {
		return plainPrompt
	}
	return filterPrompt
}

func (p *Picker) filterLine(width int) string {
	if p.deleting {
		title := p.entries[p.shown[p.list.cursor]].Title
		const ask = "? y/n"
		question := "Delete " + p.deletes + " " + title
		if width < 30 {
			question = "Delete " + title
		}
		return p.look.Theme.Warn.Render(cell.Truncate(question, width-len(ask)) + ask)
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
	why := e.why(terms)
	if why != "" || cell.Width(e.Title) > title && cut(terms, e.Title, title) {
		// What was found matters more than the columns.
		title, columns = width-2-p.lead(), nil
	}
	if e.Bad && len(columns) == 0 {
		b.WriteString(paint(t.Error, "! ")) // there is no room to say why
		title -= len("! ")
	}
	b.WriteString(p.titleCell(e.Title, why, terms, title, paint))
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

// why is what the filter found in Search and nowhere that is seen anyway.
func (e entry) why(terms []string) string {
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
func (p *Picker) titleCell(title, why string, terms []string, width int, paint func(lipgloss.Style, string) string) string {
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

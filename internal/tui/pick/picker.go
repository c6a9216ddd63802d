package pick

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/format"
	"noused/internal/tui/cell"
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
	Note    bool   // it says something among the others, and cannot be chosen
	Branch  string // lines of a tree before the title, where nothing is filtered
	Folded  bool   // it is only there for a filter to find
	With    string // what is deleted with it, at the end of Title; may be empty
}

// Bounds of what is kept and drawn of an item.
const (
	maxTitle    = 256     // bytes
	maxDetail   = 256     // bytes of a column
	maxColumns  = 6       // of Mark and Detail together
	maxSearch   = 4 << 10 // bytes
	maxNote     = 4 << 10 // bytes of a note that are shown under the cursor
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
	if i := slices.IndexFunc(p.shown, func(n int) bool { return p.entries[n].ID == p.current }); i >= 0 {
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
		if !e.Folded {
			p.widest = max(p.widest, cell.Width(e.Branch+e.Title))
		}
		for c, column := range e.columns {
			if c == len(p.widths) {
				p.widths = append(p.widths, 0)
			}
			p.widths[c] = max(p.widths[c], cell.Width(column))
		}
	}
	p.match()
	if i := slices.IndexFunc(p.shown, func(n int) bool {
		return p.entries[n].ID == selected && !p.entries[n].Note
	}); i >= 0 {
		p.list.cursor = i
	}
	if p.deleting && p.selected() != selected {
		p.deleting = false // what the question was about is gone
	}
}

func (p *Picker) entry(item Item) entry {
	item.Title, item.Mark = cell.Line(item.Title, maxTitle), cell.Line(item.Mark, maxDetail)
	item.Search = cell.Sanitize(format.Cut(item.Search, maxSearch))
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
			if !p.entries[i].Folded || p.entries[i].ID == p.current {
				p.shown = append(p.shown, i)
			}
		}
		p.settle()
		return
	}
	scores := make([]int, len(p.entries))
	for i := range p.entries {
		if scores[i] = score(terms, p.entries[i].title, p.entries[i].rest); scores[i] > 0 {
			p.shown = append(p.shown, i)
		}
	}
	slices.SortStableFunc(p.shown, func(a, b int) int { return scores[b] - scores[a] })
	p.settle()
}

// selected is the ID under the cursor, "" if nothing is shown, or a note.
func (p *Picker) selected() string {
	if p.list.cursor < len(p.shown) && !p.entries[p.shown[p.list.cursor]].Note {
		return p.entries[p.shown[p.list.cursor]].ID
	}
	return ""
}

// settle keeps the cursor in the list, and on what can be chosen rather than on a note.
func (p *Picker) settle() {
	p.list.clamp(len(p.shown))
	for i := p.list.cursor; i < len(p.shown); i++ {
		if !p.entries[p.shown[i]].Note {
			p.list.cursor = i
			return
		}
	}
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

// answer handles the answer to whether to delete. Only y means yes:
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

const (
	filterPrompt = "/ "
	plainPrompt  = "Filter: "
)

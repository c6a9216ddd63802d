package pick

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// maxPlanned is how many files are listed that a rewind writes.
const maxPlanned = 1000

// undoing is the choice of a [Rewind] that takes one back.
const undoing = "undo"

// Rewind offers what can be taken back since a message, and shows what that does to files.
type Rewind struct {
	look     Look
	title    string
	text     string // of the message
	options  []rewindOption
	plan     *protocol.Rewound // nil: it is not known yet
	problem  string            // why not
	children int               // that have changed files
	force    map[string]bool   // paths of conflicts that are taken back all the same
	list     list
	notice   string
}

type rewindOption struct{ what, label string }

// NewRewind makes the overlay for a message, whose text may be cut.
func NewRewind(text string, l Look) *Rewind {
	return &Rewind{
		look: l, title: "Rewind to before this message", text: cell.Line(text, maxTitle), force: map[string]bool{},
		options: []rewindOption{
			{string(protocol.RewindConversation), "conversation: go on from before it, its text is in the input"},
			{string(protocol.RewindFiles), "files: as they were before it"},
			{string(protocol.RewindBoth), "both"},
		},
	}
}

// NewUndo makes the overlay for a rewind that is to be taken back, where conflicts are in the way.
func NewUndo(plan protocol.Rewound, l Look) *Rewind {
	return &Rewind{
		look: l, title: "Undo the rewind", force: map[string]bool{}, plan: &plan,
		options: []rewindOption{{undoing, "put back what was taken back"}},
	}
}

// SetLook draws it in another look from now on.
func (r *Rewind) SetLook(l Look) { r.look = l }

// SetPlan takes in what a rewind of the files would do, or why that is not known.
func (r *Rewind) SetPlan(plan protocol.Rewound, problem string) {
	if problem != "" {
		r.problem = problem
		return
	}
	r.plan = &plan
}

// SetChildren says how many child sessions have changed files. A rewind does not take that back.
func (r *Rewind) SetChildren(n int) { r.children = n }

// conflicts are in the way of a rewind of files.
func (r *Rewind) conflicts() []protocol.RewindConflict {
	if r.plan == nil {
		return nil
	}
	return r.plan.Conflicts
}

func (r *Rewind) rows() int {
	n := len(r.options) + len(r.conflicts())
	if r.plan != nil {
		n += min(len(r.plan.Files), maxPlanned)
	}
	return n
}

// conflict is the one under the cursor, or nil.
func (r *Rewind) conflict() *protocol.RewindConflict {
	i := r.list.cursor - len(r.options)
	if all := r.conflicts(); i >= 0 && i < len(all) {
		return &all[i]
	}
	return nil
}

// Update takes a key. Choose means: take back IDs[0], which is what the wire calls it, or "undo";
// the other IDs are paths to force.
func (r *Rewind) Update(msg tea.Msg) (Choice, bool) {
	r.notice = ""
	switch key := keyOf(msg); key {
	case "esc", "q", "ctrl+c", "ctrl+g":
		return leave, true
	case "space":
		r.mark()
	case "enter":
		if r.list.cursor < len(r.options) {
			return r.choose(r.options[r.list.cursor].what)
		}
		r.mark()
	default:
		r.list.key(scrollKey(key), r.rows())
	}
	return Choice{}, false
}

// mark has a file with a conflict taken back all the same, or not.
func (r *Rewind) mark() {
	if c := r.conflict(); c != nil {
		r.force[c.Path] = !r.force[c.Path]
	}
}

func (r *Rewind) choose(what string) (Choice, bool) {
	ids := []string{what}
	if what != string(protocol.RewindConversation) {
		for _, c := range r.conflicts() {
			if r.force[c.Path] {
				ids = append(ids, c.Path)
			}
		}
		switch {
		case r.problem != "":
			r.notice = r.problem
			return Choice{}, false
		case r.plan == nil:
			r.notice = "what it does to the files is not known yet"
			return Choice{}, false
		case len(ids)-1 < len(r.conflicts()):
			r.notice = "nothing is done while there are conflicts; Space marks one to be taken back"
			return Choice{}, false
		}
	}
	return Choice{Action: Choose, IDs: slices.Clip(ids)}, true
}

// View draws it. Sizes are in cells.
func (r *Rewind) View(width, height int) string {
	at := r.look.inner(width, height)
	var lines []string
	if r.text != "" && at.height >= 8 {
		lines = append(lines, r.look.Theme.User.Render(cell.Truncate("› "+r.text, at.width)), "")
	}
	foot := ""
	if at.height >= 6 {
		foot = r.foot(at.width)
	}
	rest := r.body(at.width)
	room := max(at.height-len(lines), 1)
	if foot != "" {
		room--
	}
	from := 0
	if on := r.lineOf(at.width); on >= room {
		from = on - room + 1
	}
	lines = append(lines, rest[from:min(from+room, len(rest))]...)
	if foot != "" {
		for len(lines) < at.height-1 {
			lines = append(lines, "")
		}
		lines = append(lines, foot)
	}
	return r.look.frame(r.title, r.info(), lines, width, height)
}

// body are the options, and what they do to files.
func (r *Rewind) body(width int) []string {
	th := r.look.Theme
	var lines []string
	row := 0
	add := func(text string) {
		lines = append(lines, r.look.row(cell.Truncate(text, max(width-2, 1)), row == r.list.cursor, width))
		row++
	}
	for _, o := range r.options {
		add(o.label)
	}
	if r.children > 0 {
		text := "Not taken back: changes of " + format.Count(r.children, "child session") + ". Esc, then /diff shows them."
		lines = append(append(lines, ""), cell.Wrap(th.Warn.Render(text), width)...)
	}
	say := func(text string) { lines = append(lines, "", th.Title.Render(cell.Truncate(text, width))) }
	switch {
	case r.problem != "":
		return append(append(lines, ""), cell.Wrap(th.Error.Render(cell.Line(r.problem, maxNote)), width)...)
	case r.plan == nil:
		return append(lines, "", th.Dim.Render("…"))
	}
	if len(r.plan.Conflicts) > 0 {
		say("Conflicts: nothing is done to files unless each is marked")
	}
	for _, c := range r.plan.Conflicts {
		box := "[ ] "
		if r.force[c.Path] {
			box = "[x] "
		}
		add(box + shownPath(c.Path) + ": " + cell.Line(c.Why, maxTitle))
	}
	switch {
	case len(r.plan.Files) > 0:
		say("Files")
	case len(r.plan.Conflicts) == 0:
		lines = append(lines, "", th.Dim.Render(cell.Truncate("no file has changed since", width)))
	}
	for i, f := range r.plan.Files {
		if i == maxPlanned {
			lines = append(lines, th.Dim.Render(cell.Truncate(fmt.Sprintf("… %d more", len(r.plan.Files)-i), width)))
			break
		}
		add(fmt.Sprintf("%-8s", cell.Line(f.Action, 8)) + shownPath(f.Path))
	}
	return lines
}

// lineOf is where the row under the cursor is in the body, as it is drawn.
func (r *Rewind) lineOf(width int) int {
	mark := "❯ "
	if r.look.Plain {
		mark = "> "
	}
	return max(slices.IndexFunc(r.body(width), func(line string) bool {
		return strings.HasPrefix(cell.Sanitize(line), mark)
	}), 0)
}

func (r *Rewind) info() string {
	if r.plan == nil {
		return ""
	}
	text := fmt.Sprintf("%d to change", len(r.plan.Files))
	if n := len(r.plan.Conflicts); n > 0 {
		text += fmt.Sprintf(" · %d in conflict", n)
	}
	return text
}

func (r *Rewind) foot(width int) string {
	if r.notice != "" {
		return r.look.Theme.Warn.Render(cell.Truncate(cell.Line(r.notice, maxTitle), width))
	}
	if r.conflict() != nil {
		return r.look.hints(width, "space", "take it back all the same", "esc", "leave all as it is")
	}
	return r.look.hints(width, "enter", "do it", "esc", "leave all as it is")
}

// Cursor says that there is nowhere to type.
func (r *Rewind) Cursor() (x, y int, ok bool) { return 0, 0, false }

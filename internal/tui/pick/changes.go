package pick

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
)

// Actions of a [Changes].
const (
	Send   Action = "send"   // the comments, at once
	Queue  Action = "queue"  // the comments, as a follow-up
	Reload Action = "reload" // read all again
)

// Bounds of the diffs that are kept: the oldest files are folded for others.
const (
	maxPatches    = 4 << 20 // bytes
	maxPatchTotal = 2 * maxPatchLines
)

// Changes shows what a session has changed, file by file, and takes comments on its lines.
type Changes struct {
	look     Look
	comments *Comments
	folder   string
	files    []changedFile
	missing  []protocol.MissingTurn
	children []protocol.ChangedChild
	loaded   bool   // the files are known
	problem  string // why they are not
	order    []int  // files whose diff is kept, the oldest first

	rows   []changesRow
	list   list
	seek   seek
	notice string // said until the next key
	sure   bool   // d was pressed once
	at     pane   // of the last View
	syntax syntax
	drawn  struct {
		x, y int // where what is written begins, in the last View
		ok   bool
	}
}

// changedFile is a file, and its diff once that was asked for.
type changedFile struct {
	protocol.ChangedFile
	open    bool
	asked   bool // the diff is on its way
	known   bool
	cut     bool // the diff has more
	size    int
	lines   []patchLine
	problem string
}

// shows tells whether the file has a diff to show.
func (f *changedFile) shows() bool { return !f.LeftOut && !f.Binary && !strings.HasSuffix(f.Path, "/") }

// seek is a way to a hunk of a file whose diff is on its way; by is 0 where there is none.
type seek struct{ file, by int }

// rowKind says what a row of the changes is.
type rowKind uint8

const (
	fileRow rowKind = iota
	lineRow
	noteRow
	commentRow
	draftRow
	childRow
)

// changesRow is a row: of a file, and of a line of its diff or of a comment, or of a child session.
type changesRow struct {
	kind rowKind
	file int // -1: of none
	line int // of the diff; -1: of none
	at   int // of the comments, or of the children
	note string
}

// NewChanges makes the overlay, to which [Changes.SetFiles] gives what was changed.
func NewChanges(comments *Comments, l Look) *Changes {
	c := &Changes{look: l, comments: comments}
	c.list.rows = 10
	c.layout()
	return c
}

// SetLook draws it in another look from now on.
func (c *Changes) SetLook(l Look) { c.look = l }

// Comments are those that it was made with.
func (c *Changes) Comments() *Comments { return c.comments }

// Folder is what the paths are relative to.
func (c *Changes) Folder() string { return c.folder }

// SetFiles takes in which files were changed; those that were open are read again. The first
// time the first file that has something to show is opened.
func (c *Changes) SetFiles(all protocol.Changes) {
	open := map[string]bool{}
	for _, f := range c.files {
		open[f.Path] = f.open
	}
	first, at := !c.loaded, ""
	if r, ok := c.row(); ok && r.file >= 0 {
		at = c.files[r.file].Path
	}
	if d := c.comments.draft; d != nil {
		open[d.path] = true
	}
	c.list.cursor, c.rows, c.syntax = 0, nil, syntax{}
	c.files, c.order = make([]changedFile, len(all.Files)), nil
	for i, f := range all.Files {
		c.files[i] = changedFile{ChangedFile: f, open: open[f.Path]}
		if first && c.files[i].shows() {
			c.files[i].open, first = true, false
		}
	}
	c.folder, c.missing, c.loaded, c.problem, c.seek = all.Folder, all.Missing, true, "", seek{}
	c.children = all.Children
	c.layout()
	if i := slices.IndexFunc(c.files, func(f changedFile) bool { return f.Path == at }); i >= 0 {
		c.moveTo(changesRow{kind: fileRow, file: i, line: -1})
	}
}

// Failed says why the files are not known, or could not be read again.
func (c *Changes) Failed(why string) { c.problem, c.notice = why, why }

// Say shows a sentence until the next key.
func (c *Changes) Say(text string) { c.notice = text }

// NeedsDiff is the path of a file whose diff is wanted, and was not asked for before.
func (c *Changes) NeedsDiff() (path string, ok bool) {
	for i := range c.files {
		f := &c.files[i]
		if f.open && f.shows() && !f.known && !f.asked {
			f.asked = true
			return f.Path, true
		}
	}
	return "", false
}

// SetDiff takes in the diff of a file, or why there is none.
func (c *Changes) SetDiff(path, diff string, truncated bool, problem string) {
	i := slices.IndexFunc(c.files, func(f changedFile) bool { return f.Path == path })
	if i < 0 {
		return
	}
	c.syntax = syntax{}
	f := &c.files[i]
	f.asked, f.known, f.problem, f.size = false, true, problem, len(diff)
	f.lines, f.cut = parsePatch(diff)
	f.cut = f.cut || truncated
	c.comments.follow(path, f.lines)
	c.order = append(slices.DeleteFunc(c.order, func(o int) bool { return o == i }), i)
	c.bound()
	c.layout()
	if c.seek.by != 0 && c.seek.file == i {
		c.toHunkOf(i, c.seek.by)
		c.seek = seek{}
	}
}

// bound folds the files that were opened first while too much is kept.
func (c *Changes) bound() {
	size, lines := 0, 0
	for _, i := range c.order {
		size, lines = size+c.files[i].size, lines+len(c.files[i].lines)
	}
	for len(c.order) > 1 && (size > maxPatches || lines > maxPatchTotal) {
		f := &c.files[c.order[0]]
		size, lines = size-f.size, lines-len(f.lines)
		f.open, f.known, f.lines, f.size = false, false, nil, 0
		c.order = c.order[1:]
	}
}

// layout makes the rows. The cursor stays on what it is on.
func (c *Changes) layout() {
	var on changesRow
	if c.list.cursor < len(c.rows) {
		on = c.rows[c.list.cursor]
	}
	c.rows = c.rows[:0]
	for i := range c.files {
		c.layFile(i)
	}
	c.layGone()
	for _, m := range c.missing {
		c.rows = append(c.rows, changesRow{
			kind: noteRow, file: -1, line: -1,
			note: fmt.Sprintf("what turn %s/%s changed is not known: %s", m.RunID, m.TurnID, m.Why),
		})
	}
	c.layChildren()
	c.moveTo(on)
}

// layChildren lists the child sessions that have changed files.
func (c *Changes) layChildren() {
	if len(c.children) == 0 {
		return
	}
	head := "child sessions have changed files, too:"
	if len(c.files) == 0 && len(c.missing) == 0 {
		head = "nothing was changed by the session itself; its child sessions have changed files:"
	}
	c.rows = append(c.rows, changesRow{kind: noteRow, file: -1, line: -1, note: head})
	for i := range c.children {
		c.rows = append(c.rows, changesRow{kind: childRow, file: -1, line: -1, at: i})
	}
}

// moveTo puts the cursor on a row, or on that of its line, or of its file. It is on what is
// written, as long as something is.
func (c *Changes) moveTo(on changesRow) {
	if i := slices.IndexFunc(c.rows, func(r changesRow) bool { return r.kind == draftRow }); i >= 0 {
		c.list.cursor = i
		return
	}
	for _, same := range []func(changesRow) bool{
		func(r changesRow) bool { return r == on },
		func(r changesRow) bool { return r.kind == lineRow && r.file == on.file && r.line == on.line },
		func(r changesRow) bool { return r.kind == fileRow && r.file == on.file },
	} {
		if i := slices.IndexFunc(c.rows, same); i >= 0 {
			c.list.cursor = i
			return
		}
	}
	c.list.clamp(len(c.rows))
}

func (c *Changes) layFile(i int) {
	f := &c.files[i]
	c.rows = append(c.rows, changesRow{kind: fileRow, file: i, line: -1})
	type spot struct {
		old    bool
		number int
	}
	lines := map[spot]string{}
	for _, l := range f.lines {
		if s := (spot{l.old(), l.number}); l.code() && c.comments.on(f.Path, l.old(), l.number) {
			lines[s] = l.quote()
		}
	}
	here := func(one comment) spot {
		s := spot{one.old, one.number}
		if was := lines[s]; one.number == 0 || was == "" || was[1:] != one.quote[1:] {
			return spot{}
		}
		return s
	}
	at := map[spot][]int{} // comments; at the zero spot those that have no line here
	for _, n := range c.comments.of(f.Path) {
		s := here(c.comments.list[n])
		at[s] = append(at[s], n)
	}
	var writes spot
	d := c.comments.draft
	if d != nil && d.path == f.Path {
		writes = here(d.comment)
	}
	add := func(line int, s spot) {
		for _, n := range at[s] {
			if d == nil || d.at != n {
				c.rows = append(c.rows, changesRow{kind: commentRow, file: i, line: line, at: n})
			}
		}
		if d != nil && d.path == f.Path && writes == s {
			c.rows = append(c.rows, changesRow{kind: draftRow, file: i, line: line})
		}
	}
	if f.open || !f.shows() || writes == (spot{}) && d != nil && d.path == f.Path {
		add(-1, spot{})
	}
	if !f.open {
		return
	}
	if note := f.note(); note != "" {
		c.rows = append(c.rows, changesRow{kind: noteRow, file: i, line: -1, note: note})
	}
	for n, l := range f.lines {
		c.rows = append(c.rows, changesRow{kind: lineRow, file: i, line: n})
		if l.code() {
			add(n, spot{l.old(), l.number})
		}
	}
	if f.cut {
		const note = "the diff is too long: the rest is not shown"
		c.rows = append(c.rows, changesRow{kind: noteRow, file: i, line: -1, note: note})
	}
}

// note says what an open file has in place of a diff.
func (f *changedFile) note() string {
	switch {
	case f.LeftOut:
		return "its content is not kept, and cannot be shown"
	case f.Binary:
		return "a binary file"
	case f.problem != "":
		return f.problem
	case f.shows() && !f.known:
		return "…"
	case len(f.lines) == 0:
		return "no line of it has changed"
	}
	return ""
}

// layGone lists the comments on files that are not changed any more.
func (c *Changes) layGone() {
	if !c.loaded {
		return
	}
	here := map[string]bool{}
	for _, f := range c.files {
		here[f.Path] = true
	}
	for n, one := range c.comments.list {
		if !here[one.path] {
			c.rows = append(c.rows, changesRow{kind: commentRow, file: -1, line: -1, at: n})
		}
	}
	if d := c.comments.draft; d != nil && !here[d.path] {
		c.rows = append(c.rows, changesRow{kind: draftRow, file: -1, line: -1})
	}
}

// row is the one under the cursor.
func (c *Changes) row() (r changesRow, ok bool) {
	if c.list.cursor >= len(c.rows) {
		return changesRow{file: -1, line: -1}, false
	}
	return c.rows[c.list.cursor], true
}

// Update takes a key or a paste. Send and Queue ask for the comments to be sent, Reload for
// SetFiles, Choose for the changes of a child session.
func (c *Changes) Update(msg tea.Msg) (Choice, bool) {
	c.notice, c.seek = "", seek{}
	if c.comments.draft != nil {
		c.write(msg)
		return Choice{}, false
	}
	key := keyOf(msg)
	if key != "d" {
		c.sure = false
	}
	switch key {
	case "esc", "q", "ctrl+c", "ctrl+g":
		return leave, true
	case "s", "f":
		if c.comments.Len() == 0 {
			c.notice = "there is no comment yet: c writes one"
			return Choice{}, false
		}
		return Choice{Action: map[string]Action{"s": Send, "f": Queue}[key]}, false
	case "r":
		return Choice{Action: Reload}, false
	case "c":
		c.comment()
	case "d":
		c.remove()
	case "enter":
		if r, ok := c.row(); ok && r.kind == childRow {
			return Choice{Action: Choose, IDs: []string{c.children[r.at].SessionID}}, true
		}
		c.enter()
	case "right", "l":
		c.fold(true)
	case "left", "h":
		c.fold(false)
	case "n":
		c.hunk(1)
	case "p", "N":
		c.hunk(-1)
	default:
		c.list.key(scrollKey(key), len(c.rows))
	}
	return Choice{}, false
}

// scrollKey is a key that scrolls a page of text, as a list knows it.
func scrollKey(key string) string {
	switch key {
	case "k":
		return "up"
	case "j":
		return "down"
	case "b":
		return "pgup"
	case "space":
		return "pgdown"
	case "g", "home":
		return "ctrl+home"
	case "G", "end":
		return "ctrl+end"
	}
	return key
}

// enter opens or folds the file under the cursor, or goes on with a comment.
func (c *Changes) enter() {
	r, ok := c.row()
	switch {
	case !ok:
	case r.kind == commentRow:
		c.comment()
	case r.file >= 0:
		c.fold(!c.files[r.file].open)
	}
}

// fold opens or folds the file under the cursor.
func (c *Changes) fold(open bool) {
	r, ok := c.row()
	if !ok || r.file < 0 {
		return
	}
	c.files[r.file].open = open
	if !open {
		c.moveTo(changesRow{kind: fileRow, file: r.file, line: -1})
	}
	c.layout()
}

// hunk goes to the next hunk, or the one before. A file that is folded is opened for that.
func (c *Changes) hunk(by int) {
	for i := c.list.cursor + by; i >= 0 && i < len(c.rows); i += by {
		r := c.rows[i]
		switch {
		case r.kind == lineRow && c.files[r.file].lines[r.line].mark == '@':
			c.list.cursor = i
			return
		case r.kind == fileRow && !c.files[r.file].open && c.files[r.file].shows():
			c.list.cursor = i
			c.files[r.file].open = true
			c.layout()
			if c.files[r.file].known {
				c.toHunkOf(r.file, by)
			} else {
				c.seek = seek{r.file, by}
			}
			return
		}
	}
	c.notice = map[int]string{1: "there is no hunk below", -1: "there is no hunk above"}[by]
}

// toHunkOf goes to the first hunk of a file, or with a negative by to its last.
func (c *Changes) toHunkOf(file, by int) {
	for i, r := range c.rows {
		if r.kind == lineRow && r.file == file && c.files[file].lines[r.line].mark == '@' {
			c.list.cursor = i
			if by > 0 {
				return
			}
		}
	}
}

// comment begins to write one on the line under the cursor, or goes on with the one there. At the head
// of a hunk that is the first line of it that has changed, and where there is no line the file.
func (c *Changes) comment() {
	r, ok := c.row()
	if !ok {
		return
	}
	if c.about(r) == "hunk" {
		c.toChange(r)
		r, _ = c.row()
	}
	if r.kind != commentRow { // there may be one below
		if i := c.list.cursor + 1; i < len(c.rows) && c.rows[i].kind == commentRow && c.rows[i].file == r.file &&
			c.rows[i].line == r.line {
			r = c.rows[i]
		}
	}
	d := &draft{at: -1, line: line{most: maxComment}}
	switch {
	case r.kind == commentRow:
		d.comment, d.at = c.comments.list[r.at], r.at
		d.line.insert(d.text)
	case len(c.comments.list) >= maxComments:
		c.notice = fmt.Sprintf("%d comments wait: s sends them", maxComments)
		return
	case c.about(r) == "line":
		l := c.files[r.file].lines[r.line]
		d.comment = comment{path: c.files[r.file].Path, old: l.old(), number: l.number, quote: l.quote()}
	case r.file >= 0:
		d.path = c.files[r.file].Path
	default:
		c.notice = "a comment is about a line, a hunk or a file: go to one"
		return
	}
	c.comments.draft = d
	c.layout()
}

// about is what a comment is about that is written in a row.
func (c *Changes) about(r changesRow) string {
	switch {
	case r.file < 0:
		return ""
	case r.kind == lineRow && c.files[r.file].lines[r.line].mark == '@':
		return "hunk"
	case r.kind == lineRow && c.files[r.file].lines[r.line].code():
		return "line"
	}
	return "file"
}

// toChange goes from the head of a hunk to the first line of it that has changed.
func (c *Changes) toChange(head changesRow) {
	for i := c.list.cursor + 1; i < len(c.rows) && c.rows[i].file == head.file && c.about(c.rows[i]) != "hunk"; i++ {
		if r := c.rows[i]; c.about(r) == "line" && c.files[r.file].lines[r.line].mark != ' ' {
			c.list.cursor = i
			return
		}
	}
}

// write takes a key while a comment is written.
func (c *Changes) write(msg tea.Msg) {
	d := c.comments.draft
	switch key := keyOf(msg); key {
	case "enter":
		c.comments.keep()
	case "esc":
		if d.line.text != d.text && !d.leaving {
			d.leaving, c.notice = true, "Esc again throws away what is written here; Enter keeps it"
			return
		}
		c.comments.draft = nil
	default:
		d.leaving = false
		d.line.update(msg)
		c.notice = d.line.refusal()
		return
	}
	c.layout()
}

// remove removes the comment under the cursor when it is pressed twice.
func (c *Changes) remove() {
	r, ok := c.row()
	switch {
	case !ok || r.kind != commentRow:
		c.notice = "there is no comment here to remove"
	case !c.sure:
		c.sure, c.notice = true, "d again removes the comment"
	default:
		c.sure = false
		c.comments.list = slices.Delete(c.comments.list, r.at, r.at+1)
		c.layout()
	}
}

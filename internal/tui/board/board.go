// Package board is the model and the look of the board: all sessions of a daemon, or of
// the daemons of several hosts, by what they need, grouped by the folder that they live in.
//
// It learns of sessions by Load, once and whenever something may have been
// missed, and of everything that happens by Apply, which changes one row and
// leaves the others where they are. Update takes a key or a paste and says what
// the user wants; View draws it in exactly the cells it is given.
//
// A Board belongs to one goroutine. The package refuses to do I/O, to start
// goroutines and to read the clock: the shell tells it the time, and carries out
// what was chosen. Texts may come from anybody: they are sanitised.
package board

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"noused/internal/protocol"
	"noused/internal/tui/approvals"
	"noused/internal/tui/pick"
	"noused/internal/tui/theme"
)

// ID names a session. Host is that of its daemon, "" where all are of one daemon.
type ID struct{ Host, Session string }

// Board is the board. New makes one.
type Board struct {
	theme theme.Theme
	home  string // the user's folder, shown as ~
	here  folder // whose groups come first
	note  string // what this daemon cannot tell; "" is nothing
	link  string // what is wrong with the connection; "" is nothing

	hosts map[string]*host
	rows  map[ID]*row
	shown []*row          // that the filter lets through, in order
	folds map[ID]bool     // parents whose children the user has folded, or unfolded
	swept map[string]bool // folders that are no more

	filter   pick.Typed
	touched  bool // there was a key
	selected *row
	at       int // where selected was in shown
	offset   int // the first line of the list on the screen
	page     int // rows of the list on the screen
	lines    []line

	say    ask
	gone   *row // to be deleted, if the user says yes
	told   string
	bad    bool
	cursor struct {
		x, y int
		on   bool
	}

	previews previews
	approval *approvals.Panel // of the session under the cursor
	asks     string           // the host of that approval
	key      string           // that turns to the approval
}

// host is what is known of a daemon.
type host struct {
	loaded    bool
	more      bool   // there are sessions that were not listed
	away      string // why it cannot be reached; "": it can
	approvals []protocol.Approval
}

// folder is one of a host's.
type folder struct{ host, path string }

// Look says how a board is drawn.
type Look struct {
	Theme theme.Theme
	Home  string // the user's folder, shown as ~
	Here  string // the folder whose sessions come first
	Host  string // of that folder
	Key   string // turns to a session's approval, as people write it: "F5"
}

// New makes a board that waits for its first Load.
func New(l Look) *Board {
	return &Board{
		theme: l.Theme, home: l.Home, here: folder{l.Host, l.Here}, hosts: map[string]*host{}, rows: map[ID]*row{},
		folds: map[ID]bool{}, approval: approvals.New(l.Theme, l.Home), key: l.Key,
	}
}

// host is what is known of a daemon, which may be new.
func (b *Board) host(name string) *host {
	h := b.hosts[name]
	if h == nil {
		h = &host{}
		b.hosts[name] = h
	}
	return h
}

// SetTheme draws the board in another theme from now on.
func (b *Board) SetTheme(t theme.Theme) {
	b.theme = t
	b.approval.SetTheme(t)
}

// SetLink says what is wrong with the connection; "" is nothing.
func (b *Board) SetLink(text string) { b.link = text }

// SetAway says why a host cannot be reached, in a line; "": it can. Until then its rows
// are as they were, and say that they are.
func (b *Board) SetAway(name, why string) { b.host(name).away = why }

// SetNote says what this daemon cannot tell; "" is nothing.
func (b *Board) SetNote(text string) { b.note = text }

// SetGone says which folders are no more.
func (b *Board) SetGone(folders map[string]bool) { b.swept = folders }

// Load replaces all sessions of a host: those of list_sessions at one moment, but for the blank
// ones. What
// happened after that moment is told by Apply; what happened shortly before it may be,
// too. More: there are others that are not in the list. The filter and the
// session under the cursor stay.
func (b *Board) Load(name string, list []protocol.SessionInfo, more bool) {
	before := b.rows
	b.rows = make(map[ID]*row, len(before))
	for id, r := range before {
		if id.Host != name {
			b.rows[id] = r
		}
	}
	h := b.host(name)
	if !h.loaded && !b.touched { // the first row is that of another host, perhaps
		b.selected, b.at = nil, 0
	}
	h.loaded, h.more = true, more
	for _, info := range list {
		if info.Blank() {
			continue
		}
		id := ID{name, info.SessionID}
		r := before[id]
		if r == nil {
			r = &row{id: id}
		}
		b.previews.changed(r, info)
		r.set(info)
		b.rows[id] = r
	}
	b.match()
}

// Put takes in what list_sessions of a host says of one session now.
func (b *Board) Put(name string, info protocol.SessionInfo) {
	if info.Blank() {
		b.Remove(ID{name, info.SessionID})
		return
	}
	id := ID{name, info.SessionID}
	known := b.Has(id)
	b.change(b.row(id), func(r *row) {
		b.previews.changed(r, info)
		r.set(info)
	})
	if !known && b.below(b.rows[id]) > 0 {
		b.match()
	}
}

// Remove takes out a session that is no more.
func (b *Board) Remove(id ID) {
	r := b.rows[id]
	if r == nil {
		return
	}
	b.hide(r)
	delete(b.rows, id)
	delete(b.folds, id)
	if r.related() {
		b.match()
	}
	b.settle()
}

// Apply takes in an event of any session of a host, which happened at a time. Unsure: it
// does not say all of what has changed of its session; the shell asks
// list_sessions and answers with Put.
func (b *Board) Apply(name string, ev protocol.Event, at time.Time) (id ID, unsure bool) {
	id = ID{name, ev.Where().SessionID}
	if id.Session == "" {
		return id, false
	}
	r := b.rows[id]
	if r == nil {
		return id, b.host(name).loaded
	}
	b.change(r, func(r *row) { unsure = r.apply(ev, at) })
	if b.previews.stale(ev) {
		b.previews.forget(id)
	}
	return id, unsure
}

// Has tells whether a session is on the board.
func (b *Board) Has(id ID) bool { return b.rows[id] != nil }

// Moving tells whether a session works, so that what the board shows of it is
// another thing each second.
func (b *Board) Moving() bool {
	for _, r := range b.rows {
		if r.state == Working {
			return true
		}
	}
	return false
}

// Of is what is known of a session; false: it is not on the board.
func (b *Board) Of(id ID) (protocol.SessionInfo, bool) {
	r := b.rows[id]
	if r == nil {
		return protocol.SessionInfo{}, false
	}
	return r.info, true
}

// Does is what a session needs or does now, and the last line that it has said.
func (b *Board) Does(id ID, now time.Time) (does, said string) {
	r := b.rows[id]
	if r == nil {
		return "", ""
	}
	return r.does(now), r.said()
}

// Selected is the session under the cursor; false: there is none.
func (b *Board) Selected() (protocol.SessionInfo, bool) {
	if b.selected == nil {
		return protocol.SessionInfo{}, false
	}
	return b.selected.info, true
}

// SelectedID names the session under the cursor; the zero ID: there is none.
func (b *Board) SelectedID() ID {
	if b.selected == nil {
		return ID{}
	}
	return b.selected.id
}

// row is that of a session, which may be new.
func (b *Board) row(id ID) *row {
	r := b.rows[id]
	if r == nil {
		r = &row{id: id, info: protocol.SessionInfo{SessionID: id.Session}, state: Idle}
		b.rows[id] = r
	}
	return r
}

// change changes a row, and moves it to where it belongs then, with its tree.
func (b *Board) change(r *row, how func(*row)) {
	before, parent := r.place, r.parent()
	shown := b.index(r) >= 0
	how(r)
	switch {
	case r.parent() != parent, r.related() && b.moves(r, before):
		b.match()
		return
	case r.place == before && shown, r.related():
		return
	}
	after := r.place
	r.place = before
	if shown {
		b.hide(r)
	}
	r.place = after
	if r.fits(b.terms()) {
		i, _ := slices.BinarySearchFunc(b.shown, r, b.order)
		b.shown = slices.Insert(b.shown, i, r)
	}
	b.settle()
}

// hide takes a row out of those that are shown.
func (b *Board) hide(r *row) {
	if i := b.index(r); i >= 0 {
		b.shown = slices.Delete(b.shown, i, i+1)
	}
}

// index is where a row is shown; -1: it is not.
func (b *Board) index(r *row) int {
	i, found := slices.BinarySearchFunc(b.shown, r, b.order)
	if !found || b.shown[i] != r {
		return -1
	}
	return i
}

// order is what stands before what: trees by their root, and what is in one as match has found it.
func (b *Board) order(x, y *row) int {
	p, q := x.treePlace(), y.treePlace()
	return cmp.Or(
		cmp.Compare(p.state, q.state),
		b.folderOrder(p.folder, q.folder),
		cmp.Compare(p.need, q.need),
		cmp.Compare(p.rank, q.rank),
		strings.Compare(x.top().id.Session, y.top().id.Session),
		cmp.Compare(x.tree.at, y.tree.at),
	)
}

// folderOrder puts the folder of the shell first.
func (b *Board) folderOrder(x, y folder) int {
	switch {
	case x == y:
		return 0
	case x == b.here:
		return -1
	case y == b.here:
		return 1
	}
	return cmp.Or(strings.Compare(x.host, y.host), strings.Compare(x.path, y.path))
}

func (b *Board) terms() []string { return strings.Fields(strings.ToLower(b.filter.Text())) }

// match finds what the filter lets through.
func (b *Board) match() {
	b.shown = b.shown[:0]
	terms := b.terms()
	for _, r := range b.rows {
		r.tree = tree{}
		if r.fits(terms) {
			b.shown = append(b.shown, r)
		}
	}
	b.plant(len(terms) > 0)
	slices.SortFunc(b.shown, b.order)
	b.settle()
}

// settle puts the cursor on the row that it was on, or on the one in its place.
func (b *Board) settle() {
	if b.gone != nil && b.rows[b.gone.id] != b.gone {
		b.gone = nil
	}
	if b.selected != nil {
		if i := b.index(b.selected); i >= 0 {
			b.at = i
			return
		}
	}
	b.move(0)
}

// move moves the cursor by so many rows.
func (b *Board) move(by int) {
	b.at = max(min(b.at+by, len(b.shown)-1), 0)
	b.selected = nil
	if len(b.shown) > 0 {
		b.selected = b.shown[b.at]
	}
}

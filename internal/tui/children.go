package tui

import (
	"cmp"
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/board"
	"noused/internal/tui/cell"
	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"
	"noused/internal/tui/transcript"
)

// What the calls of the tool agent show of their child sessions, as the board shows sessions; and the way
// into a child and back.

const (
	maxChildren = 256 // of a session that are kept, the newest
	maxMarks    = 32  // conversations that are come back to
)

// childWatch is what is known of the children of the session that is shown.
type childWatch struct {
	of     string // that session's key
	board  *board.Board
	byCall map[string]string // their ids
	cancel context.CancelFunc
	feed   *boardFeed // while one works or may begin to
	loaded bool       // they were listed
	more   bool       // and not all of them
	failed bool       // to list them, since the session was read
	asked  map[string]bool
	gone   map[board.ID]bool // deleted ones that a list which was asked for may have still
	listed map[string]bool   // calls whose children were listed, or would have been: one that is not there is deleted

	listing, again bool
}

func newChildWatch(of string) *childWatch {
	return &childWatch{
		of: of, board: board.New(board.Look{}), byCall: map[string]string{}, asked: map[string]bool{},
		listed: map[string]bool{}, gone: map[board.ID]bool{},
	}
}

func (w *childWatch) close() {
	if w != nil && w.cancel != nil {
		w.cancel()
		w.cancel, w.feed = nil, nil
	}
}

// tendChildren follows the children of the session that is shown as long as there is something to see.
func (m *model) tendChildren() {
	if of := m.key(m.site, m.state.SessionID); m.children == nil || m.children.of != of {
		m.children.close()
		m.children = newChildWatch(of)
	}
	w, calls := m.children, m.talk.Delegations()
	if len(calls) == 0 || !m.known || m.lacks != nil {
		w.close()
		return
	}
	live := w.board.Moving()
	for _, c := range calls {
		live = live || !c.Over && m.running() || c.Child != "" && !w.listed[c.CallID] // it is made in a moment
	}
	switch {
	case live && w.cancel == nil:
		m.followChildren(w)
	case !live && w.cancel != nil && !w.listing && len(w.asked) == 0:
		w.close()
	}
	if !w.loaded && !w.failed && m.offline == nil {
		for _, c := range calls {
			w.listed[c.CallID] = true
		}
		m.listChildren(w)
	}
	m.showChildren(w, calls)
}

// followChildren listens to the daemon as the board does.
func (m *model) followChildren(w *childWatch) {
	ctx, cancel := context.WithCancel(m.jobs.Ctx)
	feed, daemon := newBoardFeed(1), m.opts.Daemon
	w.cancel, w.feed = cancel, feed
	m.jobs.Start(func(context.Context) tea.Msg {
		feed.pump(ctx, 0, len(m.sites) > 1, follow.NewStream(daemon, follow.Options{
			Filter: protocol.SubscribeParams{Types: boardTypes},
		}))
		return nil
	})
	woke := func() { m.jobs.Send(boardTold(func() { m.childrenWoke(w, feed) })) }
	m.jobs.Start(func(context.Context) tea.Msg {
		feed.wake(ctx, woke, func() {})
		return nil
	})
}

func (m *model) childrenWoke(w *childWatch, feed *boardFeed) {
	events, of := feed.takeEvents()
	if w != m.children || w.feed != feed {
		return
	}
	for _, ev := range events {
		m.childEvent(w, ev.Event)
	}
	if of[0].relist {
		m.listChildren(w)
	}
}

// childEvent takes in an event of any session.
func (m *model) childEvent(w *childWatch, ev follow.Event) {
	id := board.ID{Session: ev.Where().SessionID}
	if deletes(ev) {
		w.remove(id)
		return
	}
	if !w.board.Has(id) {
		if _, began := ev.Event.(protocol.AgentStart); began && id.Session != m.state.SessionID {
			m.listChildren(w)
		}
		return
	}
	_, unsure := w.board.Apply("", ev.Event, ev.At)
	switch e := ev.Event.(type) {
	case protocol.MessageEnd:
		unsure = e.Role != "user" // it has used something
	case protocol.AgentEnd:
		unsure = true
	}
	if unsure {
		m.askChild(w, id.Session)
	}
}

// childHappened takes in what is heard of all sessions while the children are not listened to, and in any case that one
// was deleted: they may be listened to no longer by the time that it is heard there.
func (m *model) childHappened(ev follow.Event) {
	w := m.children
	if w != nil && (w.feed == nil && w.board.Has(board.ID{Session: ev.Where().SessionID}) || deletes(ev)) {
		m.childEvent(w, ev)
	}
}

func deletes(ev follow.Event) bool {
	status, ok := ev.Event.(protocol.Status)
	return ok && status.Code == protocol.StatusSessionDeleted
}

// remove takes out a child that was deleted. A list that was asked for before may have it still.
func (w *childWatch) remove(id board.ID) {
	w.board.Remove(id)
	if w.listing || w.asked[id.Session] {
		w.gone[id] = true
	}
}

// listChildren lists them, once at a time.
func (m *model) listChildren(w *childWatch) {
	if w.listing {
		w.again = true
		return
	}
	w.listing, w.failed = true, false
	parent, soon := m.state.SessionID, w.loaded
	m.keep(m.place(), func(ctx context.Context, p slash.Place) tea.Msg {
		if soon && !jobs.Pause(ctx, refreshEvery) {
			return nil
		}
		list, more, err := slash.Children(ctx, p, parent, maxChildren)
		return boardTold(func() { m.childrenListed(w, list, more, err) })
	})
}

func (m *model) childrenListed(w *childWatch, list []protocol.SessionInfo, more bool, err error) {
	w.listing = false
	if err != nil {
		w.failed = true
	} else {
		w.loaded, w.more = true, more
		w.board.Load("", list, more)
		for id := range w.gone {
			w.board.Remove(id)
		}
		for _, s := range list {
			w.byCall[s.Parent.ToolCallID] = s.SessionID
		}
	}
	if len(w.asked) == 0 {
		clear(w.gone)
	}
	if w.again && w == m.children {
		w.again = false
		m.listChildren(w)
	}
}

// askChild asks for a child of which an event did not say all.
func (m *model) askChild(w *childWatch, id string) {
	if w.asked[id] {
		return
	}
	w.asked[id] = true
	m.keep(m.place(), func(ctx context.Context, p slash.Place) tea.Msg {
		r, err := slash.Ask(ctx, p, protocol.ListSessions, protocol.ListSessionsParams{Limit: new(1), Before: id + "-"})
		return boardTold(func() {
			delete(w.asked, id)
			switch {
			case err != nil:
			case len(r.Sessions) > 0 && r.Sessions[0].SessionID == id && !w.gone[board.ID{Session: id}]:
				w.board.Put("", r.Sessions[0])
			default:
				w.board.Remove(board.ID{Session: id})
			}
		})
	})
}

// showChildren has the conversation show what is known of the children.
func (m *model) showChildren(w *childWatch, calls []transcript.Delegation) {
	calls = calls[max(len(calls)-maxChildren, 0):]
	last := map[string]string{} // call of each child
	for i, c := range calls {
		calls[i].Child = cmp.Or(c.Child, w.byCall[c.CallID])
		last[calls[i].Child] = c.CallID
	}
	for _, c := range calls {
		if c.Child == "" {
			continue
		}
		id := board.ID{Session: c.Child}
		info, known := w.board.Of(id)
		if known {
			w.listed[c.CallID] = true
		}
		gone := w.loaded && !w.more && !w.listing && !known && w.listed[c.CallID]
		child := transcript.Child{ID: c.Child, Usage: info.Usage, Gone: gone}
		if last[c.Child] == c.CallID {
			child.Doing, child.Said = w.board.Does(id, m.opts.Now())
			child.Asks, child.Working = info.WaitingFor != "", info.Working != nil || info.RunState == protocol.StateRunning
			if child.Began = beganOf(info); known && !child.Working {
				child.Ended = info.LastStopReason
			}
		}
		m.talk.SetChild(c.CallID, child)
	}
}

func beganOf(info protocol.SessionInfo) (at time.Time) {
	if info.Working != nil {
		at = info.Working.StartedAt
	}
	return at
}

// enterChild shows the child session of the call in focus, if there is one.
func (m *model) enterChild() (done bool) {
	id, gone := m.talk.FocusedChild()
	switch {
	case id == "":
		return false
	case gone:
		m.talk.Notice("info", "this child session was deleted")
		return true
	}
	m.goInto(id, false)
	return true
}

// goInto shows a session below the one that is shown, or with changes what that has changed.
func (m *model) goInto(id string, changes bool) {
	if len(m.marks) >= maxMarks || m.marks == nil {
		m.marks = map[string]transcript.Mark{}
	}
	m.marks[m.key(m.site, m.state.SessionID)] = m.talk.Mark()
	m.follow(id)
	if m.changesOf = ""; changes {
		m.changesOf = id
	}
}

// click goes into the child session of the block that is clicked, as Enter does.
func (m *model) click(at tea.MouseClickMsg) {
	busy := m.over != nil || !m.input.Empty() || m.rewrite != nil || m.find != nil || m.approval.Focused()
	if at.Button == tea.MouseLeft && !busy && m.known && !m.noDaemon() && !m.first() && m.talk.FocusChildAt(at.Y) {
		m.enterChild()
	}
}

func (m *model) focusesChild() bool {
	id, _ := m.talk.FocusedChild()
	return id != ""
}

// goesUp tells whether Esc goes to the parent of the session that is shown.
func (m *model) goesUp() bool {
	return m.known && m.state.Parent != nil && m.input.Empty() && m.rewrite == nil && !m.planning() &&
		len(m.unsent) == 0 && m.goal == nil
}

// goUp shows the parent of the session that is shown, where it was left.
func (m *model) goUp() {
	m.returns = m.key(m.site, m.state.Parent.SessionID)
	m.follow(m.state.Parent.SessionID)
}

// comeBack goes to where a conversation was left for a child; false: it was not.
func (m *model) comeBack() bool {
	key := m.key(m.site, m.state.SessionID)
	mark, left := m.marks[key]
	delete(m.marks, key)
	back := m.returns == key
	m.returns = ""
	if !back || !left {
		return false
	}
	m.talk.Return(mark)
	return true
}

// path is the title of the session that is shown, behind that of its parent where this screen has shown it.
func (m *model) path() string {
	if m.state.Parent != nil {
		if parent := m.attention.visited[m.key(m.site, m.state.Parent.SessionID)]; parent != "" {
			return cell.Truncate(parent, 18) + " › " + m.title()
		}
	}
	return m.title()
}

// ends is what a key does that ends the run.
func (m *model) ends(what string) string {
	if m.goesUp() {
		return "/abort " + what
	}
	return m.keyed("stop", what)
}

package tui

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"noused/internal/alert"
	"noused/internal/client/approval"
	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

const (
	burst      = 2 * time.Second // what happens within it is told at once
	maxVisited = 256             // sessions whose runs are reported
)

// attention is what the user is told while looking elsewhere, and what the daemon
// hears what the user has looked at.
type attention struct {
	unseen  bool              // a run has ended here, or the session was opened, since it was marked as read
	visited map[string]string // titles of the sessions that this screen has shown, by key
	kids    map[string]bool   // those of them that are child sessions
	runs    alert.Watch       // of every session
	session string            // the one reported last
	path    string            // to it, where it is a child that asks
	message string            // of it; "" once the user has looked
	count   int               // of what is told with it
	waiting bool              // it is told when the burst is over
}

// happened is an event of any session, for attention; unheard says that some may
// have been missed, burstOver the end of a burst.
type (
	happened struct {
		follow.Event
		site *site
	}
	unheard struct{ site *site }
	// unanswered is a site that is asked again, as it has not answered.
	unanswered struct{ site *site }
	burstOver  struct{}
)

// markRead tells the daemon that the user has seen the session, so that every
// client agrees: where it is shown, and the terminal looked at.
func (m *model) markRead() {
	a := &m.attention
	if !a.unseen || !m.focused || !m.known || m.offline != nil || m.goal != nil || m.shownBoard() != nil ||
		slash.Refusal(m.link, protocol.MarkRead, protocol.MarkReadParams{}) != nil {
		return
	}
	a.unseen = false
	p := m.place()
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		// Where it fails the next run's end asks again.
		_, _ = slash.Ask(ctx, p, protocol.MarkRead, protocol.MarkReadParams{Scope: p.Scope()})
		return nil
	})
}

// visit notes the session that is shown.
func (m *model) visit() {
	a := &m.attention
	if len(a.visited) >= maxVisited {
		clear(a.visited)
		clear(a.kids)
	}
	if a.visited == nil {
		a.visited, a.kids = map[string]string{}, map[string]bool{}
	}
	key := m.key(m.site, m.state.SessionID)
	a.visited[key], a.kids[key] = m.title(), m.state.Parent != nil
	if m.lacks == nil {
		m.watch(m.site)
	}
}

// watch has runs told that begin, end, ask or are answered, in any session of a
// daemon, until the program ends.
func (ds *daemons) watch(at *site) {
	if at.watched {
		return
	}
	at.watched = true
	several := len(ds.sites) > 1
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		s := follow.NewStream(at.opts.Daemon,
			follow.Options{Filter: protocol.SubscribeParams{Types: []string{"agent_start", "agent_end", "status"}}})
		defer s.Close()
		tellAll(ctx, s, several, func(h follow.Update) {
			switch h := h.(type) {
			case follow.Connected, follow.Gap: // what was before is not told
				ds.jobs.Send(unheard{at})
			case follow.Line:
				if tells(h.Event.Event) {
					ds.jobs.Send(happened{h.Event, at})
				}
			case follow.Disconnected:
				if several {
					ds.jobs.Send(away{at, h.Err})
				}
			}
		})
		return nil
	})
}

// tells reports whether an event is for happened.
func tells(ev protocol.Event) bool {
	status, ok := ev.(protocol.Status)
	return alert.Concerns(ev) ||
		ok && (status.Code == protocol.StatusApprovalResolved || status.Code == protocol.StatusSessionDeleted)
}

// happened has the approvals of other sessions counted anew, and reports what the
// user wants to learn of, at the end of the burst.
func (m *model) happened(h happened) {
	ev := h.Event
	m.happenedAt(h.site, ev.Event)
	if h.site == m.site {
		m.childHappened(ev)
	}
	if !m.config.Notify.Bell && !m.config.Notify.OSC {
		return
	}
	a := &m.attention
	run := m.key(h.site, "") + ev.Where().RunID
	said, ok := a.runs.See(run, ev.Event, ev.At, alert.Wish{On: m.config.Notify.On, After: m.config.Notify.After})
	id := m.key(h.site, ev.Where().SessionID)
	path := ""
	if e, is := ev.Event.(protocol.Status); is && e.Approval != nil {
		path = approval.Path(*e.Approval)
	}
	if !ok || m.focused && m.reports || !m.concerns(h.site, ev.Where().SessionID, said.Kind, path) {
		return
	}
	a.session, a.path, a.message = id, path, cell.Line(said.Message, 200)
	a.count++
	if !a.waiting {
		a.waiting = true
		m.jobs.Start(func(ctx context.Context) tea.Msg {
			if !jobs.Pause(ctx, burst) {
				return nil
			}
			return burstOver{}
		})
	}
}

// concerns tells whether the user learns of something in a session: what a session asks that was shown here, that is on
// the board, or that is a child; and how a run ended of one that is none.
func (m *model) concerns(at *site, session, kind, path string) bool {
	a, key, v := &m.attention, m.key(at, session), m.shownBoard()
	_, visited := a.visited[key]
	switch {
	case kind == alert.Approval:
		return visited || v != nil || path != ""
	case visited || v == nil:
		return visited && !a.kids[key]
	}
	info, _ := v.Of(v.id(at, session))
	return info.Parent == nil
}

// alert is what the user learns of; "" is nothing.
func (m *model) alert() string {
	a := &m.attention
	if a.message == "" {
		return ""
	}
	title := cmp.Or(a.path, a.visited[a.session])
	at, id := m.of(a.session)
	if v := m.shownBoard(); v != nil && title == "" {
		info, _ := v.Of(v.id(at, id))
		title = info.Title
	}
	if at != m.site {
		title = at.opts.Host + ": " + cmp.Or(title, id)
	}
	return cell.Line(cmp.Or(title, id), 100) + ": " + a.message
}

// ring rings the terminal, unless the user has looked meanwhile.
func (m *model) ring() tea.Cmd {
	a := &m.attention
	n := a.count
	a.waiting, a.count = false, 0
	text := m.alert()
	if m.focused && m.reports || text == "" {
		return nil
	}
	if n > 1 {
		text = fmt.Sprintf("%s (and %d more)", text, n-1)
	}
	out := ""
	if m.config.Notify.OSC {
		body := strings.ReplaceAll(text, ";", ",")
		out += "\x1b]9;nous: " + body + "\x1b\\" + "\x1b]777;notify;nous;" + body + "\x1b\\"
	}
	if m.config.Notify.Bell {
		out += "\a"
	}
	if out == "" {
		return nil
	}
	return tea.Raw(out)
}

// lookedAt notes that the user looks at the terminal, or does not any more.
func (m *model) lookedAt(yes bool) {
	m.focused = yes
	if yes {
		m.attention.message = ""
	}
}

// windowTitle is the terminal's.
func (m *model) windowTitle() string {
	switch alert := m.alert(); {
	case alert != "":
		return cell.Truncate("● "+alert, 60)
	case m.shownBoard() != nil:
		return "nous: board"
	case m.known:
		return cell.Truncate("nous: "+m.title(), 48) + m.titleState()
	}
	return "nous"
}

// progress is what the terminal's tab or task bar shows of the run (OSC 9;4), where the
// terminal is one that takes it: nil is nothing. bubbletea takes it away at the end.
func (m *model) progress() *tea.ProgressBar {
	switch {
	case !m.showsProgress || m.offline != nil:
		return nil
	case m.approval.ID() != "":
		return tea.NewProgressBar(tea.ProgressBarWarning, 100)
	case m.running():
		return tea.NewProgressBar(tea.ProgressBarIndeterminate, 0)
	}
	return nil
}

// programStatus is what a terminal that takes it shows of the session (OSC 7501): nil is nothing.
func (m *model) programStatus() *tea.ProgramStatus {
	if !m.showsStatus || m.offline != nil || !m.known {
		return nil
	}
	s := tea.ProgramStatus{App: "nous", State: tea.ProgramStateIdle}
	switch {
	case m.approval.ID() != "":
		s.State, s.Kind = tea.ProgramStateBlocked, tea.ProgramStatusKindPermission
	case m.running():
		s.State = tea.ProgramStateWorking
	case m.failure() != nil:
		s.State = tea.ProgramStateError
	}
	return &s
}

// leftBehind gives the terminal its title back, and takes the status away.
func (m *model) leftBehind() string {
	if m.showsStatus {
		return popTitle + ansi.ClearProgramStatus
	}
	return popTitle
}

// titleState is what the session does, in the window's title.
func (m *model) titleState() string {
	switch {
	case m.offline != nil:
		return " (no connection)"
	case m.approval.ID() != "":
		return " (needs you)"
	case m.running():
		return " (running)"
	}
	return ""
}

// The terminal keeps its title aside while nous has it (XTWINOPS).
var (
	pushTitle = ansi.WindowOp(22, 2)
	popTitle  = ansi.WindowOp(23, 2)
)

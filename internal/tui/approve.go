package tui

import (
	"cmp"
	"context"
	"strings"

	"noused/internal/tui/approvals"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// approved is the reply to an answer.
type approved struct {
	id  string
	err error
}

// tendApproval shows what the session on the screen waits for.
func (m *model) tendApproval() {
	m.approval.Show(approval.Of(m.state, m.state.SessionID))
	if m.board != nil {
		for _, d := range m.board.daemons {
			list := d.site.asked
			if d.site == m.site {
				list = m.state.PendingApprovals
			}
			m.board.SetApprovals(d.host, list)
		}
	}
}

// approvalEvent keeps the approvals up to date, and says how one ended.
func (m *model) approvalEvent(e protocol.Status) {
	shown := m.approval.ID()
	m.state.PendingApprovals = approval.Pending(m.state.PendingApprovals, e)
	if e.Code != protocol.StatusApprovalResolved || e.SessionID != m.state.SessionID {
		return
	}
	text := approval.Resolution(e)
	if e.ApprovalID == m.answeredHere && e.Outcome != protocol.OutcomeWithdrawn {
		text = "approval: " + string(e.Outcome)
	}
	if shown == e.ApprovalID || shown == "" {
		m.talk.Notice("info", text)
	}
}

// askedElsewhere takes in what the board hears of the approvals of other sessions. Those
// of daemons that are not shown happenedAt takes in.
func (m *model) askedElsewhere(at *site, e protocol.Status) {
	switch {
	case at != m.site:
	case e.SessionID == m.state.SessionID:
		return // which the session's own events tell, in their order
	default:
		m.state.PendingApprovals = approval.Pending(m.state.PendingApprovals, e)
	}
	if e.Code == protocol.StatusApprovalResolved {
		m.board.Tell(approval.Resolution(e), false)
	}
}

// pressApproval lets the approval have a key or a paste.
func (m *model) pressApproval(msg tea.Msg) {
	m.sendAnswer(m.site, m.approval.Update(msg))
}

func (m *model) sendAnswer(at *site, a approvals.Answer) {
	if a.ID == "" {
		return
	}
	if at == m.site && m.offline != nil {
		m.approval.Refused(a.ID)
		m.talk.Notice("error", "not connected to the daemon: the approval is not answered")
		return
	}
	m.answeredHere = a.ID
	params := protocol.ApproveParams{ApprovalID: a.ID, Option: a.Option, Reason: a.Reason}
	if a.Content != "" {
		params.Content = jsontext.Value(a.Content)
	}
	m.keep(m.at(at), func(ctx context.Context, p slash.Place) tea.Msg {
		return approved{a.ID, slash.Approve(ctx, p, params)}
	})
}

// approved reports an answer that was not taken. Who was first is told by the
// event.
func (m *model) approved(a approved) {
	if a.err == nil {
		return
	}
	m.approval.Refused(a.id)
	if m.answeredHere == a.id {
		m.answeredHere = ""
	}
	if m.shownBoard() != nil {
		m.board.Refused(a.id, slash.Describe(a.err))
	}
	m.talk.Notice("error", slash.Describe(a.err))
}

// turnToApproval gives the keys to the approval, or, from there, to the input.
func (m *model) turnToApproval() {
	switch {
	case m.approval.Focused():
		m.approval.Blur()
	case !m.approval.Focus():
		m.talk.Notice("info", "nothing waits for an answer here")
	default:
		m.input.Menu.Close()
	}
}

// nextApproval shows the session that asks next after this one, the oldest approval
// first.
func (m *model) nextApproval() {
	others := m.elsewhere()
	if len(others) == 0 {
		m.talk.Notice("info", "no other session has an approval")
		return
	}
	next := others[0]
	for i, a := range m.state.PendingApprovals {
		if a.SessionID == m.state.SessionID { // which is not among the others
			next = others[i%len(others)]
			break
		}
	}
	m.move(next.site, next.SessionID)
}

// approvalLines are the approval above the input in at most height lines.
func (m *model) approvalLines(height int) []string {
	if m.approval.ID() == "" || m.over != nil || !m.known {
		return nil
	}
	key, _, _ := strings.Cut(m.keys.Shown("answer"), ", ")
	key = cmp.Or(key, "/approve")
	if m.input.Empty() || m.lettered() {
		key = "" // the keys below answer
	}
	return m.approval.View(m.width, height, key)
}

// approvalParts are what the first line says of approvals and of the end of
// them.
func (m *model) approvalParts() (parts []part) {
	if n := len(m.elsewhere()); n > 0 {
		parts = append(parts, part{m.keyed("next-approval", format.Count(n, "approval")+" elsewhere"), m.theme.Warn, 1})
	}
	if mode := m.state.ApprovalMode; mode != "" && mode != protocol.ApprovalsAsk {
		parts = append(parts, part{"approvals:" + cell.Line(string(mode), 10), m.theme.Warn, 1})
	}
	return parts
}

// The commands.

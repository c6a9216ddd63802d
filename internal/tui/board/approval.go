package board

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
)

// SetApprovals says what sessions of a host wait for, the oldest first. The approval of
// the session under the cursor takes the place of the preview.
func (b *Board) SetApprovals(name string, all []protocol.Approval) {
	b.host(name).approvals = all
	b.ofSelected()
}

// ofSelected shows the approval of the session under the cursor.
func (b *Board) ofSelected() {
	if b.selected == nil {
		b.approval.Show(nil)
		return
	}
	id := b.selected.id
	all := b.host(id.Host).approvals
	i := slices.IndexFunc(all, func(a protocol.Approval) bool { return a.SessionID == id.Session })
	if i < 0 || id.Host != b.asks { // of two hosts they may be called the same
		b.approval.Show(nil)
	}
	if b.asks = id.Host; i >= 0 {
		b.approval.Show(&all[i])
	}
}

// turn gives the keys to the approval under the cursor, where there is one.
func (b *Board) turn() {
	if b.ofSelected(); !b.approval.Focus() {
		b.Tell("this session asks nothing", false)
	}
}

// answer lets the approval have a key or a paste.
func (b *Board) answer(msg tea.Msg) Choice {
	a := b.approval.Update(msg)
	if a.ID == "" {
		return Choice{}
	}
	return Choice{Action: Answer, ID: b.selected.id, Answer: a}
}

// Refused says that an answer did not arrive, and why.
func (b *Board) Refused(id, why string) {
	b.approval.Refused(id)
	b.Tell(why, true)
}

// turns tells whether a key is the one that turns to the approval.
func (b *Board) turns(key string) bool { return b.key != "" && key == strings.ToLower(b.key) }

// asked is the approval under the cursor in the room that it has, with at least
// three lines left for the list.
func (b *Board) asked(width, room int) []string {
	b.ofSelected()
	if b.approval.ID() == "" {
		return nil
	}
	return b.approval.View(width, min(b.approval.Height(width), max(room-max(room/4, 3), 2)), b.key)
}

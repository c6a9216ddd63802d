package board

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
)

// SetQuestions says what sessions of a host wait for, the oldest first. The question of
// the session under the cursor takes the place of the preview.
func (b *Board) SetQuestions(name string, all []protocol.Approval) {
	b.host(name).questions = all
	b.ofSelected()
}

// ofSelected shows the question of the session under the cursor.
func (b *Board) ofSelected() {
	if b.selected == nil {
		b.question.Show(nil)
		return
	}
	id := b.selected.id
	all := b.host(id.Host).questions
	i := slices.IndexFunc(all, func(a protocol.Approval) bool { return a.SessionID == id.Session })
	if i < 0 || id.Host != b.asks { // of two hosts they may be called the same
		b.question.Show(nil)
	}
	if b.asks = id.Host; i >= 0 {
		b.question.Show(&all[i])
	}
}

// turn gives the keys to the question under the cursor, where there is one.
func (b *Board) turn() {
	if b.ofSelected(); !b.question.Focus() {
		b.Tell("this session asks nothing", false)
	}
}

// answer lets the question have a key or a paste.
func (b *Board) answer(msg tea.Msg) Choice {
	a := b.question.Update(msg)
	if a.ID == "" {
		return Choice{}
	}
	return Choice{Action: Answer, ID: b.selected.id, Answer: a}
}

// Refused says that an answer did not arrive, and why.
func (b *Board) Refused(id, why string) {
	b.question.Refused(id)
	b.Tell(why, true)
}

// turns tells whether a key is the one that turns to the question.
func (b *Board) turns(key string) bool { return b.key != "" && key == strings.ToLower(b.key) }

// asked is the question under the cursor in the room that it has, with at least
// three lines left for the list.
func (b *Board) asked(width, room int) []string {
	b.ofSelected()
	if b.question.ID() == "" {
		return nil
	}
	return b.question.View(width, min(b.question.Height(width), max(room-max(room/4, 3), 2)), b.key)
}

package tui

import (
	"cmp"
	"context"
	"time"

	"noused/internal/tui/jobs"

	tea "charm.land/bubbletea/v2"
)

const (
	// letterSettled is how long an approval, or a plan, has to be on the screen before a letter is for
	// it: it may come up under somebody's fingers.
	letterSettled = 500 * time.Millisecond
	// letterAlone is how long a letter has to stay alone in the input: a text may begin with it.
	letterAlone = 500 * time.Millisecond
)

// letters are the keys that answer an approval, or do a plan, from the empty input.
type letters struct {
	open  string    // the approval that is on the screen, or the run whose plan is ready; "" is none
	since time.Time // when it came there
	keys  int       // that were pressed
	last  tea.KeyPressMsg
	of    string // what was open and the last one is for; "" is nothing
}

// letterStayed says that nothing was typed behind a letter for a while.
type letterStayed struct{ keys int }

// tendLetters notes since when something is open.
func (m *model) tendLetters() {
	open := ""
	if m.over == nil && m.find == nil {
		open = cmp.Or(m.approval.ID(), m.readyPlan())
	}
	if open != m.letters.open {
		m.letters.open, m.letters.since = open, m.opts.Now()
	}
}

// pressLetter has a key that was written into the empty input answer what is open, if nothing
// follows it.
func (m *model) pressLetter(k tea.KeyPressMsg, alone bool) {
	l := &m.letters
	l.keys, l.last, l.of = l.keys+1, k, ""
	takes := k.String() == planKey
	if m.approval.ID() != "" {
		takes = m.offline == nil && m.approval.Takes(k.String())
	}
	if l.open == "" || !alone || !takes || m.input.Text() != k.String() || m.opts.Now().Sub(l.since) < letterSettled {
		return
	}
	l.of = l.open
	pressed := letterStayed{l.keys}
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		if !jobs.Pause(ctx, letterAlone) {
			return nil
		}
		return pressed
	})
}

// lettered tells whether all that is written is a letter for what is open.
func (m *model) lettered() bool {
	l := m.letters
	return l.of != "" && l.of == l.open && m.offline == nil && m.input.Text() == l.last.String()
}

// letterStayed does what a letter is for if it was the last key and is all that is written.
func (m *model) letterStayed(s letterStayed) {
	if s.keys == m.letters.keys && m.lettered() {
		m.doLetter()
	}
}

func (m *model) doLetter() {
	if m.approval.ID() == "" {
		m.doPlan()
		return
	}
	m.input.Clear()
	m.approval.Focus()
	m.pressApproval(m.letters.last)
}

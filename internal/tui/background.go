package tui

import (
	"context"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/terminal"

	tea "charm.land/bubbletea/v2"
)

// answerPatience is how long the terminal may take to say its background colour. Some
// never do.
const answerPatience = time.Second

// background is the question for the terminal's background colour. Anyone who leaves the
// terminal waits for the answer: a shell would take it for something typed.
type background struct {
	asked time.Time // zero once it is answered
	then  tea.Msg   // what waits for the answer, or nil
}

// noBackground says that the terminal has had its time.
type noBackground struct{}

// askBackground asks the terminal.
func (dev *device) askBackground() tea.Cmd {
	dev.background.asked = time.Now()
	return tea.RequestBackgroundColor
}

// hold is bubbletea's filter of messages: the end of the program, and its suspension, wait
// for an open answer.
func (m *model) hold(_ tea.Model, msg tea.Msg) tea.Msg {
	switch msg.(type) {
	case tea.QuitMsg, terminal.Stopped:
	default:
		return msg
	}
	b := &m.background
	left := answerPatience - time.Since(b.asked)
	if b.asked.IsZero() || left <= 0 {
		return msg
	}
	if _, ends := b.then.(tea.QuitMsg); !ends { // which a suspension does not replace
		b.then = msg
	}
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		if !jobs.Pause(ctx, left) {
			return nil
		}
		return noBackground{}
	})
	return nil
}

// backgroundAnswered goes on with what waited for the answer.
func (dev *device) backgroundAnswered() tea.Cmd {
	then := dev.background.then
	dev.background = background{}
	if then == nil {
		return nil
	}
	return func() tea.Msg { return then }
}

package tui

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"noused/internal/protocol"
	"noused/internal/tui/slash"
)

// shellLine is a line for the shell that runs.
type shellLine struct {
	aside  string // the key of what stands for it in the conversation of this screen
	output slash.ShellOutput
}

// shellLine is f as a job that Esc ends, which shows what the line says where it was typed.
func (m *model) shellLine(f action, line string) action {
	id := uuid.NewString()
	s := &shellLine{output: slash.ShellOutput{Line: line}}
	s.aside = m.talk.Aside(strings.TrimSpace(s.output.String()))
	m.talk.End()
	if m.shells == nil {
		m.shells = map[string]*shellLine{}
	}
	m.shells[id] = s
	shell, end := context.WithCancel(m.jobs.Ctx)
	m.endShell = end
	return func(_ context.Context, p slash.Place) slash.Outcome {
		defer end()
		p.OutputID = id
		o := f(shell, p)
		o.Shell = id
		return o
	}
}

// shellSays shows more of what a line of this screen says.
func (m *model) shellSays(e protocol.Status) {
	if s := m.shells[e.OutputID]; s != nil {
		s.output.Add(strings.TrimSuffix(e.Message, "\n") + "\n")
		s.aside = m.talk.Amend(s.aside, s.output.String())
	}
}

// shellEnded leaves of a line what stays on the screen: nothing where the conversation has
// it, or a note.
func (m *model) shellEnded(o slash.Outcome) {
	s := m.shells[o.Shell]
	if s == nil {
		return
	}
	delete(m.shells, o.Shell)
	text := ""
	if o.Stays && o.Err == nil {
		text = o.Info
	}
	m.talk.Amend(s.aside, text)
}

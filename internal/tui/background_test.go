package tui

import (
	"context"
	"image/color"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/terminal"

	tea "charm.land/bubbletea/v2"
)

// The terminal's answer to an approval of nous must not reach the shell that nous leaves
// the terminal to. A terminal that never answers keeps nobody.
func TestLeavingWaitsForTheTerminalsAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  bool
		leave   tea.Msg
		took    time.Duration
		another tea.Msg // that comes while leave waits
	}{
		{"quit", true, tea.QuitMsg{}, 0, nil},
		{"suspend", true, terminal.Stopped{}, 0, nil},
		{"quit and suspend", true, tea.QuitMsg{}, 0, terminal.Stopped{}},
		{"a terminal that never answers", false, tea.QuitMsg{}, answerPatience, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				msgs := make(chan tea.Msg, 2)
				j := &jobs.Jobs{Ctx: context.Background(), Send: func(msg tea.Msg) { msgs <- msg }}
				m := &model{outbox: outbox{daemons: daemons{jobs: j}}, appearance: appearance{dark: true}}
				if got := m.hold(m, c.leave); got != c.leave {
					t.Fatalf("nothing was asked: got %#v", got)
				}
				m.askBackground()
				begun := time.Now()
				for _, msg := range []tea.Msg{c.leave, c.another} {
					if msg != nil && m.hold(m, msg) != nil {
						t.Fatalf("%#v does not wait", msg)
					}
				}
				next := tea.Msg(tea.BackgroundColorMsg{Color: color.Black})
				if !c.answer {
					next = <-msgs
				}
				goesOn := m.update(next)
				if goesOn == nil || goesOn() != c.leave || m.hold(m, c.leave) != c.leave {
					t.Error("it does not go on")
				}
				if took := time.Since(begun); took != c.took {
					t.Errorf("got %s, want %s", took, c.took)
				}
				m.jobs.WG.Wait()
				if m.update(noBackground{}) != nil {
					t.Error("a patience that ends after the answer does something")
				}
			})
		})
	}
}

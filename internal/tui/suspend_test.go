package tui

import (
	"io"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// resting releases the terminal as soon as it is drawn on, and ends when it has
// it again.
type resting struct {
	t        *testing.T
	released chan<- bool
}

type begin struct{}

func (r resting) Init() tea.Cmd { return func() tea.Msg { return begin{} } }

func (r resting) View() tea.View { return tea.NewView("") }

func (r resting) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg.(type) {
	case begin:
		if !drawing() {
			r.t.Error("nothing draws, or it is called otherwise")
		}
		return r, release(func() { r.released <- drawing() })
	case tea.ResumeMsg:
		return r, tea.Quit
	}
	return r, nil
}

// What drew before the terminal was given back must not stop what draws
// afterwards.
func TestNothingDrawsOnAReleasedTerminal(t *testing.T) {
	for range 5 {
		released := make(chan bool, 1)
		program := tea.NewProgram(resting{t, released}, tea.WithInput(nil), tea.WithOutput(io.Discard), tea.WithoutSignalHandler())
		if _, err := program.Run(); err != nil {
			t.Fatal(err)
		}
		if <-released {
			t.Fatal("it is drawn on while it is released")
		}
	}
}

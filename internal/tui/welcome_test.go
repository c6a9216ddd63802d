package tui

import (
	"strings"
	"testing"

	"noused/internal/daemontest"

	tea "charm.land/bubbletea/v2"
)

// A newcomer learns what gives a model, until there is one; nobody answers before.
func TestFirstScreenSaysWhatGivesAModel(t *testing.T) {
	d := daemontest.New(t, noused, "[model]\n# provider = none\n")
	d.Modelless = true
	d.Start()
	h := useDaemon(t, d.Socket)
	h.send(tea.WindowSizeMsg{Width: 130, Height: 30})
	h.sees("This is nous", "No model is chosen yet", "nous setup", "/agent begins a session that another agent makes")
	h.write("hello")
	h.press("enter")
	h.until("the refusal", func() bool { return strings.Contains(h.screen(), "no model is chosen: nous setup") })
}

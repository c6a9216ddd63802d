package tui

import (
	"context"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/pick"
)

// ofTheInput are actions that are nothing without their key.
var ofTheInput = []string{"send", "queue", "newline", "clear", "palette"}

// newPalette lists all that can be done, with its keys.
func newPalette(m *model) *overlay {
	var items []pick.Item
	for _, a := range actions {
		if !slices.Contains(ofTheInput, a.name) {
			items = append(items, pick.Item{ID: a.name, Title: a.what, Detail: m.keys.shown(a.name), Search: a.name})
		}
	}
	for _, c := range commands {
		items = append(items, pick.Item{
			ID: "/" + c.name, Title: "/" + strings.TrimSpace(c.name+" "+c.args), Detail: c.about,
			Search: c.about,
		})
	}
	p := pick.New("Commands", items, pick.With(m.pickLook()))
	from := m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		found, _ := fileCandidates(ctx, from)
		return moreCommands{p, items, found}
	})
	return &overlay{box: p, picker: p, chosen: (*model).chooseCommand}
}

// moreCommands are what the daemon has for a palette.
type moreCommands struct {
	of    *pick.Picker
	items []pick.Item
	found []candidate
}

func (c moreCommands) show() {
	for _, f := range c.found {
		c.items = append(c.items, pick.Item{ID: f.text, Title: f.text, Detail: f.about, Search: f.about})
	}
	c.of.SetItems(c.items)
}

// chooseCommand does what was chosen; a command that takes an argument is put
// into the input, which was empty or is kept in the history.
func (m *model) chooseCommand(c pick.Choice) tea.Cmd {
	name, isCommand := strings.CutPrefix(c.IDs[0], "/")
	if !isCommand {
		cmd, _ := m.control(name)
		return cmd
	}
	if cmd := commandNamed(name); cmd != nil && cmd.args == "" {
		return m.run(cmd, "")
	}
	if !m.input.empty() {
		m.remember(m.input.text())
	}
	m.input.set("/" + name + " ")
	m.complete()
	return nil
}

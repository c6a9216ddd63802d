package tui

import (
	"context"
	"slices"
	"strings"

	"noused/internal/tui/keymap"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/pick"
)

// ofTheInput are actions that are nothing without their key.
var ofTheInput = []string{"send", "queue", "newline", "clear", "palette"}

// newPalette lists all that can be done: the commands, then what has keys, with them.
func newPalette(m *model) *overlay {
	var items []pick.Item
	for _, c := range slash.Commands {
		items = append(items, pick.Item{
			ID: "/" + c.Name, Title: "/" + strings.TrimSpace(c.Name+" "+c.Args), Detail: c.About,
			Search: c.About,
		})
	}
	for _, a := range keymap.Actions {
		if !slices.Contains(ofTheInput, a.Name) {
			items = append(items, pick.Item{ID: a.Name, Title: a.What, Detail: m.keys.Shown(a.Name), Search: a.Name})
		}
	}
	p := pick.New("Commands", items, pick.With(m.pickLook()))
	from := m.place()
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		found, _ := slash.CommandCandidates(ctx, from)
		return moreCommands{p, items, found}
	})
	return &overlay{box: p, picker: p, chosen: (*model).chooseCommand}
}

// moreCommands are what the daemon has for a palette.
type moreCommands struct {
	of    *pick.Picker
	items []pick.Item
	found []slash.Candidate
}

func (c moreCommands) show() {
	for _, f := range c.found {
		c.items = append(c.items, pick.Item{ID: f.Text, Title: f.Text, Detail: f.About, Search: f.About})
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
	if cmd := slash.Named(name); cmd != nil && cmd.Args == "" {
		return m.run(cmd, "")
	}
	if !m.input.Empty() {
		m.remember(m.input.Text())
	}
	m.input.Set("/" + name + " ")
	m.input.Complete()
	return nil
}

func newHelp(m *model) *overlay {
	return &overlay{box: pick.NewHelp("nous", m.keys.Bindings(), m.pickLook())}
}

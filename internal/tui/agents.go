package tui

import (
	"context"

	"noused/internal/tui/pick"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
)

// newAgents has the user choose the agent of a new session.
func newAgents(m *model, list slash.AgentList) *overlay {
	p := pick.New("Agent that makes the turns", pick.Agents(list.Agents), pick.With(m.pickLook()))
	return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
		m.do("agent", func(ctx context.Context, p slash.Place) slash.Outcome { return slash.ChooseAgent(ctx, p, c.IDs[0]) })
		return nil
	}}
}

// newOptions has the user choose an option of the session's agent, and then its value.
func newOptions(m *model, list slash.OptionList) *overlay {
	p := pick.New("Options of "+list.Agent, pick.Options(list.Options), pick.With(m.pickLook()))
	return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
		for _, o := range list.Options {
			if o.ID == c.IDs[0] {
				m.open(newValues(m, slash.ValueList{Agent: list.Agent, Option: o}))
			}
		}
		return nil
	}}
}

// newValues has the user choose the value of an option.
func newValues(m *model, list slash.ValueList) *overlay {
	o := list.Option
	p := pick.New(o.Name+" of "+list.Agent, pick.Values(o), pick.With(m.pickLook()), pick.Current(o.Value))
	return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
		m.do("options", func(ctx context.Context, p slash.Place) slash.Outcome {
			return slash.SetOption(ctx, p, o, c.IDs[0])
		})
		return nil
	}}
}

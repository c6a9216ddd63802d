package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
	"noused/internal/tui/pick"
	"noused/internal/tui/slash"
)

// childrenTime is how long a box waits to hear which child sessions have changed files.
const childrenTime = 10 * time.Second

// rewindTold tells a box more about what a rewind would do to files.
type rewindTold func()

// newRewindList lets the user choose the message that all is to be as before.
func newRewindList(m *model, list slash.RewindList) *overlay {
	text := map[string]string{}
	var items []pick.Item
	for _, n := range list.Said {
		text[n.ID] = n.Snippet
		items = append(items, pick.Item{ID: n.ID, Title: n.Snippet})
	}
	p := pick.New("Rewind to before which message?", items, pick.With(m.pickLook()))
	return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
		m.open(newRewind(m, slash.RewindTo{ID: c.IDs[0], Text: text[c.IDs[0]]}))
		return nil
	}}
}

// newRewind offers what can be taken back since a message, with what that does to files.
func newRewind(m *model, to slash.RewindTo) *overlay {
	box := pick.NewRewind(to.Text, m.pickLook())
	at := m.place()
	children := func(ctx context.Context, p slash.Place) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, childrenTime)
		defer cancel()
		all, _ := slash.Ask(ctx, p, protocol.GetChanges, protocol.GetChangesParams{Scope: p.Scope(), Children: true})
		return rewindTold(func() { box.SetChildren(len(all.Children)) })
	}
	m.keep(at, func(ctx context.Context, p slash.Place) tea.Msg {
		plan, err := slash.PlanRewind(ctx, p, to.ID)
		problem := ""
		if err != nil {
			problem = slash.Describe(slash.Explain(err, "to rewind"))
		}
		return rewindTold(func() {
			box.SetPlan(plan, problem)
			m.keep(at, children) // not before: the plan would wait for it
		})
	})
	return &overlay{box: box, chosen: func(m *model, c pick.Choice) tea.Cmd {
		what, force := protocol.RewindWhat(c.IDs[0]), c.IDs[1:]
		m.do("rewind", func(ctx context.Context, p slash.Place) slash.Outcome {
			return slash.Rewind(ctx, p, to, what, force)
		})
		return nil
	}}
}

// newRewindUndo lists what is in the way of taking a rewind back.
func newRewindUndo(m *model, list slash.RewindUndo) *overlay {
	return &overlay{box: pick.NewUndo(list.Plan, m.pickLook()), chosen: func(m *model, c pick.Choice) tea.Cmd {
		force := c.IDs[1:]
		m.do("rewind", func(ctx context.Context, p slash.Place) slash.Outcome { return slash.UndoRewind(ctx, p, force) })
		return nil
	}}
}

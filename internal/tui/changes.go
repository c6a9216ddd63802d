package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/follow"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/pick"
	"noused/internal/tui/slash"
)

// changesTold answers a box that shows what a session has changed: with all files, or with the
// diff of one. runCounted tells how much a run has changed.
type (
	changesTold struct {
		box  *pick.Changes
		path string // "": all files
		all  protocol.Changes
		err  error
	}
	runCounted struct {
		link *follow.Session
		run  string
		all  protocol.Changes
	}
)

// openChanges shows what the session has changed.
func (m *model) openChanges() {
	if !m.known {
		return
	}
	if err := slash.Refusal(m.link, protocol.GetChanges, protocol.GetChangesParams{}); err != nil {
		m.talk.Notice("error", slash.Explain(err, "to tell what a session has changed").Error())
		m.talk.End()
		return
	}
	p := m.place()
	box := pick.NewChanges(m.commentsOf(m.key(m.site, p.State.SessionID)), m.pickLook())
	ask := func(path string) {
		m.keep(p, func(ctx context.Context, p slash.Place) tea.Msg {
			params := protocol.GetChangesParams{Scope: p.Scope(), Path: path, Diff: path != "", Children: path == ""}
			all, err := slash.Ask(ctx, p, protocol.GetChanges, params)
			return changesTold{box, path, all, err}
		})
	}
	ask("")
	m.open(&overlay{box: box, changes: box, askChanges: ask, chosen: func(m *model, c pick.Choice) tea.Cmd {
		switch c.Action {
		case pick.Reload:
			ask("")
		case pick.Choose:
			m.goInto(c.IDs[0], true)
		default:
			m.sendComments(p, box, c.Action == pick.Queue)
		}
		return nil
	}})
}

// commentsOf are those of a session, by its key. What was sent is let go of.
func (m *model) commentsOf(key string) *pick.Comments {
	for other, c := range m.comments {
		if c.Len() == 0 && other != key {
			delete(m.comments, other)
		}
	}
	if m.comments == nil {
		m.comments = map[string]*pick.Comments{}
	}
	if m.comments[key] == nil {
		m.comments[key] = &pick.Comments{}
	}
	return m.comments[key]
}

// askDiff asks for the diffs of the files that were opened.
func (o *overlay) askDiff() {
	for o.changes != nil {
		path, ok := o.changes.NeedsDiff()
		if !ok {
			return
		}
		o.askChanges(path)
	}
}

func (c changesTold) show() {
	problem := ""
	if c.err != nil {
		problem = slash.Describe(slash.Explain(c.err, "to tell what a session has changed"))
	}
	switch {
	case c.path == "" && c.err != nil:
		c.box.Failed(problem)
	case c.path == "":
		c.box.SetFiles(c.all)
	default:
		diff := ""
		if c.all.Diff != nil {
			diff = *c.all.Diff
		}
		c.box.SetDiff(c.path, diff, c.all.Truncated, problem)
	}
}

// sendComments sends them as one text, to the session that they are about.
func (m *model) sendComments(p slash.Place, box *pick.Changes, followUp bool) {
	switch {
	case m.link != p.Link || m.state.SessionID != p.State.SessionID:
		box.Say("another session is shown by now; the comments are kept for this one")
		return
	case m.offline != nil && !m.cutOff():
		box.Say("not connected to the daemon: the comments are kept")
		return
	case len(m.unsent) >= maxUnsent:
		box.Say("the daemon does not answer: the comments are kept")
		return
	}
	folder := box.Folder()
	if folder == m.state.Workdir {
		folder = ""
	}
	text := box.Comments().Text(folder)
	box.Comments().Clear()
	m.over = nil
	m.talk.End()
	m.submit(slash.Unsent{Text: text, FollowUp: followUp && m.running(), As: m.sentAs()})
}

// keepComments puts what was not sent into the history of the input, at the end of the program.
func (m *model) keepComments() {
	for _, c := range m.comments {
		if text := c.Text(""); text != "" {
			m.remember(text)
		}
	}
}

// leftComments says that those are kept that were written in a box.
func (m *model) leftComments(o *overlay) {
	if n := m.unsentComments(); n > 0 && o.changes != nil {
		m.talk.Notice("info", format.Count(n, "comment")+" not sent yet, and kept: /diff shows and sends them")
	}
}

// unsentComments counts those of the session that is shown.
func (m *model) unsentComments() int {
	if c := m.comments[m.key(m.site, m.state.SessionID)]; c != nil {
		return c.Len()
	}
	return 0
}

// countChanges asks how much a run has changed, beside everything else.
func (m *model) countChanges(run string) {
	m.lastLine, m.counting = "", run
	params := protocol.GetChangesParams{From: run, To: run}
	if run == "" || slash.Refusal(m.link, protocol.GetChanges, params) != nil {
		return
	}
	m.keep(m.place(), func(ctx context.Context, p slash.Place) tea.Msg {
		params.Scope = p.Scope()
		all, err := slash.Ask(ctx, p, protocol.GetChanges, params)
		if err != nil { // it is said where somebody asks for it
			return nil
		}
		return runCounted{p.Link, run, all}
	})
}

// runCounted shows it, unless something else has happened.
func (m *model) runCounted(c runCounted) {
	if c.link != m.link || c.run != m.counting || len(c.all.Files) == 0 {
		return
	}
	added, removed := 0, 0
	for _, f := range c.all.Files {
		added, removed = added+f.Added, removed+f.Removed
	}
	m.lastLine = fmt.Sprintf("%s +%d −%d · /diff", format.Count(len(c.all.Files), "file"), added, removed)
}

package tui

import (
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
)

const (
	// A question that a key press asks waits so long for the next one.
	typingPause = 120 * time.Millisecond
	// searchFrom is the shortest text that is looked for in all sessions.
	searchFrom   = 3
	previewLines = 200
)

// box is what package pick draws.
type box interface {
	Update(tea.Msg) (pick.Choice, bool)
	View(width, height int) string
	SetLook(pick.Look)
	Cursor() (x, y int, ok bool)
}

// overlay is a box over the conversation and what becomes of a choice.
type overlay struct {
	box    box
	picker *pick.Picker // box, if it is one
	chosen func(*model, pick.Choice) tea.Cmd
	board  *boardView // box, if it is one

	// Of the sessions.
	list      []protocol.SessionInfo
	matches   []protocol.SearchMatch
	searches  bool
	asked     string // the text looked for last
	asking    bool   // a search is on its way
	previewed bool   // a preview is
}

// previewed answers an overlay's question for a preview, found one for a search,
// removed one to delete a session.
type (
	previewed struct {
		over  *overlay
		id    string
		lines []string
	}
	found struct {
		over    *overlay
		query   string
		matches []protocol.SearchMatch
	}
	removed struct {
		over *overlay
		id   string
		list []protocol.SessionInfo
		err  error
	}
)

func (m *model) pickLook() pick.Look { return pick.Look{Theme: m.theme} }

func (m *model) open(o *overlay) {
	m.over = o
	m.menu.close()
	m.over.search(m)
}

// serversLine says how the MCP servers are, behind a title.
func serversLine(servers []protocol.ServerInfo) string {
	var states []string
	for _, s := range servers {
		states = append(states, cell.Line(s.Name, 30)+" "+strings.ReplaceAll(s.State, "_", " "))
	}
	if states == nil {
		return ""
	}
	return " · servers: " + strings.Join(states, ", ")
}

// newChooser lets the user choose of what a command found.
func newChooser(m *model, list any) *overlay {
	look := m.pickLook()
	switch list := list.(type) {
	case sessionList:
		o := &overlay{chosen: (*model).chooseSession, list: list.sessions, matches: list.matches, searches: len(list.matches) == 0 && !m.lacks("search_sessions")}
		o.picker = pick.New("Sessions", o.items(m), pick.With(look), pick.Current(m.state.SessionID), pick.Deletes("session"), pick.Previews())
		if list.query != "" {
			o.picker.Update(tea.PasteMsg{Content: list.query})
		}
		o.box = o.picker
		return o
	case toolList:
		p := pick.New("Tools the model is offered"+serversLine(list.servers), pick.Tools(list.tools), pick.With(look), pick.Several())
		return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
			m.do("tools", func(ctx context.Context, p place) outcome { return setTools(ctx, p, c.IDs) })
			return nil
		}}
	case modelList:
		p := pick.New("Models (/model probe asks the servers)", pick.Models(list.models), pick.With(look), pick.Current(strings.TrimSpace(m.state.Model.Provider+"/"+m.state.Model.Name+" "+m.state.Model.BaseURL)))
		return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
			m.do("model", func(ctx context.Context, p place) outcome { return chooseModel(ctx, p, c.IDs[0]) })
			return nil
		}}
	case protocol.Tree:
		return &overlay{box: pick.NewTree("Tree of "+cell.Truncate(m.title(), 40), list, look), chosen: (*model).chooseEntry}
	default:
		panic("no overlay for this list")
	}
}

func (o *overlay) items(m *model) []pick.Item { return pick.Sessions(o.list, o.matches, m.opts.Now()) }

func (m *model) lacks(command string) bool { return slices.Contains(m.missing, command) }

func (o *overlay) draw(m *model, width, height int) string {
	view := o.box.View(width, height)
	o.askPreview(m)
	return view
}

// choose lets the overlay have a key or a paste.
func (m *model) choose(msg tea.Msg) tea.Cmd {
	o := m.over
	choice, done := o.box.Update(msg)
	if done {
		m.over = nil
	}
	if choice.Action == "" || choice.Action == pick.Leave || o.chosen == nil {
		o.search(m)
		return nil
	}
	return o.chosen(m, choice)
}

func (m *model) chooseSession(c pick.Choice) tea.Cmd {
	id := c.IDs[0]
	if c.Action == pick.Choose {
		m.do("switch", func(ctx context.Context, p place) outcome { return enterSession(ctx, p, id) })
		return nil
	}
	o, p := m.over, m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		if _, err := ask(ctx, p, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: id}); err != nil {
			return removed{over: o, err: err}
		}
		list, err := listSessions(ctx, p)
		return removed{o, id, list, err}
	})
	return nil
}

func (m *model) chooseEntry(c pick.Choice) tea.Cmd {
	id, name, f := c.IDs[0], "leaf", setLeaf
	if c.Action == pick.Branch {
		name, f = "branch", branchSession
	}
	m.over = nil
	m.do(name, func(ctx context.Context, p place) outcome { return f(ctx, p, id) })
	return nil
}

// search looks for the filter's text in all sessions, one search at a time.
func (o *overlay) search(m *model) {
	if o == nil || !o.searches || o.asking || o.picker.Query() == o.asked {
		return
	}
	o.asked, o.asking = o.picker.Query(), true
	query, p := o.asked, m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		if len(query) < searchFrom || !pause(ctx, typingPause) {
			return found{over: o, query: query}
		}
		limit := 200
		r, err := ask(ctx, p, protocol.SearchSessions, protocol.SearchSessionsParams{Text: query, Limit: &limit})
		if err != nil { // the titles are filtered all the same
			return found{over: o, query: query}
		}
		return found{o, query, r.Matches}
	})
}

func (m *model) found(f found) {
	f.over.asking, f.over.matches = false, f.matches
	if f.over == m.over {
		f.over.picker.SetItems(f.over.items(m))
		f.over.search(m)
	}
}

func (m *model) removed(r removed) {
	if r.id == m.state.SessionID && r.id != "" {
		m.notices = append(m.notices, "the session shown before was deleted")
		m.follow("")
	}
	if r.err != nil {
		m.talk.Notice("error", describe(r.err))
		if m.over == r.over {
			m.over = nil // or nobody would see it
		}
		return
	}
	r.over.list = r.list
	r.over.picker.SetItems(r.over.items(m))
}

// askPreview asks for the preview that is on the screen, one at a time.
func (o *overlay) askPreview(m *model) {
	if o.picker == nil || o.list == nil || o.previewed {
		return
	}
	id, ok := o.picker.NeedsPreview()
	if !ok {
		return
	}
	o.previewed = true
	p := m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		pause(ctx, typingPause)
		r, err := ask(ctx, p, protocol.GetMessages, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil {
			return previewed{o, id, []string{describe(err)}}
		}
		return previewed{o, id, preview(r)}
	})
}

func (m *model) previewed(p previewed) {
	p.over.previewed = false
	p.over.picker.SetPreview(p.id, p.lines)
}

// preview is the end of a conversation, newest first: what one knows a session
// by is what was said last.
func preview(all protocol.Messages) []string {
	var lines []string
	for i := len(all.Messages) - 1; i >= 0 && len(lines) < previewLines; i-- {
		var e protocol.Message
		if json.Unmarshal(all.Messages[i], &e) != nil || e.Role == "tool" || strings.TrimSpace(e.Text) == "" {
			continue
		}
		text := e.Text[:min(len(e.Text), 2000)]
		lines = append(lines, e.Role+":")
		for line := range strings.SplitSeq(cell.Sanitize(strings.TrimSpace(text)), "\n") {
			lines = append(lines, "  "+line)
		}
		lines = append(lines, "")
	}
	return lines
}

package tui

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
	"noused/internal/tui/slash"
	"noused/internal/tui/theme"
)

const (
	// A question that a key press asks waits so long for the next one.
	typingPause = 120 * time.Millisecond
	// searchFrom is the shortest text that is looked for in all sessions.
	searchFrom   = 3
	previewLines = 200

	previewMessages = 100 // of the newest ones, enough for so many lines
)

// box is what package pick draws.
type box interface {
	Update(tea.Msg) (pick.Choice, bool)
	View(width, height int) string
	SetLook(pick.Look)
	Cursor() (x, y int, ok bool)
}

// overlay is a box over the conversation and what happens to a choice.
type overlay struct {
	box    box
	picker *pick.Picker // box, if it is one
	chosen func(*model, pick.Choice) tea.Cmd
	board  *boardView // box, if it is one

	changes    *pick.Changes // box, if it is one
	askChanges func(path string)

	// Of the sessions.
	lists     []*listing // of each daemon
	searches  bool
	previewed bool // a preview is on its way
}

// listing is what a daemon says of its sessions.
type listing struct {
	site    *site
	list    []protocol.SessionInfo
	matches []protocol.SearchMatch
	asked   string // the text looked for last
	asking  bool   // a search is on its way

	told    bool  // the sessions were listed
	problem error // why they were not, the last time
	listing bool  // they are being listed
	again   bool  // and have to be once more
}

// previewed answers an overlay's question for a preview, found one for a search,
// removed one to delete a session.
type (
	previewed struct {
		over  *overlay
		key   string
		lines []string
	}
	found struct {
		over    *overlay
		of      *listing
		matches []protocol.SearchMatch
	}
	removed struct {
		over *overlay
		of   *listing
		list []protocol.SessionInfo
		err  error
	}
)

func (a *appearance) pickLook() pick.Look {
	look := pick.Look{Theme: a.theme}
	if a.isColored() {
		syntax := theme.NewSyntax(a.isDark())
		look.Syntax = &syntax
	}
	return look
}

func (m *model) open(o *overlay) {
	m.over = o
	m.input.Menu.Close()
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
	case slash.SessionList:
		return newSessions(m, list)
	case slash.ToolList:
		p := pick.New("Tools the model is offered"+serversLine(list.Servers), pick.Tools(list.Tools), pick.With(look),
			pick.Several())
		return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
			m.do("tools", func(ctx context.Context, p slash.Place) slash.Outcome { return slash.SetTools(ctx, p, c.IDs) })
			return nil
		}}
	case slash.ModelList:
		p := pick.New("Models (/model probe asks the servers)", pick.Models(list.Models), pick.With(look),
			pick.Current(strings.TrimSpace(m.state.Model.Provider+"/"+m.state.Model.Name+" "+m.state.Model.BaseURL)))
		return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
			m.do("model", func(ctx context.Context, p slash.Place) slash.Outcome { return slash.ChooseModel(ctx, p, c.IDs[0]) })
			return nil
		}}
	case slash.AgentList:
		return newAgents(m, list)
	case slash.NamedList:
		return newNamed(m, list)
	case slash.OptionList:
		return newOptions(m, list)
	case slash.ValueList:
		return newValues(m, list)
	case protocol.Tree:
		return &overlay{box: pick.NewTree("Tree of "+cell.Truncate(m.title(), 40), list, look), chosen: (*model).chooseEntry}
	case slash.RewindList:
		return newRewindList(m, list)
	case slash.RewindTo:
		return newRewind(m, list)
	case slash.RewindUndo:
		return newRewindUndo(m, list)
	default:
		panic("no overlay for this list")
	}
}

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
		m.leftComments(o)
	}
	o.askDiff()
	if choice.Action == "" || choice.Action == pick.Leave || o.chosen == nil {
		o.search(m)
		return nil
	}
	return o.chosen(m, choice)
}

func (m *model) chooseEntry(c pick.Choice) tea.Cmd {
	id, name, f := c.IDs[0], "leaf", slash.SetLeaf
	if c.Action == pick.Branch {
		name, f = "branch", slash.BranchSession
	}
	m.over = nil
	m.do(name, func(ctx context.Context, p slash.Place) slash.Outcome { return f(ctx, p, id) })
	return nil
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

// updateOverlay takes in what boxes over the conversation have asked for.
func (m *model) updateOverlay(msg tea.Msg) (cmd tea.Cmd, mine bool) {
	switch msg := msg.(type) {
	case previewed:
		m.previewed(msg)
	case found:
		m.found(msg)
	case removed:
		m.removed(msg)
	case listed:
		m.listed(msg)
	case rewindTold:
		msg()
	case changesTold:
		msg.show()
		if m.over != nil {
			m.over.askDiff()
		}
	case runCounted:
		m.runCounted(msg)
	case boardTold:
		msg()
	default:
		return nil, false
	}
	return nil, true
}

package tui

import (
	"fmt"
	"strings"

	"noused/internal/protocol"
	"noused/internal/tui/composer"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"noused/internal/format"
	"noused/internal/tui/cell"
)

// The smallest terminal that has room for all that is needed at once.
const (
	minWidth  = 20
	minHeight = 6
)

// queueRows bounds how many waiting texts are shown.
const queueRows = 3

// View is called by bubbletea.
func (m *model) View() tea.View {
	v := tea.NewView("")
	v.AltScreen, v.ReportFocus = true, true
	v.WindowTitle = m.windowTitle()
	v.ProgressBar, v.ProgramStatus = m.progress(), m.programStatus()
	if m.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	if m.width < minWidth || m.height < minHeight {
		v.SetContent(cell.Truncate(fmt.Sprintf("nous: %s; want %dx%d", m.runWord(), minWidth, minHeight), m.width))
		return v
	}
	var hud []string
	if m.shownBoard() == nil { // it says all that matters there itself
		hud = m.hud()
	}
	room := m.height - len(hud)
	if m.over != nil {
		v.SetContent(strings.Join(append([]string{m.over.draw(m, m.width, room)}, hud...), "\n"))
		if x, y, ok := m.over.box.Cursor(); ok {
			v.Cursor = tea.NewCursor(x, y)
		}
		return v
	}
	lower, cursorRow := m.lower(room)
	lines := append(m.upper(room-len(lower)), lower...)
	for i, line := range lines {
		lines[i] = cell.Truncate(line, m.width)
	}
	v.SetContent(strings.Join(append(lines, hud...), "\n"))
	switch c := m.input.Cursor(); {
	case m.approval.Focused():
		if x, y, ok := m.approval.Cursor(); ok {
			v.Cursor = tea.NewCursor(x, room-len(lower)+m.approvalRow+y)
		}
	case m.find != nil:
		_, column := m.findLine()
		v.Cursor = tea.NewCursor(column, room-1)
	case c != nil:
		c.Y += room - len(lower) + cursorRow
		v.Cursor = c
	}
	return v
}

// upper is the conversation, or, where there is none yet, why.
func (m *model) upper(height int) []string {
	if m.noDaemon() {
		return m.below(m.offerLines(), height)
	}
	if !m.known {
		why := "connecting to " + m.opts.Place
		if m.offline != nil {
			why = "no connection to " + m.opts.Place + ": " + cell.Line(m.offline.Err.Error(), 500)
		}
		return m.below(cell.Wrap(m.theme.Dim.Render(why), m.width), height)
	}
	if m.first() {
		return fill(m.welcome(), height)
	}
	return m.talk.View(height)
}

// below is lines at the bottom of exactly height lines, with what was told above
// them.
func (m *model) below(lines []string, height int) []string {
	told := m.talk.View(max(height-len(lines)-1, 0))
	for len(told) > 0 && told[len(told)-1] == "" {
		told = told[:len(told)-1]
	}
	if len(told) > 0 {
		lines = append(append(told, ""), lines...)
	}
	return fill(lines, height)
}

// fill is lines at the bottom of exactly height lines.
func fill(lines []string, height int) []string {
	if len(lines) > height {
		return lines[:height]
	}
	return append(make([]string, height-len(lines)), lines...)
}

// lower is what stands between the conversation and the HUD, and the row in it
// where the input begins. It leaves a row at least to the conversation.
func (m *model) lower(room int) (lines []string, inputRow int) {
	written := strings.Split(m.input.View(), "\n")
	if m.find != nil {
		text, _ := m.findLine()
		written = []string{text}
	}
	if most := max(room-2, 1); len(written) > most {
		written = written[:most]
	}
	spare := room - len(written) - 1
	if spare > 0 {
		spare--
		lines = append(lines, m.ruler())
	}
	most := min(spare, m.height/2)
	if m.approval.ID() != "" {
		most = min(most, spare/2)
	}
	above := m.aboveInput(most)
	m.approvalRow = len(above)
	asked := m.approvalLines(min(spare-len(above), max(room*3/4, 7)))
	lines = append(append(above, asked...), lines...)
	return append(lines, written...), len(lines)
}

// ruler is the line above the input. It says where the conversation stands when
// that is not its end.
func (m *model) ruler() string {
	text := ""
	if m.known && !m.noDaemon() && !m.talk.AtEnd() {
		text = fmt.Sprintf(" %d%%, End goes to the end ", m.talk.Position())
		if m.find != nil { // where End is the line's
			text = fmt.Sprintf(" %d%% ", m.talk.Position())
		}
	}
	text = cell.Truncate(text, m.width)
	return m.theme.Dim.Render(text) + m.theme.Border.Render(strings.Repeat("─", m.width-cell.Width(text)))
}

// aboveInput are notes, a banner, the texts that wait and the menu, in at most
// height lines; the menu matters most.
func (m *model) aboveInput(height int) []string {
	rows := m.input.MenuLines(m.theme, m.width, min(composer.MenuRows, height))
	if banner := m.banner(); banner != "" && len(rows) < height {
		rows = append([]string{banner}, rows...)
	}
	if len(m.input.Images) > 0 && len(rows) < height {
		rows = append([]string{m.imageLine()}, rows...)
	}
	rows = append(m.queueLines(height-len(rows)), rows...)
	rows = append(m.planLines(height-len(rows)), rows...)
	return append(m.talk.Notes(height-len(rows)), rows...)
}

// imageLine names what goes with the next text.
func (m *model) imageLine() string {
	names := make([]string, len(m.input.Images))
	for i, img := range m.input.Images {
		names[i] = img.Name
	}
	const hint = " (with the next text; /image none takes it back)"
	text := cell.Line("image "+strings.Join(names, ", "), 4*m.width)
	return m.theme.Accent.Render(cell.Truncate(text, max(m.width-len(hint), m.width/2))) +
		m.theme.Dim.Render(cell.Truncate(hint, m.width/2))
}

func (m *model) banner() string {
	switch {
	case m.leaving && m.running():
		return m.theme.Warn.Render(m.keyed("clear", "again leaves nous; the run goes on") + " (" +
			m.ends("ends it") + ")")
	case m.leaving:
		return m.theme.Warn.Render(m.keyed("clear", "again leaves nous"))
	case m.rewrite != nil && m.offline == nil:
		return m.theme.Accent.Render(m.keyed("send", "sends this in a branch from before the last message") + "; " +
			m.keyed("stop", "leaves all as it is"))
	case m.editing && m.offline == nil && m.talk.FocusedSaid() != "":
		return m.theme.Dim.Render(m.keyed("stop", "again offers to rewind to before your message"))
	case m.editing && m.offline == nil:
		return m.theme.Dim.Render(m.keyed("stop", "again edits the last message; /rewind takes back what was done since one"))
	case m.planReady() != "":
		return m.theme.Accent.Render(m.planReady())
	case m.input.Empty() && m.failure() != nil:
		offer := m.keyed("send", "tries it again")
		if m.failure().Code == protocol.KeyRefused && len(m.opts.SetUp) > 0 {
			offer = "nous login " + cell.Line(m.state.Model.Provider, 40) + " saves another key; " + offer
		}
		return m.theme.Accent.Render(offer)
	case m.known && m.offline != nil && m.offline.NoDaemon:
		return m.theme.Warn.Render("the daemon is gone: /start starts one, which goes on with the runs")
	case m.known && m.offline != nil:
		return m.theme.Warn.Render("connection lost: " + cell.Line(m.offline.Err.Error(), 300))
	}
	return ""
}

// failure is why the run failed that can be tried again, or nil.
func (m *model) failure() *protocol.RunError {
	_, why := m.secondTry()
	return why
}

// queueLines are the texts that wait, and how to get them back: the wire takes
// them out all together, with the run's end.
func (m *model) queueLines(height int) []string {
	var rows []string
	add := func(kind, text string) {
		rows = append(rows, m.theme.Accent.Render(kind)+" "+m.theme.Dim.Render(cell.Line(text, 4*m.width)))
	}
	for _, f := range m.former {
		if f.Text != "" {
			add("sending to "+f.host, f.Text)
		}
	}
	for _, u := range m.unsent {
		if u.Text != "" {
			add(map[bool]string{false: "sending", true: "unsent"}[m.cutOff()], u.Text)
		}
	}
	for _, text := range m.state.Queued.Steer {
		add("steer", text)
	}
	for _, text := range m.state.Queued.FollowUp {
		add("follow-up", text)
	}
	for _, text := range m.waiting {
		add("queued", text)
	}
	waiting := m.state.PendingCounts.Steer + m.state.PendingCounts.FollowUp
	if len(rows) == 0 && waiting > 0 { // they are only counted
		add("queued", format.Count(waiting, "text"))
	}
	if len(rows) == 0 || height <= 0 {
		return nil
	}
	most := min(height, queueRows)
	left := len(rows) - most
	rows = rows[:min(len(rows), most)]
	hint := m.ends("ends the run and gives back all)")
	if m.input.Empty() && len(m.state.Queued.Inputs) > 0 {
		hint = "Up takes the newest back; " + hint
	}
	if left > 0 {
		hint = fmt.Sprintf("+%d more; %s", left, hint)
	}
	hint = " (" + hint
	last := len(rows) - 1
	rows[last] = cell.Truncate(rows[last], max(m.width-cell.Width(hint), m.width/2)) + m.theme.Dim.Render(hint)
	return rows
}

// part is a piece of a HUD line. The one with the highest rank goes first when
// there is no room.
type part struct {
	text  string
	style lipgloss.Style
	rank  int
}

package tui

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
)

// findSlice is how long a search in the conversation goes on before keys and
// events have their turn.
const findSlice = 8 * time.Millisecond

// find is the line in which a text is written that is looked for in the
// conversation.
type find struct {
	line   pick.Typed
	walks  bool // n and N go to the next match, else they are written
	search bool // a message that goes on with the search is on its way
}

// findOn is that message.
type findOn struct{ find *find }

// openFind opens the line with a text, or goes back to writing in it.
func (m *model) openFind(text string) {
	if !m.known {
		return
	}
	if m.find == nil {
		m.find = &find{}
		m.input.Menu.Close()
	}
	m.approval.Blur()
	m.find.walks = false
	if text != "" {
		m.pressFind(tea.PasteMsg{Content: text}, "", "")
	}
}

// pressFind lets the line have a key or a paste.
func (m *model) pressFind(msg tea.Msg, key, does string) {
	f := m.find
	switch {
	case does == "clear":
		m.closeFind(false)
	case does == "stop" || key == "esc":
		m.closeFind(true)
	case does == "find":
		m.openFind("")
	case does == "send" || key == "enter":
		f.walks = true
		m.talk.NextMatch(true)
	case key == "up" || f.walks && key == "n":
		m.talk.NextMatch(true)
	case key == "down" || f.walks && (key == "N" || key == "shift+n"):
		m.talk.NextMatch(false)
	case m.scroll(does):
	case f.line.Update(msg):
		f.walks = false
		m.talk.Find(f.line.Text())
		m.talk.FindMore(findSlice)
	}
}

func (m *model) closeFind(back bool) {
	m.find = nil
	m.talk.EndFind(back)
}

// findMore has the search go on, with keys and events in between.
func (m *model) findMore() {
	f := m.find
	if f == nil || f.search || !m.talk.Finding() {
		return
	}
	f.search = true
	m.jobs.Start(func(context.Context) tea.Msg { return findOn{f} })
}

func (m *model) foundMore(on findOn) {
	on.find.search = false
	if on.find == m.find {
		m.talk.FindMore(findSlice)
	}
}

// findLine is the line, with the cursor's column, and how much was found.
func (m *model) findLine() (text string, column int) {
	const label = "find: "
	count := m.findCount()
	room := max(m.width-len(label)-cell.Width(count)-1, 4)
	text, column = m.find.line.View(room)
	return m.theme.Accent.Render(label) + text + " " + m.theme.Dim.Render(count), len(label) + column
}

func (m *model) findCount() string {
	at, of := m.talk.Found()
	switch more := m.talk.Finding(); {
	case m.find.line.Text() == "":
		return "type a text"
	case more && of == 0:
		return "…"
	case more:
		return fmt.Sprintf("%d of %d…", at, of)
	case of == 0:
		return "not found"
	}
	return fmt.Sprintf("%d of %d", at, of)
}

// findHint is what the keys do then.
func (m *model) findHint() []string {
	hints := []string{m.keyed("send", "above"), "Up, Down"}
	if m.find.walks {
		hints = []string{"n above", "N below"}
	}
	return append(hints, m.keyed("clear", "stay"), m.keyed("stop", "back"))
}

package composer

import (
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/slash"
	"noused/internal/tui/theme"
)

const MenuRows = 6

// menu are the candidates for the word before the cursor.
type menu struct {
	Query   string // what they are for: kind, line and word
	word    string
	Rows    []slash.Candidate
	at      int
	moved   bool
	loose   bool // Enter sends what is written unless the user moved in the menu
	Runs    bool // what was taken last runs at once
	problem string
	shut    string // the query that the user closed the menu at
}

// Completed is a job's answer to a query.
type Completed struct {
	query string
	rows  []slash.Candidate
	err   error
}

func (m *menu) Open() bool { return len(m.Rows) > 0 }

func (m *menu) Close() { *m = menu{shut: m.shut} }

// Dismiss closes the menu until the word changes.
func (m *menu) Dismiss() { *m = menu{shut: m.Query} }

func (m *menu) Fill(c Completed) {
	if c.query != m.Query {
		return
	}
	m.Rows, m.at, m.problem = c.rows, min(m.at, max(0, len(c.rows)-1)), ""
	if c.err != nil {
		m.problem = protocol.ErrorText(c.err)
	}
}

// Press moves in the menu.
func (m *menu) Press(key string) bool {
	if !m.Open() {
		return false
	}
	switch key {
	case "up", "ctrl+p":
		m.at = (m.at + len(m.Rows) - 1) % len(m.Rows)
	case "down", "ctrl+n":
		m.at = (m.at + 1) % len(m.Rows)
	default:
		return false
	}
	m.moved = true
	return true
}

// Done tells whether Enter has nothing to take from the menu.
func (m *menu) Done(word string) bool {
	return m.Rows[m.at].Text == word || m.loose && !m.moved
}

func (w *Composer) MenuLines(look theme.Theme, width, height int) []string {
	if height <= 0 {
		return nil
	}
	if !w.Menu.Open() {
		if w.Menu.problem == "" {
			return nil
		}
		return []string{look.Warn.Render(cell.Line(w.Menu.problem, 300))}
	}
	height = min(height, len(w.Menu.Rows))
	from := max(min(w.Menu.at-height/2, len(w.Menu.Rows)-height), 0)
	widest := 0
	for _, c := range w.Menu.Rows[from : from+height] {
		widest = max(widest, cell.Width(cell.Line(c.Text, 400)))
	}
	widest = min(widest, width-4)
	lines := make([]string, height)
	for i := range lines {
		c := w.Menu.Rows[from+i]
		text := cell.Line(c.Text, 400)
		if cell.Width(text) > widest {
			text = cell.TruncateLeft(text, widest)
		}
		text = cell.Fit(text, widest)
		about := ""
		if c.About != "" {
			about = "  " + cell.Truncate(c.About, max(width-widest-5, 0))
		}
		if from+i == w.Menu.at {
			lines[i] = look.Selected.Render("› " + text + about)
		} else {
			lines[i] = "  " + look.Text.Render(text) + look.Dim.Render(about)
		}
	}
	return lines
}

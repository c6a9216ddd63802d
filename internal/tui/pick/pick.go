// Package pick holds what the terminal interface lays over the transcript: a
// picker with a filter and a preview, the tree of a session, what it has changed, a rewind of that,
// and the list of keys.
//
// All of them work alike. Update takes a key or a paste and says what the user
// chose, and whether the overlay is done; View draws it in exactly the cells it
// is given, from 10 by 3 on without loss of its purpose; Cursor says where in
// the last View the terminal's cursor belongs. Texts may come from anybody:
// they are sanitised.
//
// An overlay belongs to one goroutine. The package refuses to do I/O, to start
// goroutines and to read the clock: the shell gives it data and carries out
// what was chosen.
package pick

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// Look is how an overlay is drawn. The zero Look has frames and symbols, and no
// colour.
type Look struct {
	Theme  theme.Theme
	Syntax *theme.Syntax // of code; nil: none
	Plain  bool          // no frames, words in place of symbols: for screen readers
}

// Action is what the user wants of an overlay.
type Action string

// The actions. The zero Action, of an overlay that is not done, asks for
// nothing.
const (
	Leave  Action = "leave"  // the overlay was left; nothing is chosen
	Choose Action = "choose" // Enter
	Delete Action = "delete" // IDs[0], and the user confirmed it; the overlay stays
	Branch Action = "branch" // a new session from IDs[0]
)

// Choice is an answer of Update.
type Choice struct {
	Action Action
	IDs    []string // of a picker that allows several: all that are on, in order
}

var leave = Choice{Action: Leave}

// Below these an overlay has no frame: there are better uses for the cells.
const (
	minFramedWidth  = 24
	minFramedHeight = 6
	minTitledHeight = 4
)

// pane is the part of a View that is within its frame or under its title.
type pane struct{ x, y, width, height int }

// inner is the pane of a View of this size.
func (l Look) inner(width, height int) pane {
	switch {
	case !l.Plain && width >= minFramedWidth && height >= minFramedHeight:
		return pane{2, 1, width - 4, height - 2}
	case height >= minTitledHeight:
		return pane{0, 1, width, height - 1}
	}
	return pane{0, 0, width, height}
}

// frame draws a View around the lines of its pane: the title, and info at the
// other end of its line.
func (l Look) frame(title, info string, lines []string, width, height int) string {
	in := l.inner(width, height)
	t := l.Theme
	switch {
	case in.x == 0 && in.y == 0:
		return cell.Block(lines, width, height)
	case in.x == 0:
		if info != "" {
			title += " (" + info + ")"
		}
		return cell.Block(append([]string{t.Title.Render(cell.Truncate(title, width))}, lines...), width, height)
	}
	const corners = 6 // "╭─ " and " ─╮", and of info the two spaces
	title = cell.Truncate(title, width-corners)
	room := width - corners - cell.Width(title)
	right := ""
	if w := cell.Width(info); info != "" && w+4 <= room {
		right = " " + t.Dim.Render(info) + " "
		room -= w + 2
	}
	framed := make([]string, 0, height)
	framed = append(framed, t.Border.Render("╭─")+" "+t.Title.Render(title)+" "+t.Border.Render(strings.Repeat("─", room))+
		right+t.Border.Render("─╮"))
	side := t.Border.Render("│")
	for line := range strings.SplitSeq(cell.Block(lines, in.width, in.height), "\n") {
		framed = append(framed, side+" "+line+" "+side)
	}
	framed = append(framed, t.Border.Render("╰"+strings.Repeat("─", width-2)+"╯"))
	return strings.Join(framed, "\n")
}

// hints is a line of "key what" pairs, as many as fit.
func (l Look) hints(width int, pairs ...string) string {
	sep := " · "
	if l.Plain {
		sep = ", "
	}
	var line string
	for i := 0; i+1 < len(pairs); i += 2 {
		next := pairs[i] + " " + pairs[i+1]
		if i > 0 {
			next = line + sep + next
		}
		if cell.Width(next) > width {
			break
		}
		line = next
	}
	return l.Theme.Dim.Render(line)
}

// row dresses a line of a list: the one that keys act on stands out by more
// than its colour. The line must be without style if it is selected.
func (l Look) row(line string, selected bool, width int) string {
	switch {
	case !selected:
		return cell.Fit("  "+line, width)
	case l.Plain:
		return cell.Fit("> "+line, width)
	}
	return l.Theme.Selected.Render(cell.Fit("❯ "+line, width))
}

// list is a cursor in a list of rows and the part of it that is on the screen.
type list struct {
	cursor, offset, rows int // rows: that the last View showed
}

// key moves the cursor among n rows and tells whether it is a key for that.
func (s *list) key(key string, n int) bool {
	page := max(s.rows-1, 1)
	switch key {
	case "up", "ctrl+p":
		s.cursor--
	case "down", "ctrl+n":
		s.cursor++
	case "pgup":
		s.cursor -= page
	case "pgdown":
		s.cursor += page
	case "ctrl+home":
		s.cursor = 0
	case "ctrl+end":
		s.cursor = n - 1
	default:
		return false
	}
	s.clamp(n)
	return true
}

func (s *list) clamp(n int) { s.cursor = max(min(s.cursor, n-1), 0) }

// window is the rows to show of n in a height, the cursor among them.
func (s *list) window(n, height int) (from, to int) {
	s.rows = height
	s.clamp(n)
	s.offset = min(s.offset, s.cursor, max(n-height, 0))
	s.offset = max(s.offset, s.cursor-height+1, 0)
	return s.offset, min(s.offset+height, n)
}

// keyOf is the name of a key, or the character it types; "" if msg is none, or
// types several at once, as an input method does.
func keyOf(msg tea.Msg) string {
	k, ok := msg.(tea.KeyPressMsg)
	if !ok || utf8.RuneCountInString(k.Text) > 1 {
		return ""
	}
	return k.String()
}

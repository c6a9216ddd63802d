package board

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/approvals"
	"noused/internal/tui/pick"
)

// Action is what the user wants of the shell.
type Action string

// The actions. The zero Action asks for nothing.
const (
	Leave  Action = "leave"  // back to the conversation
	Open   Action = "open"   // show the session
	Say    Action = "say"    // Text, as a prompt, or to the run that goes on
	Later  Action = "later"  // Text, when the run would otherwise end
	Abort  Action = "abort"  // the session's run
	Rename Action = "rename" // the session is called Text from now on
	Delete Action = "delete" // the session; the user has confirmed it
	Answer Action = "answer" // Answer to its approval
)

// Choice is an answer of Update: an action on a session.
type Choice struct {
	Action Action
	ID     ID
	Text   string
	Answer approvals.Answer

	Children bool // Delete: it has child sessions, which are deleted with it
}

// ask is the line in which the user writes to a session, or how it is called.
type ask struct {
	of     *row // nil: it is closed
	rename bool
	line   pick.Typed
}

// Update takes a key or a paste.
func (b *Board) Update(msg tea.Msg) Choice {
	b.told, b.touched = "", true
	key := keyOf(msg)
	switch {
	case b.gone != nil:
		return b.confirm(key)
	case b.say.of != nil:
		return b.write(msg, key)
	case b.approval.Focused():
		return b.answer(msg)
	}
	return b.press(msg, key)
}

func (b *Board) press(msg tea.Msg, key string) Choice {
	if b.scroll(key) {
		return Choice{}
	}
	if b.turns(key) {
		b.turn()
		return Choice{}
	}
	switch key {
	case "esc":
		if b.filter.Text() == "" {
			return Choice{Action: Leave}
		}
		b.filter.Set("")
		b.match()
		return Choice{}
	case "enter":
		return b.on(Open)
	case "tab":
		b.openLine(false, "")
		return Choice{}
	case "f2":
		if b.selected != nil {
			b.openLine(true, b.selected.info.Title)
		}
		return Choice{}
	case "ctrl+x":
		if b.selected != nil && b.selected.info.Working == nil && b.selected.state != Working {
			b.Tell("nothing runs there", false)
			return Choice{}
		}
		return b.on(Abort)
	case "ctrl+d":
		b.gone = b.selected
		return Choice{}
	case "left", "right":
		if b.filter.Text() == "" {
			b.fold(key == "left")
			return Choice{}
		}
	}
	if before := b.filter.Text(); b.filter.Update(msg) && b.filter.Text() != before {
		b.match()
		b.move(-len(b.shown))
	}
	return Choice{}
}

// on is an action on the session under the cursor.
func (b *Board) on(a Action) Choice {
	if b.selected == nil {
		return Choice{}
	}
	return Choice{Action: a, ID: b.selected.id}
}

func (b *Board) scroll(key string) bool {
	page := max(b.page-1, 1)
	switch key {
	case "up", "ctrl+p":
		b.move(-1)
	case "down", "ctrl+n":
		b.move(1)
	case "pgup":
		b.move(-page)
	case "pgdown":
		b.move(page)
	case "ctrl+home":
		b.move(-len(b.shown))
	case "ctrl+end":
		b.move(len(b.shown))
	case "alt+up":
		b.leap(-1)
	case "alt+down":
		b.leap(1)
	default:
		return false
	}
	return true
}

// leap moves the cursor to the first row of the group before or after.
func (b *Board) leap(by int) {
	for from := b.at; b.at+by >= 0 && b.at+by < len(b.shown); {
		b.move(by)
		if b.begins(b.at) && (by > 0 || b.at < from) {
			return
		}
	}
}

// begins tells whether a group begins at a row.
func (b *Board) begins(i int) bool {
	if i == 0 {
		return true
	}
	before, here := b.shown[i-1].treePlace(), b.shown[i].treePlace()
	return here.state != before.state || here.folder != before.folder
}

// openLine opens the line.
func (b *Board) openLine(rename bool, text string) {
	b.say = ask{of: b.selected, rename: rename, line: pick.NewText(pick.MaxText)}
	b.say.line.Set(text)
}

// Ask opens the line with a text in it that could not be sent to a session, and
// tells whether it did: the user may write something else by now, or it is too long.
func (b *Board) Ask(c Choice) bool {
	r := b.rows[c.ID]
	line := pick.NewText(pick.MaxText)
	line.Set(c.Text)
	if r == nil || b.say.of != nil || b.gone != nil || line.Refusal() != "" {
		return false
	}
	b.say = ask{of: r, rename: c.Action == Rename, line: line}
	return true
}

// write is the line's part of Update.
func (b *Board) write(msg tea.Msg, key string) Choice {
	text := strings.TrimSpace(b.say.line.Text())
	c := Choice{Action: Say, ID: b.say.of.id, Text: text}
	switch {
	case key == "esc":
		b.say = ask{}
		return Choice{}
	case key == "tab" && !b.say.rename:
		c.Action = Later
	case key != "enter":
		b.say.line.Update(msg)
		b.Tell(b.say.line.Refusal(), true)
		return Choice{}
	case b.say.rename:
		c.Action = Rename
	}
	if text == "" {
		return Choice{}
	}
	b.say = ask{}
	return c
}

// confirm handles the answer to whether to delete. Only y means yes:
// Enter is what one hits by habit. A paste is no answer.
func (b *Board) confirm(key string) Choice {
	r := b.gone
	if key == "" {
		return Choice{}
	}
	b.gone = nil
	if key == "y" || key == "Y" {
		return Choice{Action: Delete, ID: r.id, Children: b.below(r) > 0}
	}
	return Choice{}
}

// Tell shows one line, until the next key, of what came of an action.
func (b *Board) Tell(text string, bad bool) { b.told, b.bad = text, bad }

// keyOf is the name of a key; "" if msg is none, or types several characters at
// once, as an input method does.
func keyOf(msg tea.Msg) string {
	k, ok := msg.(tea.KeyPressMsg)
	if !ok || utf8.RuneCountInString(k.Text) > 1 {
		return ""
	}
	return k.String()
}

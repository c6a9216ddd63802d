// Package approvals draws what a run asks its user, and takes the answer.
//
// A Panel shows one approval in the lines that it is given: the command or the
// diff in full, to scroll in where it is long, and what each answer would allow,
// verbatim. A form is filled in field by field. What cannot be seen on a terminal is written as its number, so that
// what is shown is what runs. An approval takes no key before somebody has turned
// to it with Focus: one that comes up while a text is typed takes none of it. It
// loses the keys when another approval takes its place.
//
// A Panel belongs to one goroutine. The package refuses to do I/O, and to decide
// anything: the shell sends the Answer.
package approvals

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/approval"
	"noused/internal/protocol"
	"noused/internal/tui/pick"
	"noused/internal/tui/theme"
)

// Panel is an approval on the screen. New makes one without.
type Panel struct {
	theme theme.Theme
	home  string

	asked   protocol.Approval // ApprovalID "": nothing is
	focused bool
	why     *pick.Typed // the reason of a denial, while it is typed
	sent    bool        // an answer is on its way
	whole   bool        // the arguments are shown as JSON, too
	filling *filling    // of a form, once one has begun to fill it in
	problem string      // with the form

	offset, page int
	laid         layout
	cursor       struct {
		x, y int
		on   bool
	}
}

// Answer is what the user has chosen. The zero Answer is none.
type Answer struct {
	ID, Option string
	Reason     string // of a denial, for the model
	Content    string // of a form: a JSON object; "": its defaults
}

// New makes a panel; home is the user's folder, shown as ~.
func New(t theme.Theme, home string) *Panel { return &Panel{theme: t, home: home} }

// SetTheme draws the panel in another theme from now on.
func (p *Panel) SetTheme(t theme.Theme) { p.theme, p.laid = t, layout{} }

// Show shows an approval from now on; nil: none. The keys stay where they are only
// if it is the one that is shown already.
func (p *Panel) Show(a *protocol.Approval) {
	switch {
	case a == nil:
		*p = Panel{theme: p.theme, home: p.home}
	case a.ApprovalID != p.asked.ApprovalID:
		*p = Panel{theme: p.theme, home: p.home, asked: *a}
	}
}

// ID is the id of the approval that is shown; "": there is none.
func (p *Panel) ID() string { return p.asked.ApprovalID }

// unfoldKey shows the arguments as JSON, once the approval has the keys.
const unfoldKey = "j"

// Takes tells whether a key answers the approval though it has not got the keys.
func (p *Panel) Takes(key string) bool {
	return p.ID() != "" && !p.sent && !p.focused &&
		slices.ContainsFunc(approval.Choices(p.asked), func(c approval.Choice) bool { return c.Key == key })
}

// choiceKeys are the keys that answer the approval from an empty input, such as o/d/r.
func (p *Panel) choiceKeys() string {
	keys := []string{}
	for _, c := range approval.Choices(p.asked) {
		keys = append(keys, c.Key)
	}
	return strings.Join(keys, "/")
}

// Focus gives the keys to the approval, and tells whether there is one.
func (p *Panel) Focus() bool {
	p.focused = p.ID() != ""
	return p.focused
}

// Blur takes the keys from the approval.
func (p *Panel) Blur() {
	p.focused, p.why = false, nil
	if p.filling != nil {
		p.filling.on = false
	}
}

// Focused tells whether the keys are the approval's.
func (p *Panel) Focused() bool { return p.focused }

// Refused says that the answer did not arrive, so that another may be given.
func (p *Panel) Refused(id string) {
	if id == p.ID() {
		p.sent = false
	}
}

// Update takes a key or a paste of a focused approval. It takes each of them:
// none goes to what lies behind it.
func (p *Panel) Update(msg tea.Msg) Answer {
	key := ""
	if k, ok := msg.(tea.KeyPressMsg); ok {
		key = k.String()
	}
	switch {
	case p.why != nil:
		return p.write(msg, key)
	case p.writes() && (key == "pgup" || key == "pgdown"):
		p.scroll(key)
		return Answer{}
	case p.writes():
		at := p.filling.at
		done := p.filling.write(msg, key)
		if p.filling.at != at {
			p.offset = 0
		}
		if !done {
			return Answer{}
		}
		a := p.answer(protocol.OptionAccept, "")
		a.Content = string(p.filling.content())
		return a
	}
	if key == "esc" || key == "ctrl+c" {
		p.Blur()
		return Answer{}
	}
	if key == unfoldKey {
		p.whole, p.laid = !p.whole, layout{}
		return Answer{}
	}
	if p.scroll(key) || p.sent {
		return Answer{}
	}
	for _, c := range approval.Choices(p.asked) {
		if c.Key != key {
			continue
		}
		if approval.IsForm(p.asked) && c.Option.Decision == protocol.DecisionAllow {
			return p.fill()
		}
		if c.Reason {
			p.why = new(pick.NewText(protocol.MaxReason))
			return Answer{}
		}
		return p.answer(c.Option.ID, "")
	}
	return Answer{}
}

func (p *Panel) answer(option, reason string) Answer {
	p.sent = true
	p.Blur()
	return Answer{ID: p.ID(), Option: option, Reason: reason}
}

// writes tells whether the keys are a form's.
func (p *Panel) writes() bool { return p.filling != nil && p.filling.on }

func (p *Panel) write(msg tea.Msg, key string) Answer {
	switch key {
	case "esc", "ctrl+c":
		p.why = nil
	case "enter":
		if o := approval.No(p.asked); o != nil {
			return p.answer(o.ID, p.why.Text())
		}
	default:
		p.why.Update(msg)
	}
	return Answer{}
}

func (p *Panel) scroll(key string) bool {
	page := max(p.page-1, 1)
	switch key {
	case "up", "shift+up":
		p.offset--
	case "down", "shift+down":
		p.offset++
	case "pgup":
		p.offset -= page
	case "pgdown", "space":
		p.offset += page
	case "home", "ctrl+home":
		p.offset = 0
	case "end", "ctrl+end":
		p.offset = len(p.laid.all)
	default:
		return false
	}
	return true
}

// Cursor is where in the last View the terminal's cursor belongs.
func (p *Panel) Cursor() (x, y int, ok bool) { return p.cursor.x, p.cursor.y, p.cursor.on }

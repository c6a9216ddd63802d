package pick

import (
	tea "charm.land/bubbletea/v2"

	"noused/cmd/nous/tui/cell"
)

// Confirm is a question of yes or no. The answer is no unless yes is asked for
// in so many words: by y, or by going to it and Enter.
type Confirm struct {
	look             Look
	question, detail string
	yes              bool // Enter means yes
}

// NewConfirm makes a question; detail, which may be empty and of several lines,
// says what yes would do.
func NewConfirm(question, detail string, l Look) *Confirm {
	return &Confirm{look: l, question: cell.Line(question, maxTitle), detail: cell.Sanitize(head(detail, maxSearch))}
}

// SetLook draws the question in another look from now on.
func (c *Confirm) SetLook(l Look) { c.look = l }

// Update takes a key. Choose means yes, Leave no.
func (c *Confirm) Update(msg tea.Msg) (Choice, bool) {
	switch keyOf(msg) {
	case "y", "Y":
		return Choice{Action: Choose}, true
	case "n", "N", "esc", "q", "ctrl+c", "ctrl+g":
		return leave, true
	case "enter":
		if c.yes {
			return Choice{Action: Choose}, true
		}
		return leave, true
	case "left", "right", "up", "down", "tab", "shift+tab", "h", "l":
		c.yes = !c.yes
	}
	return Choice{}, false
}

// View draws the question. Sizes are in cells. The answers are there at any
// size, the detail where it has room.
func (c *Confirm) View(width, height int) string {
	at := c.look.inner(width, height)
	t := c.look.Theme
	button := func(text string, on bool) string {
		switch {
		case on && c.look.Plain:
			return "> " + text
		case on:
			return t.Selected.Render("❯ " + text)
		}
		return "  " + text
	}
	answers := button("yes", c.yes) + " " + button("no", !c.yes)
	lines := cell.Wrap(c.question, at.width)
	if c.detail != "" {
		lines = append(lines, "")
		for _, l := range cell.Wrap(c.detail, at.width) {
			lines = append(lines, t.Dim.Render(l))
		}
	}
	if room := at.height - 1; len(lines) > max(room, 0) {
		lines = lines[:max(room, 0)]
	}
	if len(lines)+1 < at.height && at.height > 3 {
		lines = append(lines, "")
	}
	return c.look.frame("Confirm", "", append(lines, answers), width, height)
}

// Cursor says that there is nowhere to type.
func (c *Confirm) Cursor() (x, y int, ok bool) { return 0, 0, false }

// Input asks for a line of text, such as a title.
type Input struct {
	look          Look
	title, prompt string
	line          line
	at            pane
}

// NewInput makes a line that begins as text. The prompt says what to type.
func NewInput(title, prompt, text string, l Look) *Input {
	in := &Input{look: l, title: cell.Line(title, maxTitle), prompt: cell.Line(prompt, maxTitle)}
	in.line.insert(text)
	return in
}

// SetLook draws the line in another look from now on.
func (in *Input) SetLook(l Look) { in.look = l }

// Update takes a key or a paste. Choose has the Text, which may be empty.
func (in *Input) Update(msg tea.Msg) (Choice, bool) {
	switch keyOf(msg) {
	case "esc", "ctrl+c", "ctrl+g":
		return leave, true
	case "enter":
		return Choice{Action: Choose, Text: in.line.text}, true
	}
	in.line.update(msg)
	return Choice{}, false
}

// View draws the line. Sizes are in cells.
func (in *Input) View(width, height int) string {
	in.at = in.look.inner(width, height)
	t := in.look.Theme
	var lines []string
	if in.above() {
		lines = append(lines, t.Dim.Render(cell.Truncate(in.prompt, in.at.width)))
	}
	text, _ := in.line.view(in.at.width - len(inputPrompt))
	lines = append(lines, t.Accent.Render(inputPrompt)+text)
	if in.at.height >= 5 {
		lines = append(lines, "", in.look.hints(in.at.width, "enter", "done", "esc", "leave"))
	}
	return in.look.frame(in.title, "", lines, width, height)
}

const inputPrompt = "> "

// above tells whether the prompt has a line of its own above the text.
func (in *Input) above() bool { return in.at.height > 1 && in.prompt != "" }

// Cursor is where in the last View the terminal's cursor belongs.
func (in *Input) Cursor() (x, y int, ok bool) {
	room := in.at.width - len(inputPrompt)
	if room < 1 || in.at.height < 1 {
		return 0, 0, false
	}
	_, column := in.line.view(room)
	y = in.at.y
	if in.above() {
		y++
	}
	return in.at.x + len(inputPrompt) + column, y, true
}

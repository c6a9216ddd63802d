package tui

import (
	"cmp"

	"noused/internal/tui/cell"
)

// first tells whether there is nothing to show yet, and no model to talk to.
func (m *model) first() bool {
	return m.known && m.talk.Empty() && m.state.Model.Provider == "" && m.approval.ID() == ""
}

// welcome says what this is, and what gives it a model.
func (m *model) welcome() []string {
	var lines []string
	add := func(text string) { lines = append(lines, cell.Wrap(text, m.width)...) }
	add(m.theme.Title.Render("This is nous, a screen of noused, the daemon that owns your agents' runs."))
	add("They go on when this screen is closed, and any other screen can show them.")
	lines = append(lines, "")
	if len(m.opts.SetUp) > 0 {
		add("No model is chosen yet. " + m.theme.Accent.Render("Enter") +
			" chooses one and saves its key; so does nous setup in a shell.")
	} else {
		add("No model is chosen yet. On " + cell.Line(cmp.Or(m.opts.Host, "the daemon's machine"), 80) +
			", nous setup chooses one and saves its key.")
	}
	lines = append(lines, "")
	add(m.theme.Accent.Render("/agent") +
		" begins a session that another agent makes, such as claude or codex, with its own sign-in.")
	lines = append(lines, "")
	add(m.theme.Dim.Render("A line that begins with ! goes to the shell. ? shows the keys, / the commands."))
	return lines
}

// farewell says how to come back to what was shown, "" if nothing was.
func (ob *outbox) farewell() string {
	unsent := ""
	for _, f := range ob.former {
		if f.Text != "" {
			unsent += "not answered by " + f.host + ": " + cell.Sanitize(f.Text) + "\n"
		}
	}
	if !ob.known || ob.state.SessionID == "" {
		return unsent
	}
	flags := " --session " + ob.state.SessionID
	if ob.lacks != nil { // it works in the active one only
		flags = ""
	}
	flags += ob.opts.Flags
	for _, u := range ob.unsent {
		if ob.cutOff() && u.Text != "" {
			unsent += "not sent: " + cell.Sanitize(u.Text) + "\n"
		}
	}
	if ob.running() {
		return unsent + "the run goes on; to come back: nous" + flags + "; to end it: nous abort" + flags + "\n"
	}
	return unsent + "to come back: nous" + flags + "\n"
}

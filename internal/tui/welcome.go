package tui

import (
	"strings"

	"noused/internal/tui/cell"
)

// modelLines give the daemon a model, as README.md has them.
var modelLines = []string{
	`mkdir -p ~/.config/noused && touch ~/.config/noused/environment && chmod 600 ~/.config/noused/environment`,
	`printf '%s\n' ANTHROPIC_API_KEY=sk-ant-… NOUSED_MODEL=anthropic/claude-sonnet-4-5 >>~/.config/noused/environment`,
	`systemctl --user restart noused`,
}

// byHand restarts the daemon with them where there is no systemd.
const byHand = `nous stop; (set -a; . ~/.config/noused/environment; nous)`

// first tells whether there is nothing to show yet, and no model to talk to.
func (m *model) first() bool {
	return m.known && m.talk.Empty() && m.state.Model.Provider == "offline"
}

// welcome says what this is, and what gives it a model.
func (m *model) welcome() []string {
	width := m.width - 2
	var lines []string
	add := func(text string) { lines = append(lines, cell.Wrap(text, m.width)...) }
	shell := func(line string) {
		for _, part := range shellLines(line, width) {
			lines = append(lines, "  "+m.theme.Accent.Render(part))
		}
	}
	add(m.theme.Title.Render("This is nous, a screen of noused, the daemon that owns your agents' runs."))
	add("They go on when this screen is closed, and any other screen can show them.")
	lines = append(lines, "")
	add("No model is chosen yet. Until then noused repeats what you write. A line that begins with ! goes to the shell.")
	where := ""
	if m.opts.Host != "" {
		where = " on " + cell.Line(m.opts.Host, 80)
	}
	add("Three lines in a shell" + where + " give it one. The key goes into a file that only you can read:")
	lines = append(lines, "")
	for _, line := range modelLines {
		shell(line)
	}
	lines = append(lines, "")
	add(m.theme.Dim.Render("OPENAI_API_KEY and openai/NAME work the same way; docs/models.md has the lines for others. Where systemd does not start noused, write this instead of the third line:"))
	shell(byHand)
	return lines
}

// shellLines breaks a shell's line at spaces, so that it means the same.
func shellLines(line string, width int) []string {
	var out []string
	now := ""
	for word := range strings.SplitSeq(line, " ") {
		if now != "" && cell.Width(now)+1+cell.Width(word)+2 > width {
			out, now = append(out, now+` \`), ""
		}
		now = strings.TrimPrefix(now+" "+word, " ")
	}
	return append(out, now)
}

// farewell says how to come back to what was shown, "" if nothing was.
func (m *model) farewell() string {
	unsent := ""
	for _, f := range m.former {
		if f.text != "" {
			unsent += "not answered by " + f.host + ": " + cell.Sanitize(f.text) + "\n"
		}
	}
	if !m.known || m.state.SessionID == "" {
		return unsent
	}
	flags := " --session " + m.state.SessionID
	if m.lacks != nil { // it works in the active one only
		flags = ""
	}
	flags += m.opts.Flags
	for _, u := range m.unsent {
		if m.cutOff() && u.text != "" {
			unsent += "not sent: " + cell.Sanitize(u.text) + "\n"
		}
	}
	if m.running() {
		return unsent + "the run goes on; to come back: nous" + flags + "; to end it: nous abort" + flags + "\n"
	}
	return unsent + "to come back: nous" + flags + "\n"
}

package tui

import (
	"context"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/cmd/nous/tui/pick"
)

// bindings are the keys as help and docs/tui.md list them.
var bindings = []pick.Binding{
	{Keys: "Enter", What: "send; while a run is active, steer it", Group: "Input"},
	{Keys: "Tab", What: "take the menu's choice; while a run is active, queue as a follow-up", Group: "Input"},
	{Keys: "Alt+Enter, Shift+Enter, Ctrl+J", What: "a new line", Group: "Input"},
	{Keys: "Up, Down", What: "move; in the first and last row, bring back earlier inputs", Group: "Input"},
	{Keys: "@", What: "the path of a file", Group: "Input"},
	{Keys: "/", What: "a command; // sends a text that begins with a slash", Group: "Input"},
	{Keys: "/skill:NAME", What: "send what a skill says, and the text behind it", Group: "Input"},
	{Keys: "Ctrl+C", What: "empty the input; twice: leave, a run goes on", Group: "Input"},
	{Keys: "Ctrl+D", What: "leave, when the input is empty", Group: "Input"},
	{Keys: "Esc", What: "close the menu; abort the run, queued texts come back", Group: "Run"},
	{Keys: "F2, F3", What: "deliver steers, follow-ups one at a time or all at once", Group: "Run"},
	{Keys: "PgUp, PgDn", What: "scroll a page; Shift+Up, Shift+Down a line", Group: "Conversation"},
	{Keys: "Home, End", What: "the beginning, the end, when the input is empty; else with Ctrl", Group: "Conversation"},
	{Keys: "Ctrl+O", What: "unfold or fold all thinking and tools", Group: "Conversation"},
	{Keys: "Alt+Up, Alt+Down", What: "go to the block before or after", Group: "Conversation"},
	{Keys: "Alt+O", What: "unfold or fold that block", Group: "Conversation"},
	{Keys: "Alt+C", What: "copy that block", Group: "Conversation"},
	{Keys: "Ctrl+R", What: "sessions", Group: "Sessions"},
	{Keys: "Ctrl+T", What: "the session's tree", Group: "Sessions"},
	{Keys: "Ctrl+L", What: "draw the screen again", Group: "Terminal"},
	{Keys: "Ctrl+Z", What: "suspend", Group: "Terminal"},
	{Keys: "F1", What: "help", Group: "Terminal"},
}

func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	if key != "ctrl+c" {
		m.leaving = false
	}
	switch key { // whatever is open
	case "ctrl+z":
		return m.suspend()
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+\\": // the terminal makes no signal of it
		return tea.Quit
	}
	if m.over != nil && key != "ctrl+c" {
		return m.choose(k)
	}
	if m.noDaemon() && m.input.empty() {
		if cmd, done := m.offerKey(key); done {
			return cmd
		}
	}
	if m.menu.press(key) {
		return nil
	}
	if cmd, done := m.control(key); done {
		return cmd
	}
	cmd := m.input.update(k)
	m.complete()
	return cmd
}

// control acts on the keys that are not the input's.
func (m *model) control(key string) (cmd tea.Cmd, done bool) {
	switch key {
	case "enter":
		return m.enter(), true
	case "tab":
		m.tab()
	case "esc":
		m.escape()
	case "ctrl+c":
		return m.interrupt(), true
	case "ctrl+d":
		if !m.input.empty() {
			return nil, false
		}
		return tea.Quit, true
	case "up", "ctrl+p":
		if !m.input.firstRow() {
			return nil, false
		}
		m.recall(m.history.older(m.input.text()))
	case "down", "ctrl+n":
		if !m.input.lastRow() {
			return nil, false
		}
		m.recall(m.history.newer())
	case "ctrl+r":
		return m.command("/switch"), true
	case "ctrl+t":
		return m.command("/tree"), true
	case "f1":
		return m.command("/help"), true
	case "f2":
		m.toggleMode("steering", m.state.SteeringMode)
	case "f3":
		m.toggleMode("follow-up", m.state.FollowUpMode)
	case "alt+c":
		return m.copyFocused(), true
	default:
		return nil, m.scroll(key)
	}
	return nil, true
}

// scroll acts on the keys that move the conversation or fold its blocks.
func (m *model) scroll(key string) bool {
	switch key {
	case "pgup":
		m.talk.Page(-1)
	case "pgdown":
		m.talk.Page(1)
	case "shift+up":
		m.talk.Scroll(-1)
	case "shift+down":
		m.talk.Scroll(1)
	case "ctrl+home":
		m.talk.Top()
	case "ctrl+end":
		m.talk.End()
	case "home", "end":
		if !m.input.empty() {
			return false
		}
		return m.scroll("ctrl+" + key)
	case "ctrl+o":
		m.talk.ToggleAll()
	case "alt+up":
		m.talk.Focus(-1)
	case "alt+down":
		m.talk.Focus(1)
	case "alt+o":
		m.talk.ToggleFocused()
	default:
		return false
	}
	return true
}

func (m *model) wheel(w tea.MouseWheelMsg) {
	if m.over != nil {
		return
	}
	switch w.Button {
	case tea.MouseWheelUp:
		m.talk.Scroll(-3)
	case tea.MouseWheelDown:
		m.talk.Scroll(3)
	}
}

func (m *model) paste(p tea.PasteMsg) tea.Cmd {
	m.leaving = false
	if m.over != nil {
		return m.choose(p)
	}
	if err := m.input.paste(p.Content); err != nil {
		m.talk.Notice("error", err.Error())
	}
	m.complete()
	return nil
}

// enter sends what is written, or does what it says.
func (m *model) enter() tea.Cmd {
	if m.menu.open() && !m.menu.done(m.input.word()) {
		m.takeChoice()
		if !m.menu.runs {
			return nil
		}
	}
	m.menu.close()
	text := m.input.text()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	cmd, rest, err := parseCommand(text)
	if err != nil {
		m.talk.Notice("error", err.Error())
		m.talk.End()
		return nil
	}
	if cmd == nil {
		m.send(text, rest, false)
		return nil
	}
	m.remember(text)
	m.input.clear()
	return m.run(cmd, rest)
}

// send sends text; written is how the user wrote it.
func (m *model) send(written, text string, followUp bool) {
	switch {
	case m.offline != nil || !m.known:
		m.talk.Notice("error", "not connected to the daemon: the text stays in the input")
		return
	case len(m.unsent) >= maxUnsent:
		m.talk.Notice("error", "the daemon does not answer: the text stays in the input")
		return
	}
	m.remember(written)
	m.input.clear()
	m.talk.End()
	m.submit(unsent{text: text, skill: skillOf(written), images: m.images, followUp: followUp})
	m.images = nil
}

func (m *model) remember(text string) {
	if err := m.history.add(text); err != nil {
		m.talk.Notice("error", err.Error())
	}
}

// tab takes the menu's choice, or queues what is written as a follow-up, or
// completes a path.
func (m *model) tab() {
	if m.menu.open() {
		m.takeChoice()
		return
	}
	text := m.input.text()
	if !m.running() || strings.TrimSpace(text) == "" {
		m.completePath()
		return
	}
	cmd, rest, err := parseCommand(text)
	switch {
	case err != nil:
		m.talk.Notice("error", err.Error())
	case cmd != nil:
		m.completePath()
	default:
		m.send(text, rest, true)
	}
}

func (m *model) escape() {
	switch {
	case m.menu.open():
		m.menu.dismiss()
	case m.running() || len(m.unsent) > 0:
		m.submit(unsent{})
	default:
		m.talk.End()
	}
}

// interrupt empties what is open or written; with nothing left to empty the
// second one leaves.
func (m *model) interrupt() tea.Cmd {
	switch {
	case m.over != nil:
		m.over = nil
	case !m.input.empty():
		m.remember(m.input.text()) // it may have been a slip
		m.input.clear()
		m.menu.close()
	case m.leaving:
		return tea.Quit
	default:
		m.leaving = true
	}
	return nil
}

func (m *model) recall(text string, ok bool) {
	if ok {
		m.input.set(text)
		m.menu.close()
	}
}

func (m *model) toggleMode(queue, mode string) {
	to := "all"
	if mode == "all" {
		to = "one-at-a-time"
	}
	m.do("mode", func(ctx context.Context, p place) outcome { return setMode(ctx, p, queue, to) })
}

func (m *model) copyFocused() tea.Cmd {
	text := m.talk.Focused()
	if text == "" {
		m.talk.Notice("info", "Alt+Up goes to a block, Alt+C copies it")
		return nil
	}
	return tea.SetClipboard(text)
}

// command does what a slash command says that a key stands for.
func (m *model) command(line string) tea.Cmd {
	cmd, rest, err := parseCommand(line)
	if err != nil || cmd == nil {
		return nil
	}
	return m.run(cmd, rest)
}

// run runs a command. Those that need no daemon are done at once.
func (m *model) run(c *command, arg string) tea.Cmd {
	switch {
	case c.name == "abort":
		m.submit(unsent{})
		return nil
	case c.name == "follow-up":
		m.submit(unsent{text: arg, images: m.images, followUp: true})
		m.images = nil
		return nil
	case c.local:
		return m.apply(c.run(m.jobs.ctx, m.place(), arg))
	}
	m.do(c.name, func(ctx context.Context, p place) outcome { return c.run(ctx, p, arg) })
	return nil
}

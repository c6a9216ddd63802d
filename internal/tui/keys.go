package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	does := m.keys.does[key]
	m.talk.DropNotes(true, m.over == nil && (does == "redraw" || does == "stop"))
	if does != "clear" {
		m.leaving = false
	}
	if !m.reports { // who presses a key looks
		m.attention.message = ""
	}
	if does != "stop" {
		m.editing = false
	}
	switch does { // whatever is open
	case "suspend":
		return func() tea.Msg { return stopped{} }
	case "redraw":
		return tea.ClearScreen
	case "quit": // the terminal makes no signal of it
		return tea.Quit
	}
	if m.over != nil && does != "clear" {
		return m.choose(k)
	}
	if m.over == nil && does != "answer" && does != "next-question" && m.pressLine(k, key, does) {
		return nil
	}
	if m.over == nil && m.offline == nil && m.input.empty() && m.question.Takes(key, time.Now()) {
		m.question.Focus()
		m.pressQuestion(k)
		return nil
	}
	if m.noDaemon() && m.input.empty() {
		if cmd, done := m.offerKey(key); done {
			return cmd
		}
	}
	if m.menu.press(key) {
		return nil
	}
	if cmd, done := m.control(does); done {
		return cmd
	}
	if cmd, done := m.atTheEdge(key); done {
		return cmd
	}
	cmd := m.input.update(k)
	m.complete()
	return cmd
}

// atTheEdge acts on the keys that are the input's but where it has no use for
// them.
func (m *model) atTheEdge(key string) (cmd tea.Cmd, done bool) {
	switch {
	case key == "up" && m.input.empty() && m.takeBack():
	case key == "up" && m.input.firstRow():
		m.recall(m.history.older(m.input.text()))
	case (key == "down" || key == "ctrl+n") && m.input.lastRow():
		m.recall(m.history.newer())
	case !m.input.empty():
		return nil, false
	case key == "?":
		return m.command("/help"), true
	case key == "home":
		m.talk.Top()
	case key == "end":
		m.talk.End()
	default:
		return nil, false
	}
	return nil, true
}

// control does what keys stand for that are not the input's.
func (m *model) control(action string) (cmd tea.Cmd, done bool) {
	switch action {
	case "send":
		return m.enter(), true
	case "queue":
		m.tab()
	case "stop":
		m.escape()
	case "clear":
		return m.interrupt(), true
	case "leave":
		if !m.input.empty() {
			return nil, false
		}
		return tea.Quit, true
	case "editor":
		return m.edit(), true
	case "open-paste":
		m.openPaste()
	case "paste-image":
		m.pasteImage()
	case "sessions":
		return m.command("/switch"), true
	case "board":
		m.openBoard()
	case "answer":
		m.turnToQuestion()
	case "next-question":
		m.nextQuestion()
	case "tree":
		return m.command("/tree"), true
	case "find":
		m.openFind("")
	case "palette":
		return m.command("/palette"), true
	case "help":
		return m.command("/help"), true
	case "steering-mode":
		m.toggleMode("steering", m.state.SteeringMode)
	case "follow-up-mode":
		m.toggleMode("follow-up", m.state.FollowUpMode)
	case "copy":
		return m.copyFocused(), true
	default:
		return nil, m.scroll(action)
	}
	return nil, true
}

// scroll moves the conversation, or folds its blocks.
func (m *model) scroll(action string) bool {
	switch action {
	case "page-up":
		m.talk.Page(-1)
	case "page-down":
		m.talk.Page(1)
	case "line-up":
		m.talk.Scroll(-1)
	case "line-down":
		m.talk.Scroll(1)
	case "top":
		m.talk.Top()
	case "end":
		m.talk.End()
	case "unfold-all":
		m.talk.ToggleAll()
	case "block-before":
		m.talk.Focus(-1)
	case "block-after":
		m.talk.Focus(1)
	case "unfold":
		m.talk.ToggleFocused()
	default:
		return false
	}
	return true
}

// pressLine lets the question have a key or a paste, or the line of a search, and
// tells whether one of them has the keys.
func (m *model) pressLine(msg tea.Msg, key, does string) bool {
	switch {
	case m.question.Focused():
		m.pressQuestion(msg)
	case m.find != nil:
		m.pressFind(msg, key, does)
	default:
		return false
	}
	return true
}

func (m *model) paste(p tea.PasteMsg) tea.Cmd {
	m.leaving = false
	if m.over != nil {
		return m.choose(p)
	}
	if m.pressLine(p, "", "") {
		return nil
	}
	if err := m.input.paste(p.Content); err != nil {
		m.talk.Notice("error", err.Error())
	}
	m.complete()
	return nil
}

// openPaste shows what stands folded before the cursor.
func (m *model) openPaste() {
	if err := m.input.open(); err != nil {
		m.talk.Notice("info", err.Error())
	}
	m.complete()
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
		if m.first() {
			return m.setUp()
		}
		return nil
	}
	if m.question.ID() != "" && slices.Contains([]string{"y", "n", "yes", "no"},
		strings.ToLower(strings.TrimSpace(text))) {
		m.input.clear() // as a message it would take the question away
		m.talk.Notice("info", "the question above has keys of its own: press one of them")
		m.talk.End()
		return nil
	}
	cmd, rest, err := parseCommand(text)
	if err != nil {
		m.talk.Notice("error", err.Error())
		m.talk.End()
		return nil
	}
	switch {
	case cmd == nil:
		m.send(text, rest, false)
		return nil
	case cmd.name == "follow-up" && m.cutOff():
		m.send(text, rest, true)
		return nil
	case m.cutOff() && !cmd.local && cmd.name != "abort" && !m.choosesHost(cmd, rest):
		m.talk.Notice("info", cell.Line(m.opts.Host, 80)+
			" is away: the command stays in the input, and Enter does it when it is back")
		m.talk.End()
		return nil
	}
	m.remember(text)
	m.input.clear()
	return m.run(cmd, rest)
}

// send sends text; written is how the user wrote it.
func (m *model) send(written, text string, followUp bool) {
	switch {
	case m.offline != nil && !m.cutOff() || !m.known:
		m.talk.Notice("error", "not connected to the daemon: the text stays in the input")
		return
	case len(m.unsent) >= maxUnsent:
		m.talk.Notice("error", "the daemon does not answer: the text stays in the input")
		return
	}
	m.remember(written)
	m.input.clear()
	m.talk.End()
	m.submit(unsent{
		text: text, skill: skillOf(written), call: isCall(written), images: m.images,
		followUp: followUp,
	})
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
	case slices.ContainsFunc(m.working, func(name string) bool { return strings.HasPrefix(name, "bash") }):
		m.endShell()
	case m.cutOff() && len(m.unsent) > 0:
		m.giveBack()
	case m.running() || len(m.unsent) > 0:
		m.submit(unsent{})
	case !m.input.empty() || !m.known:
		m.talk.End()
	case m.editing:
		m.editing = false
		m.command("/edit")
	default:
		m.editing = true
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

func (m *model) toggleMode(queue string, mode protocol.Mode) {
	to := protocol.ModeAll
	if mode == protocol.ModeAll {
		to = protocol.ModeOneAtATime
	}
	m.do("mode", func(ctx context.Context, p place) outcome { return setMode(ctx, p, queue, to) })
}

func (m *model) copyFocused() tea.Cmd {
	text := m.talk.Focused()
	if text == "" {
		m.talk.Notice("info", fmt.Sprintf("%s goes to a block, %s copies it", m.keys.shown("block-before"),
			m.keys.shown("copy")))
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
	case m.choosesHost(c, arg): // also while one is waited for
		m.open(newSessions(m, sessionList{}))
		return nil
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
	f := func(ctx context.Context, p place) outcome { return c.run(ctx, p, arg) }
	if strings.HasPrefix(c.name, "bash") {
		f = m.stoppable(f)
	}
	m.do(c.name, f)
	return nil
}

// choosesHost tells whether a command shows the sessions of several daemons, for which the
// one that is shown is not needed.
func (m *model) choosesHost(c *command, arg string) bool {
	return c.name == "switch" && arg == "" && len(m.sites) > 1
}

// stoppable is a job that Esc ends.
func (m *model) stoppable(f func(context.Context, place) outcome) func(context.Context, place) outcome {
	shell, end := context.WithCancel(m.jobs.ctx)
	m.endShell = end
	return func(_ context.Context, p place) outcome {
		defer end()
		return f(shell, p)
	}
}

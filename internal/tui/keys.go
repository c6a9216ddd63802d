package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"noused/internal/tui/composer"
	"noused/internal/tui/slash"
	"noused/internal/tui/terminal"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	does := m.keys.Does[key]
	defer m.pressLetter(k, m.input.Empty())
	bare := m.over == nil // else nobody has read the notes
	m.talk.DropNotes(bare, bare && (does == "redraw" || does == "stop"))
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
		return func() tea.Msg { return terminal.Stopped{} }
	case "redraw":
		return tea.ClearScreen
	case "quit": // the terminal makes no signal of it
		return tea.Quit
	}
	if m.over != nil && does != "clear" {
		return m.choose(k)
	}
	if m.over == nil && does != "answer" && does != "next-approval" && m.pressLine(k, key, does) {
		return nil
	}
	if m.noDaemon() && m.input.Empty() {
		if cmd, done := m.offerKey(key); done {
			return cmd
		}
	}
	if m.input.Menu.Press(key) {
		return nil
	}
	if cmd, done := m.control(does); done {
		return cmd
	}
	if cmd, done := m.atTheEdge(key); done {
		return cmd
	}
	cmd := m.input.Update(k)
	m.input.Complete()
	return cmd
}

// atTheEdge acts on the keys that are the input's but where it has no use for
// them.
func (m *model) atTheEdge(key string) (cmd tea.Cmd, done bool) {
	switch {
	case key == "up" && m.input.Empty() && m.takeBack():
	case key == "up" && m.input.FirstRow():
		m.input.Older()
	case (key == "down" || key == "ctrl+n") && m.input.LastRow():
		m.input.Newer()
	case !m.input.Empty():
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
		if !m.input.Empty() {
			return nil, false
		}
		return tea.Quit, true
	case "editor":
		return m.edit(), true
	case "open-paste":
		m.notedIf("info", m.input.OpenPaste())
	case "paste-image":
		m.pasteImage()
	case "sessions":
		return m.command("/switch"), true
	case "board":
		m.openBoard()
	case "answer":
		m.turnToApproval()
	case "next-approval":
		m.nextApproval()
	case "tree":
		return m.command("/tree"), true
	case "plan":
		m.plan.unfolded = !m.plan.unfolded
	case "diff":
		m.openChanges()
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

// pressLine lets the approval have a key or a paste, or the line of a search, and
// tells whether one of them has the keys.
func (m *model) pressLine(msg tea.Msg, key, does string) bool {
	switch {
	case m.approval.Focused():
		m.pressApproval(msg)
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
	m.notedIf("error", m.input.Paste(p.Content))
	m.input.Complete()
	return nil
}

// enter sends what is written, or does what it says.
func (m *model) enter() tea.Cmd {
	if m.input.Menu.Open() && !m.input.Menu.Done(m.input.Word()) {
		m.input.TakeChoice()
		if !m.input.Menu.Runs {
			return nil
		}
	}
	m.input.Menu.Close()
	text := m.input.Text()
	if strings.TrimSpace(text) == "" {
		if m.first() {
			return m.setUp()
		}
		if m.enterChild() {
			return nil
		}
		if u, why := m.secondTry(); why != nil {
			m.submit(u)
			m.talk.End()
		}
		return nil
	}
	switch {
	case m.holdsBack("send"):
		return nil
	case m.lettered():
		m.doLetter()
		return nil
	}
	if word := strings.ToLower(strings.TrimSpace(text)); m.approval.ID() != "" &&
		(slices.Contains([]string{"y", "n", "yes", "no"}, word) || m.approval.Takes(word)) {
		m.input.Clear() // as a message it would take the approval away
		m.talk.Notice("info", "the approval above has keys of its own: press one of them")
		m.talk.End()
		return nil
	}
	if m.entersPlan() {
		m.doPlan()
		return nil
	}
	cmd, rest, err := slash.Parse(text)
	if err != nil {
		m.talk.Notice("error", err.Error())
		m.talk.End()
		return nil
	}
	switch {
	case cmd == nil:
		m.send(text, rest, false)
		return nil
	case cmd.Name == "follow-up" && m.cutOff():
		m.send(text, rest, true)
		return nil
	case m.cutOff() && !cmd.Local && cmd.Name != "abort" && !m.choosesHost(cmd, rest):
		m.talk.Notice("info", cell.Line(m.opts.Host, 80)+
			" is away: the command stays in the input, and Enter does it when it is back")
		m.talk.End()
		return nil
	}
	m.remember(text)
	m.input.Clear()
	return m.run(cmd, rest)
}

// send sends text; written is how the user wrote it.
func (ob *outbox) send(written, text string, followUp bool) {
	switch {
	case ob.offline != nil && !ob.cutOff() || !ob.known:
		ob.talk.Notice("error", "not connected to the daemon: the text stays in the input")
		return
	case len(ob.unsent) >= maxUnsent:
		ob.talk.Notice("error", "the daemon does not answer: the text stays in the input")
		return
	}
	ob.remember(written)
	ob.input.Clear()
	ob.talk.End()
	if e := ob.rewrite; e != nil && !followUp {
		ob.rewrite = nil
		ob.do("branch", func(ctx context.Context, p slash.Place) slash.Outcome { return e.Branch(ctx, p, text) })
	}
	ob.submit(slash.Unsent{
		Text: text, Skill: slash.SkillOf(written), Call: slash.IsCall(written), Images: ob.input.Images,
		FollowUp: followUp, As: ob.sentAs(),
	})
	ob.input.Images = nil
}

// tab takes the menu's choice, or queues what is written as a follow-up, or
// completes a path.
func (m *model) tab() {
	if m.input.Menu.Open() {
		m.input.TakeChoice()
		return
	}
	text := m.input.Text()
	if !m.running() || strings.TrimSpace(text) == "" {
		m.input.CompletePath()
		return
	}
	cmd, rest, err := slash.Parse(text)
	switch {
	case err != nil:
		m.talk.Notice("error", err.Error())
	case cmd != nil:
		m.input.CompletePath()
	case m.holdsBack("queue"):
	default:
		m.send(text, rest, true)
	}
}

func (m *model) escape() {
	switch {
	case m.input.Menu.Open():
		m.input.Menu.Dismiss()
	case slices.ContainsFunc(m.working, func(name string) bool { return strings.HasPrefix(name, "bash") }):
		m.endShell()
	case m.cutOff() && len(m.unsent) > 0:
		m.giveBack()
	case m.goesUp():
		m.goUp()
	case m.running() || len(m.unsent) > 0:
		m.submit(slash.Unsent{})
	case m.input.Empty() && m.rewrite == nil && m.planning():
		m.leavePlan()
	case m.rewrite != nil: // nothing was made yet
		m.rewrite = nil
		m.remember(m.input.Text())
		m.input.Clear()
	case !m.input.Empty() || !m.known:
		m.talk.End()
	case m.editing:
		m.editing = false
		if id := m.talk.FocusedSaid(); id != "" {
			m.command("/rewind " + id)
		} else {
			m.command("/edit")
		}
	default:
		m.editing = true
		if m.talk.FocusedSaid() == "" {
			m.talk.End()
		}
	}
}

// interrupt empties what is open or written; with nothing left to empty the
// second one leaves.
func (m *model) interrupt() tea.Cmd {
	switch {
	case m.over != nil:
		m.leftComments(m.over)
		m.over = nil
	case !m.input.Empty():
		m.remember(m.input.Text()) // it may have been a slip
		m.input.Clear()
		m.input.Menu.Close()
		m.rewrite = nil
	case m.leaving:
		return tea.Quit
	default:
		m.leaving = true
	}
	return nil
}

func (ob *outbox) toggleMode(queue string, mode protocol.Mode) {
	to := protocol.ModeAll
	if mode == protocol.ModeAll {
		to = protocol.ModeOneAtATime
	}
	ob.do("mode", func(ctx context.Context, p slash.Place) slash.Outcome { return slash.SetMode(ctx, p, queue, to) })
}

func (m *model) copyFocused() tea.Cmd {
	text := m.talk.Focused()
	if text == "" {
		m.talk.Notice("info", fmt.Sprintf("%s goes to a block, %s copies it", m.keys.Shown("block-before"),
			m.keys.Shown("copy")))
		return nil
	}
	return m.copyText(text)
}

// copied is what the clipboard's programs came to; the terminal was asked, too.
type copied struct{ took []string }

// copyText puts a text into the clipboard, by the terminal and by the programs that are there.
func (m *model) copyText(text string) tea.Cmd {
	getenv := m.opts.Getenv
	m.jobs.Start(func(ctx context.Context) tea.Msg { return copied{terminal.Copy(ctx, getenv, text)} })
	return tea.SetClipboard(text)
}

func (m *model) copied(c copied) {
	said := "copied"
	if len(c.took) == 0 {
		said += ", where the terminal takes it (OSC 52)"
	}
	m.talk.Notice("info", said)
}

// command does what a slash command says that a key stands for.
func (m *model) command(line string) tea.Cmd {
	cmd, rest, err := slash.Parse(line)
	if err != nil || cmd == nil {
		return nil
	}
	return m.run(cmd, rest)
}

// run runs a command. Those that need no daemon are done at once.
func (m *model) run(c *slash.Command, arg string) tea.Cmd {
	switch {
	case m.choosesHost(c, arg): // also while one is waited for
		m.open(newSessions(m, slash.SessionList{}))
		return nil
	case c.Name == "abort":
		m.submit(slash.Unsent{})
		return nil
	case c.Name == "follow-up":
		m.submit(slash.Unsent{Text: arg, Images: m.input.Images, FollowUp: true, As: m.sentAs()})
		m.input.Images = nil
		return nil
	case slash.SaysAs(c, arg):
		m.sendAs(slash.CutAs(arg))
		return nil
	case c.Local:
		o := c.Run(m.jobs.Ctx, m.place(), arg)
		if o.Err != nil && m.input.Empty() { // as with one that does not exist
			m.input.Set(strings.TrimSpace("/" + c.Name + " " + arg))
		}
		return m.apply(o)
	}
	f := action(func(ctx context.Context, p slash.Place) slash.Outcome { return c.Run(ctx, p, arg) })
	if strings.HasPrefix(c.Name, "bash") {
		f = m.shellLine(f, arg)
	}
	m.do(c.Name, f)
	return nil
}

// choosesHost tells whether a command shows the sessions of several daemons, for which the
// one that is shown is not needed.
func (m *model) choosesHost(c *slash.Command, arg string) bool {
	return c.Name == "switch" && arg == "" && len(m.sites) > 1
}

// action is what a command does.
type action func(context.Context, slash.Place) slash.Outcome

// notedIf shows an error, if there is one.
func (ob *outbox) notedIf(kind string, err error) {
	if err != nil {
		ob.talk.Notice(kind, err.Error())
	}
}

func (ob *outbox) remember(text string) { ob.notedIf("error", ob.input.Remember(text)) }

// updateInput takes in what the user does, and what is offered to go on with.
func (m *model) updateInput(msg tea.Msg) (cmd tea.Cmd, mine bool) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		return m.press(msg), true
	case tea.PasteMsg:
		return m.paste(msg), true
	case tea.MouseWheelMsg:
		return m.wheel(msg), true
	case tea.MouseClickMsg:
		m.click(msg)
	case pasted:
		m.pasted(msg)
	case copied:
		m.copied(msg)
	case composer.Completed:
		m.input.Menu.Fill(msg)
	default:
		return nil, false
	}
	return nil, true
}

package tui

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os/exec"

	"noused/internal/tui/cell"
	"noused/internal/tui/composer"
	"noused/internal/tui/slash"
	"noused/internal/tui/terminal"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// titled writes a sequence while nothing draws.
func (ds *daemons) titled(sequence string) { _, _ = io.WriteString(ds.opts.output(), sequence) }

// pasted is what the clipboard gave.
type pasted struct {
	data string
	err  error
}

// pasteImage asks the desktop for the image in its clipboard.
func (m *model) pasteImage() {
	if err := slash.TakesNoImages(m.link); err != nil {
		m.talk.Notice("error", err.Error())
		return
	}
	getenv := m.opts.Getenv
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, terminal.ClipboardTime)
		defer cancel()
		data, err := terminal.ClipboardImage(ctx, getenv)
		return pasted{data, err}
	})
}

func (ob *outbox) pasted(p pasted) {
	if p.err != nil {
		ob.talk.Notice("info", p.err.Error())
		ob.talk.End()
	} else if err := ob.input.Attach(p.data, terminal.MaxImage); err != nil {
		ob.talk.Notice("error", err.Error())
		ob.talk.End()
	}
}

// edited is what came of an editor.
type edited struct {
	text string
	err  error
}

// edit has the user's editor write the input. Whatever happens to the editor,
// the screen comes back, and the input is as it was unless the editor ended
// well.
func (m *model) edit() tea.Cmd {
	editor := cmp.Or(m.opts.Getenv("VISUAL"), m.opts.Getenv("EDITOR"), "vi")
	was := m.input.Text()
	var done edited
	run := func() {
		m.stops.Ignore()
		defer m.stops.Watch()
		done.text, done.err = m.lent.Edit(m.jobs.Ctx, editor, was, composer.MaxText)
	}
	return tea.Exec(terminal.Meanwhile(run), func(err error) tea.Msg {
		done.err = cmp.Or(done.err, err)
		return done
	})
}

// edited takes in what came of the editor.
func (m *model) edited(e edited) tea.Cmd {
	if e.err != nil {
		m.talk.Notice("error", "the input is as it was: "+e.err.Error())
		m.talk.End()
	} else if e.text != m.input.Text() {
		m.input.Replace(e.text)
	}
	return m.resumed()
}

// wasSetUp is what came of nous setup.
type wasSetUp struct{ err error }

// setUp has nous setup ask for a model in the terminal.
func (m *model) setUp() tea.Cmd {
	if len(m.opts.SetUp) == 0 {
		m.talk.Notice("error", "keys and the daemon's model are files of its machine: run nous setup there")
		m.talk.End()
		return nil
	}
	args := m.opts.SetUp
	var failed error
	run := func() {
		m.stops.Ignore()
		defer m.stops.Watch()
		failed = m.lent.RunAsked(m.jobs.Ctx, args...)
	}
	return tea.Exec(terminal.Meanwhile(run), func(err error) tea.Msg { return wasSetUp{cmp.Or(failed, err)} })
}

// setUpDone takes in what came of it.
func (m *model) setUpDone(s wasSetUp) tea.Cmd {
	if s.err != nil {
		text := "no model was chosen"
		if !errors.As(s.err, new(*exec.ExitError)) { // else it was left
			text += ": " + cell.Line(s.err.Error(), 300)
		}
		m.talk.Notice("error", text+"; /setup asks again")
		m.talk.End()
	}
	m.refresh()
	return m.resumed()
}

// suspend stops nous and gives the terminal back until it goes on.
func (m *model) suspend() tea.Cmd {
	if !terminal.Stoppable() {
		m.talk.Notice("info", "nous cannot be suspended here: there is no shell that would let it go on")
		return nil
	}
	return terminal.Release(func() {
		m.stops.Ignore() // the end of this stop is no news
		defer m.stops.Watch()
		m.titled(m.leftBehind())
		m.forgetInput()
		terminal.Stop()
		m.titled(pushTitle)
	})
}

// forgetInput drops what the terminal has sent and nobody has read: its answer to
// an approval of ours, say, which the shell would take for something typed.
func (ds *daemons) forgetInput() {
	if in, ok := ds.opts.In.(interface{ Fd() uintptr }); ok {
		_ = unix.IoctlSetInt(int(in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	}
}

// wheel scrolls what is shown.
func (m *model) wheel(w tea.MouseWheelMsg) tea.Cmd {
	by, key := -terminal.WheelLines, tea.KeyUp
	switch w.Button {
	case tea.MouseWheelUp:
	case tea.MouseWheelDown:
		by, key = terminal.WheelLines, tea.KeyDown
	default:
		return nil
	}
	if m.over != nil {
		return m.choose(tea.KeyPressMsg{Code: key})
	}
	m.talk.Scroll(by)
	return nil
}

// setMouse takes the mouse, or leaves it to the terminal.
func (dev *device) setMouse(on bool) {
	dev.mouse = on
	dev.arrows.Store(!on)
}

// updateTerminal takes in how the terminal describes itself, and how lending it ended.
func (m *model) updateTerminal(msg tea.Msg) (cmd tea.Cmd, mine bool) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
		m.dress()
	case tea.BackgroundColorMsg:
		m.setBackground(msg.IsDark())
		cmd = m.backgroundAnswered()
	case noBackground:
		cmd = m.backgroundAnswered()
	case tea.ProgramStatusSupportMsg:
		m.showsStatus = true
	case tea.ColorProfileMsg:
		m.setProfile(msg.Profile)
	case terminal.Stopped:
		cmd = m.suspend()
	case terminal.Continued:
		cmd = terminal.Release(func() {})
	case tea.FocusMsg:
		m.reports = true
		m.lookedAt(true)
	case tea.BlurMsg:
		m.reports = true
		m.lookedAt(false)
	case tea.ResumeMsg:
		cmd = m.resumed()
	case edited:
		cmd = m.edited(msg)
	case wasSetUp:
		cmd = m.setUpDone(msg)
	default:
		return nil, false
	}
	return cmd, true
}

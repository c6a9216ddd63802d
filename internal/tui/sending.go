package tui

import (
	"context"
	"errors"
	"slices"
	"strings"

	"noused/internal/tui/settings"

	tea "charm.land/bubbletea/v2"
	"github.com/google/uuid"

	"noused/internal/client"
	"noused/internal/client/follow"
)

// job is a command to be done beside the screen.
type job struct {
	name string
	do   func(context.Context, place) outcome
}

// unsent is a text on its way to the daemon, or, as the zero unsent, an abort,
// which must not overtake the texts before it.
type unsent struct {
	text, key string
	skill     string // what it says goes with the text
	call      bool   // a server makes the text
	images    []image
	followUp  bool
}

// goOn does what waited, if nothing is in its way any more.
func (m *model) goOn() {
	held := m.held
	m.held = nil
	for _, j := range held {
		m.do(j.name, j.do) // or holds it again
	}
	m.sendNext()
}

// stay gives back what was meant for a session that is not shown.
func (m *model) stay() {
	m.giveBack()
	for _, j := range m.held {
		m.talk.Notice("error", "/"+j.name+" was not done: it was meant for another session")
	}
	m.held = nil
}

// giveBack puts the texts that are not on their way into the input again.
func (m *model) giveBack() {
	going := 0
	if m.sending {
		going = 1
	}
	back := m.unsent[going:]
	m.unsent = m.unsent[:going]
	m.written(back)
}

// written puts texts that were not sent into the input again.
func (m *model) written(back []unsent) {
	var texts []string
	var images []image
	for _, u := range back {
		if u.text != "" {
			texts, images = append(texts, u.text), append(images, u.images...)
		}
	}
	asWritten := len(back) > 0 && (back[0].skill != "" || back[0].call)
	m.images = append(images, m.images...)
	if asWritten {
		m.input.prepend(strings.Join(texts, "\n\n"))
		return
	}
	m.input.before(texts...)
}

// moving tells whether another session is about to be shown, or another part of
// this one; in order tells whether a text that is sent now finds things as the
// commands before it left them.
func (m *model) moving() bool {
	return m.goal != nil || slices.ContainsFunc(m.working, func(name string) bool { return commandNamed(name).moves })
}

func (m *model) inOrder() bool {
	return !m.moving() && !slices.ContainsFunc(m.working, func(name string) bool { return commandNamed(name).first })
}

// do runs a command beside the screen, in the session that is shown or about to
// be.
func (m *model) do(name string, f func(context.Context, place) outcome) {
	if m.moving() {
		m.held = append(m.held, job{name, f})
		return
	}
	m.working = append(m.working, name)
	m.keep(m.place(), func(ctx context.Context, p place) tea.Msg {
		return finished{p, f(ctx, p).of(name)}
	})
}

// of names the command that came to the outcome.
func (o outcome) of(name string) outcome {
	o.name = name
	return o
}

// finish shows what a command came to.
func (m *model) finish(f finished) tea.Cmd {
	o := f.outcome
	if f.at.link != m.link {
		m.finishedElsewhere(f)
		return nil
	}
	if i := slices.Index(m.working, o.name); i >= 0 {
		m.working = slices.Delete(m.working, i, i+1)
	}
	cmd := m.apply(o)
	if commandNamed(o.name).moves && o.follow == nil { // it failed, or shows a list
		m.stay()
	}
	m.goOn()
	return cmd
}

func (m *model) apply(o outcome) tea.Cmd {
	if errors.Is(o.err, context.Canceled) && m.jobs.ctx.Err() != nil {
		return nil
	}
	if o.err != nil {
		m.talk.Notice("error", describe(o.err))
		m.talk.End()
	}
	if o.text != "" {
		m.input.before(o.text)
	}
	m.input.before(o.back...)
	if o.sent != "" {
		m.ours = append(m.ours, o.sent)
		m.ours = m.ours[max(0, len(m.ours)-maxUnsent):]
	}
	switch {
	case o.site != nil:
		m.move(o.site, *o.follow)
	case o.follow != nil:
		m.follow(*o.follow)
		if o.info != "" {
			m.notices = append(m.notices, o.info)
		}
	case o.stays:
		m.talk.Aside(o.info)
		m.talk.End()
	case o.info != "":
		m.talk.Notice("info", o.info)
		m.talk.End()
	}
	if o.follow == nil && o.err == nil && m.known {
		m.refresh()
	}
	switch {
	case o.quit:
		return tea.Quit
	case o.find != nil:
		m.openFind(*o.find)
	case o.palette:
		m.open(newPalette(m))
	case o.help:
		m.open(newHelp(m))
	case o.board:
		m.openBoard()
	case o.show != nil:
		m.open(newChooser(m, o.show))
	case o.theme != "":
		m.setTheme(o.theme)
		m.rememberLook(func(r *settings.Remembered) { r.Theme = o.theme })
	case o.mouse:
		m.setMouse(!m.mouse)
		m.rememberLook(func(r *settings.Remembered) { r.Mouse = new(m.mouse) })
		m.talk.Notice("info", map[bool]string{
			true:  "the mouse is nous's: with Shift held it selects text",
			false: "the mouse is the terminal's",
		}[m.mouse])
	case o.start:
		m.startDaemon()
	case o.setUp:
		return m.setUp()
	case o.images != nil:
		m.images = attached(m.images, o.images)
	}
	return nil
}

// resend says that a text whose connection was lost may go again, as the same.
type resend struct{}

// cutOff tells whether the connection to another machine is lost. What is written
// then is sent when it is back.
func (m *model) cutOff() bool {
	return m.opts.Host != "" && m.known && m.offline != nil && !m.offline.NoDaemon
}

// submit sends a text, or an abort, behind those that are being sent already,
// and behind the commands that decide where a text goes and what happens to it.
func (m *model) submit(u unsent) {
	if u.text != "" {
		if m.retry.text == u.text && m.retry.skill == u.skill && m.retry.call == u.call && m.retry.followUp == u.followUp &&
			slices.Equal(m.retry.images, u.images) {
			u.key = m.retry.key
		} else {
			u.key = uuid.NewString()
		}
	}
	m.unsent = append(m.unsent, u)
	m.sendNext()
}

func (m *model) sendNext() {
	if m.sending || len(m.unsent) == 0 || !m.inOrder() || m.cutOff() {
		return
	}
	m.sending = true
	u := m.unsent[0]
	m.keep(m.place(), func(ctx context.Context, p place) tea.Msg {
		u, err := u.written(ctx, p)
		switch {
		case err != nil:
			return answered{p, failed(err)}
		case u.text == "":
			return answered{p, abort(ctx, p)}
		case u.followUp:
			return answered{p, queueFollowUp(ctx, p, u)}
		default:
			return answered{p, say(ctx, p, u)}
		}
	})
}

// answer goes on with the next text; when one was refused, those behind it come
// back, too, rather than being said in the wrong place.
func (m *model) answer(a answered) tea.Cmd {
	o := a.outcome
	if a.at.link != m.link {
		m.answeredElsewhere(a)
		return nil
	}
	was := m.unsent[0]
	if m.opts.Host != "" && (m.offline == nil || m.cutOff()) && was.text != "" &&
		(errors.Is(o.err, follow.ErrOffline) || errors.Is(o.err, client.ErrLost)) {
		m.sending = false
		m.jobs.start(func(ctx context.Context) tea.Msg { // until then it is known that there is no connection
			pause(ctx, refreshEvery)
			return resend{}
		})
		return nil
	}
	m.unsent, m.sending, m.retry = m.unsent[1:], false, unsent{}
	if i := slices.Index(m.heard, was.text); i >= 0 {
		m.heard = slices.Delete(m.heard, i, i+1)
	} else if o.err == nil && was.text != "" && m.lacks != nil && m.running() {
		m.waiting = append(m.waiting, was.text)
	}
	if o.err != nil && was.text != "" {
		m.retry, m.unsent, o.text = was, append([]unsent{was}, m.unsent...), ""
		m.giveBack()
	}
	m.sendNext()
	return m.apply(o)
}

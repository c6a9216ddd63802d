package tui

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"noused/internal/protocol"
	"noused/internal/tui/jobs"
	"noused/internal/tui/settings"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/google/uuid"

	"noused/internal/client"
	"noused/internal/client/follow"
)

// job is a command to be done beside the screen.
type job struct {
	name string
	do   func(context.Context, slash.Place) slash.Outcome
}

// goOn does what waited, if nothing is in its way any more.
func (ob *outbox) goOn() {
	held := ob.held
	ob.held = nil
	for _, j := range held {
		ob.do(j.name, j.do) // or holds it again
	}
	ob.sendNext()
}

// stay gives back what was meant for a session that is not shown.
func (ob *outbox) stay() {
	ob.giveBackOthers()
	for _, j := range ob.held {
		ob.talk.Notice("error", "/"+j.name+" was not done: it was meant for another session")
	}
	ob.held = nil
}

// giveBack puts the texts that are not on their way into the input again, and tells whether there
// was one, and whether a run was to be aborted.
func (ob *outbox) giveBack() (text, abort bool) {
	return ob.giveBackIf(func(slash.Unsent) bool { return true })
}

// giveBackOthers does that with what is meant for another session than the one that is shown, or
// about to be.
func (ob *outbox) giveBackOthers() {
	shown := ob.state.SessionID
	if ob.goal != nil {
		shown = *ob.goal
	}
	text, abort := ob.giveBackIf(func(u slash.Unsent) bool {
		return u.Behind > 0 || u.Session != "" && u.Session != shown
	})
	if text {
		ob.talk.Notice("info", "what was meant for another session is in the input")
	}
	if abort {
		ob.talk.Notice("error", "nothing was aborted: that was meant for another session")
	}
}

func (ob *outbox) giveBackIf(so func(slash.Unsent) bool) (text, abort bool) {
	going := 0
	if ob.sending {
		going = 1
	}
	var back []slash.Unsent
	stays := ob.unsent[:going:going]
	for _, u := range ob.unsent[going:] {
		if !so(u) {
			stays = append(stays, u)
			continue
		}
		back = append(back, u)
		text, abort = text || u.Text != "", abort || u.Text == ""
	}
	ob.unsent = stays
	ob.written(back)
	return text, abort
}

// written puts texts that were not sent into the input again. The first one may have arrived.
func (ob *outbox) written(back []slash.Unsent) {
	var texts []string
	var images []slash.Image
	for _, u := range back {
		if u.Text == "" {
			continue
		}
		if len(texts) == 0 {
			ob.retry = u
		}
		texts, images = append(texts, u.Text), append(images, u.Images...)
	}
	if text := slash.AsWritten(back); text != "" {
		ob.input.Images = append(images, ob.input.Images...)
		ob.input.Prepend(text)
		return
	}
	asWritten := len(back) > 0 && (back[0].Skill != "" || back[0].Call)
	ob.input.Images = append(images, ob.input.Images...)
	if asWritten {
		ob.input.Prepend(strings.Join(texts, "\n\n"))
		return
	}
	ob.input.Before(texts...)
}

// moving tells whether another session is about to be shown, or another part of
// this one; in order tells whether a text that is sent now finds things as the
// commands before it left them.
func (ob *outbox) moving() bool {
	return ob.goal != nil || slices.ContainsFunc(ob.working, func(name string) bool { return slash.Named(name).Moves })
}

func (ob *outbox) inOrder() bool {
	return !ob.moving() && !slices.ContainsFunc(ob.working, func(name string) bool { return slash.Named(name).First })
}

// do runs a command beside the screen, in the session that is shown or about to
// be.
func (ob *outbox) do(name string, f func(context.Context, slash.Place) slash.Outcome) {
	if ob.moving() {
		ob.held = append(ob.held, job{name, f})
		return
	}
	ob.working = append(ob.working, name)
	ob.keep(ob.place(), func(ctx context.Context, p slash.Place) tea.Msg {
		return finished{p, f(ctx, p).Of(name)}
	})
}

// finish shows what a command came to.
func (m *model) finish(f finished) tea.Cmd {
	o := f.Outcome
	if f.at.Link != m.link {
		delete(m.shells, o.Shell)
		m.finishedElsewhere(f)
		return nil
	}
	if i := slices.Index(m.working, o.Name); i >= 0 {
		m.working = slices.Delete(m.working, i, i+1)
	}
	moves := slash.Named(o.Name).Moves
	if moves && o.Follow != nil {
		m.leadsTo(*o.Follow)
	}
	cmd := m.apply(o)
	if moves && o.Follow == nil { // it failed, or shows a list
		m.stay()
	}
	m.goOn()
	return cmd
}

func (m *model) apply(o slash.Outcome) tea.Cmd {
	if errors.Is(o.Err, context.Canceled) && m.jobs.Ctx.Err() != nil {
		return nil
	}
	if o.Err != nil {
		m.talk.Notice("error", slash.Describe(o.Err))
		m.talk.End()
	}
	m.shellEnded(o)
	if o.Edit != nil && o.Edit.Session == m.state.SessionID {
		m.rewrite = o.Edit
	}
	if o.Text != "" {
		m.input.Before(o.Text)
	}
	m.input.Before(o.Back...)
	if o.Sent != "" {
		m.ours = append(m.ours, o.Sent)
		m.ours = m.ours[max(0, len(m.ours)-maxUnsent):]
	}
	if o.LastLine != "" {
		m.lastLine, m.counting = o.LastLine, ""
	}
	switch {
	case o.Site != nil:
		m.move(m.siteAt(o.Site), *o.Follow)
	case o.Follow != nil:
		m.follow(*o.Follow)
		if o.Info != "" {
			m.notices = append(m.notices, o.Info)
		}
	case o.Stays:
		m.talk.End()
	case o.Info != "":
		m.talk.Notice("info", o.Info)
		m.talk.End()
	}
	if o.Follow == nil && o.Err == nil && m.known {
		m.refresh()
	}
	switch {
	case o.Quit:
		return tea.Quit
	case o.Find != nil:
		m.openFind(*o.Find)
	case o.Copy:
		if text := cmp.Or(m.talk.Focused(), m.talk.LastAnswer()); text != "" {
			return m.copyText(text)
		}
		m.talk.Notice("info", "there is no answer to copy yet")
	case o.Plan != nil || o.DoPlan:
		m.applyPlan(o)
	case o.Palette:
		m.open(newPalette(m))
	case o.Help:
		m.open(newHelp(m))
	case o.Board:
		m.openBoard()
	case o.Changes:
		m.openChanges()
	case o.Show != nil:
		m.open(newChooser(m, o.Show))
	case o.Theme != "":
		m.setTheme(o.Theme)
		m.rememberLook(func(r *settings.Remembered) { r.Theme = o.Theme })
	case o.Mouse:
		m.setMouse(!m.mouse)
		m.rememberLook(func(r *settings.Remembered) { r.Mouse = new(m.mouse) })
		m.talk.Notice("info", map[bool]string{
			true:  "the mouse is nous's: with Shift held it selects text",
			false: "the mouse is the terminal's",
		}[m.mouse])
	case o.Start:
		m.startDaemon()
	case o.SetUp:
		return m.setUp()
	case o.Images != nil:
		m.input.Images = slash.Attached(m.input.Images, o.Images)
	}
	return nil
}

// resend says that a text whose connection was lost may go again, as the same.
type resend struct{}

// cutOff tells whether the connection to another machine is lost. What is written
// then is sent when it is back.
func (ds *daemons) cutOff() bool {
	return ds.opts.Host != "" && ds.known && ds.offline != nil && !ds.offline.NoDaemon
}

// submit sends a text, or an abort, behind those that are being sent already,
// and behind the commands that decide where a text goes and what happens to it.
func (ob *outbox) submit(u slash.Unsent) {
	if u.Text != "" {
		if was := ob.retry; was.Text == u.Text && was.Skill == u.Skill && was.Call == u.Call &&
			was.FollowUp == u.FollowUp && was.As == u.As && slices.Equal(was.Images, u.Images) {
			u.Key = was.Key
		} else {
			u.Key = uuid.NewString()
		}
	}
	u.Session, u.Behind = ob.meant()
	ob.unsent = append(ob.unsent, u)
	ob.sendNext()
}

// meant is the session that is shown, or about to be: what is written now is for it. It is not known
// where commands have to be done that lead to it.
func (ob *outbox) meant() (session string, behind int) {
	for _, name := range ob.working {
		if slash.Named(name).Moves {
			behind++
		}
	}
	for _, j := range ob.held {
		if slash.Named(j.name).Moves {
			behind++
		}
	}
	switch {
	case behind > 0:
		return "", behind
	case ob.goal != nil:
		return *ob.goal, 0
	}
	return ob.state.SessionID, 0
}

// leadsTo notes which session the first of those commands shows.
func (ob *outbox) leadsTo(session string) {
	for i := range ob.unsent {
		u := &ob.unsent[i]
		if u.Behind == 1 {
			u.Session = session
		}
		u.Behind = max(u.Behind-1, 0)
	}
}

// secondTry is what tries the run again that the model's provider has failed: the text that it
// had nothing for, with its images, or a word to go on with the work that was begun. Why is nil
// where there is nothing to try.
func (m *model) secondTry() (u slash.Unsent, why *protocol.RunError) {
	if !m.known || m.offline != nil || m.running() || m.approval.ID() != "" || len(m.unsent)+len(m.working) > 0 ||
		m.rewrite != nil || len(m.input.Images) > 0 {
		return u, nil
	}
	u.As = m.sentAs()
	if last := m.state.LastRun; last != nil && last.As != "" {
		u.As = last.As
	}
	said, why := m.talk.Failed()
	if said == nil {
		u.Text = "Continue."
		return u, why
	}
	u.Text = said.Text.String()
	for _, a := range said.Attachments {
		u.Images = append(u.Images, slash.Image{Path: a.Path, Name: a.Name})
	}
	return u, why
}

func (ob *outbox) sendNext() {
	if !ob.moving() {
		ob.giveBackOthers()
	}
	if ob.sending || len(ob.unsent) == 0 || !ob.inOrder() || ob.cutOff() {
		return
	}
	ob.sending = true
	u := ob.unsent[0]
	ob.keep(ob.place(), func(ctx context.Context, p slash.Place) tea.Msg {
		u, err := u.Written(ctx, p)
		switch {
		case err != nil:
			return answered{p, slash.Failed(err)}
		case u.Text == "":
			return answered{p, slash.Abort(ctx, p)}
		case u.FollowUp:
			return answered{p, slash.QueueFollowUp(ctx, p, u)}
		default:
			return answered{p, slash.Say(ctx, p, u)}
		}
	})
}

// answer goes on with the next text; when one was refused, those behind it come
// back, too, rather than being said in the wrong place.
func (m *model) answer(a answered) tea.Cmd {
	o := a.Outcome
	if a.at.Link != m.link {
		m.answeredElsewhere(a)
		return nil
	}
	was := m.unsent[0]
	if m.opts.Host != "" && (m.offline == nil || m.cutOff()) && was.Text != "" &&
		(errors.Is(o.Err, follow.ErrOffline) || errors.Is(o.Err, client.ErrLost)) {
		m.sending = false
		m.jobs.Start(func(ctx context.Context) tea.Msg { // until then it is known that there is no connection
			jobs.Pause(ctx, refreshEvery)
			return resend{}
		})
		return nil
	}
	m.unsent, m.sending, m.retry = m.unsent[1:], false, slash.Unsent{}
	if i := slices.Index(m.heard, was.Text); i >= 0 {
		m.heard = slices.Delete(m.heard, i, i+1)
	} else if o.Err == nil && was.Text != "" && m.lacks != nil && m.running() {
		m.waiting = append(m.waiting, was.Text)
	}
	if o.Err != nil && was.Text != "" {
		m.unsent, o.Text = append([]slash.Unsent{was}, m.unsent...), ""
		m.giveBack()
		if a.at.State.SessionID != m.state.SessionID {
			m.astray = m.state.SessionID
		}
	}
	m.sendNext()
	return m.apply(o)
}

// newestQueued is the id of the text that waits and was sent last, as far as
// this screen knows: of its own, else the one that is delivered last. It is ""
// where none waits, or the core does not name them.
func (ds *daemons) newestQueued() string {
	waits := ds.state.Queued.Inputs
	for _, id := range slices.Backward(ds.ours) {
		if slices.ContainsFunc(waits, func(in protocol.QueuedInput) bool { return in.InputID == id }) {
			return id
		}
	}
	if len(waits) == 0 {
		return ""
	}
	return waits[len(waits)-1].InputID
}

// takeBack takes the newest text that waits back into the input, which is empty,
// and tells whether there is one.
func (m *model) takeBack() bool {
	id := m.newestQueued()
	lacks := slash.Refusal(m.link, protocol.Withdraw, protocol.WithdrawParams{})
	switch {
	case slices.Contains(m.working, "take-back"):
	case id != "":
		m.do("take-back", func(ctx context.Context, p slash.Place) slash.Outcome { return slash.Withdraw(ctx, p, id) })
	case m.state.PendingCounts.Steer+m.state.PendingCounts.FollowUp > 0 && lacks != nil:
		m.talk.Notice("info", slash.Explain(lacks, "to take a queued text back").Error()+"; "+
			m.keyed("stop", "ends the run and gives back all"))
		return false
	default:
		return false
	}
	return true
}

// updateConnection takes in what the daemon that is shown says, and what was sent to it came to.
func (m *model) updateConnection(msg tea.Msg) (cmd tea.Cmd, mine bool) {
	switch msg := msg.(type) {
	case said:
		if msg.link == m.link {
			cmd = m.heed(msg.Update)
		}
	case finished:
		cmd = m.finish(msg)
	case answered:
		cmd = m.answer(msg)
	case refreshed:
		m.refreshed(msg)
	case offered:
		m.offer.service = bool(msg)
	case started:
		cmd = m.started(msg)
	case approved:
		m.approved(msg)
	case resend:
		m.sendNext()
	default:
		return nil, false
	}
	return cmd, true
}

package tui

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// Several daemons: one is shown, and the others are listened to.

const (
	longestRest = 4 * time.Second // between tries to reach a daemon that is away
	maxAsked    = 1000            // approvals that are kept of a daemon that is not shown
	maxAskedOf  = 4 << 20         // bytes of what they are about, of all of them
)

// site is a daemon that can be shown.
type site struct {
	opts    *Options // with it as the one that is shown
	index   int      // among the model's
	watched bool     // its events are
	away    error    // why it could not be reached last; nil: it could, or nobody has tried
	later   bool     // it is asked again in a while

	// While another one is shown:
	asked []protocol.Approval // its open approvals
	heard int                 // how often one was raised or answered
}

// away says that a site cannot be reached, and why, counted what approvals are open there.
type (
	away struct {
		site *site
		err  error
	}
	counted struct {
		site  *site
		heard int // of the site when it was asked
		list  []protocol.Approval
		err   error
	}
)

// former is a text on its way to a daemon that is shown no more.
type former struct {
	link *follow.Session
	host string
	slash.Unsent
}

func sitesOf(o *Options) []*site {
	all := []*site{{opts: o}}
	for i, s := range o.Others {
		own := *o
		own.Site, own.Session, own.Find = s, "", nil
		all = append(all, &site{opts: &own, index: i + 1})
	}
	return all
}

// key names a session of a site; that of the only one is its id.
func (ds *daemons) key(s *site, id string) string {
	if len(ds.sites) == 1 {
		return id
	}
	return strconv.Itoa(s.index) + " " + id
}

// of is the session that a key names.
func (ds *daemons) of(key string) (s *site, id string) {
	if index, id, found := strings.Cut(key, " "); len(ds.sites) > 1 && found {
		if i, err := strconv.Atoi(index); err == nil && i < len(ds.sites) {
			return ds.sites[i], id
		}
	}
	return ds.site, key
}

// siteAt is the one of that daemon.
func (ds *daemons) siteAt(at *Site) *site {
	i := slices.IndexFunc(ds.sites, func(s *site) bool { return &s.opts.Site == at })
	return ds.sites[i]
}

// at is where a job works that is about a site.
func (ds *daemons) at(s *site) slash.Place {
	if s == ds.site {
		return ds.place()
	}
	return s.opts.place()
}

// lost is why a site cannot be reached; nil: it can, or that is not known.
func (ds *daemons) lost(s *site) error {
	switch {
	case s != ds.site:
		return s.away
	case ds.offline != nil:
		return ds.offline.Err
	}
	return nil
}

// why is lost as people read it, in a line; "" is nil.
func (ds *daemons) why(s *site) string {
	err := ds.lost(s)
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(slash.Describe(err), s.opts.Host+": ")
}

// keep starts a job and keeps its connection until it is done, whatever daemon is
// shown meanwhile.
func (ds *daemons) keep(p slash.Place, f func(context.Context, slash.Place) tea.Msg) {
	if p.Busy != nil {
		p.Busy.Add(1)
	}
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		if p.Busy != nil {
			defer p.Busy.Done()
		}
		return f(ctx, p)
	})
}

// tellAll tells what happens on a stream until ctx ends. paced: a daemon that stays away
// is tried less and less often.
func tellAll(ctx context.Context, s *follow.Stream, paced bool, tell func(follow.Update)) {
	rest := time.Duration(0)
	for {
		h, err := s.Next(ctx)
		if err != nil {
			return
		}
		tell(h)
		if _, off := h.(follow.Disconnected); !off || !paced {
			rest = 0
			continue
		}
		if rest > 0 && !jobs.Pause(ctx, rest) {
			return
		}
		rest = min(max(2*rest, refreshEvery), longestRest)
	}
}

// move shows a session of a site. What is on its way to the daemon that was shown
// arrives there; what is not is back in the input.
func (m *model) move(to *site, id string) {
	if to == m.site {
		m.follow(id)
		return
	}
	m.leave()
	old := m.site
	if m.goal == nil { // the state is that of the daemon that was shown
		old.asked = slices.Clone(m.state.PendingApprovals)
	}
	old.away = m.lost(old)
	m.site, m.opts, m.daemonView = to, to.opts, daemonView{}
	m.find, m.editing, m.attention.unseen = nil, false, false
	m.input.Menu.Close()
	m.link, m.busy = follow.Open(to.opts.Daemon, id, nil, to.opts.Instead), new(sync.WaitGroup)
	m.goal = &id
	m.listen(m.link)
	m.recount(old)
}

// leave ends the connection to the daemon that is shown, once what is being done over it
// is done.
func (ob *outbox) leave() {
	host := ob.opts.Host
	if ob.sending {
		ob.former = append(ob.former, former{ob.link, host, ob.unsent[0]})
		ob.unsent, ob.sending = ob.unsent[1:], false
	}
	ob.talk.Clear()
	text, abort := ob.giveBack()
	ob.stay()
	if text {
		ob.addNotice("info", "what was not sent to "+host+" is in the input")
	}
	if abort {
		ob.addNotice("error", "nothing was aborted: "+host+" has not been told")
	}
	aside := ob.working[:0]
	for _, name := range ob.working {
		if strings.HasPrefix(name, "bash") { // Esc ends it, and nothing waits for it
			aside = append(aside, "bash-aside")
		}
	}
	ob.working = aside
	link, busy := ob.link, ob.busy
	ob.jobs.Start(func(context.Context) tea.Msg {
		busy.Wait()
		link.Close()
		return nil
	})
}

// addNotice shows a note, and again when another session is.
func (ob *outbox) addNotice(kind, text string) {
	ob.talk.Notice(kind, text)
	ob.notices = append(ob.notices, text)
}

// answeredElsewhere takes in what happened to a text for a daemon that is shown no more.
func (ob *outbox) answeredElsewhere(a answered) {
	for i, f := range ob.former {
		if f.link != a.at.Link {
			continue
		}
		ob.former = append(ob.former[:i:i], ob.former[i+1:]...)
		switch {
		case a.Err == nil:
		case f.Text == "":
			ob.talk.Notice("error", f.host+": nothing was aborted: "+slash.Describe(a.Err))
		default:
			ob.written([]slash.Unsent{f.Unsent})
			ob.talk.Notice("error", f.host+": "+slash.Describe(a.Err)+"; the text is in the input")
		}
		break
	}
	ob.input.Before(a.Back...)
}

// finishedElsewhere takes in how a command ended of a daemon that is shown no more.
func (ob *outbox) finishedElsewhere(f finished) {
	for i, name := range ob.working {
		if name == "bash-aside" && strings.HasPrefix(f.Name, "bash") {
			ob.working = append(ob.working[:i:i], ob.working[i+1:]...)
			break
		}
	}
	if f.Text != "" {
		ob.input.Before(f.Text)
	}
	ob.input.Before(f.Back...)
	host := f.at.Site.Host + ": "
	switch {
	case f.Err != nil && ob.jobs.Ctx.Err() == nil:
		ob.talk.Notice("error", host+slash.Describe(f.Err))
	case f.Follow != nil:
		ob.talk.Notice("info", host+"/"+f.Name+" is done; its session is among the others")
	case f.Info != "":
		ob.talk.Notice("info", host+f.Info)
	}
}

// away notes that a site cannot be reached.
func (m *model) away(a away) {
	a.site.away = a.err
	m.over.changed(m, a.site, false)
}

// siteReached notes that a site can be reached.
func (m *model) siteReached(s *site) {
	s.away, s.later = nil, false
	m.recount(s)
}

// askAgain has a site asked that has not answered, unless it is away by now.
func (m *model) askAgain(s *site) {
	if s.later = false; s.away == nil {
		m.recount(s)
	}
}

// recount asks what waits in the sessions of a site.
func (m *model) recount(s *site) {
	if s.away == nil {
		m.over.changed(m, s, true)
		if m.board != nil {
			m.board.connected(s)
		}
	}
	if s == m.site {
		if m.known && m.offline == nil {
			m.refresh()
		}
		return
	}
	heard := s.heard
	m.keep(m.at(s), func(ctx context.Context, p slash.Place) tea.Msg {
		state, err := slash.Ask(ctx, p, protocol.GetState, protocol.GetStateParams{Daemon: true})
		return counted{s, heard, state.PendingApprovals, err}
	})
}

func (m *model) counted(c counted) {
	switch {
	case c.site == m.site:
	case c.err != nil:
		m.later(c.site, c.err)
	case c.heard != c.site.heard: // an event was faster: what it told may be newer
		m.recount(c.site)
	default:
		c.site.asked = c.list
		m.boundAsked()
	}
}

// later has a site that is not away, and has not answered, asked again in a while.
func (ds *daemons) later(s *site, err error) {
	var refused *protocol.Error
	if s.later || s.away != nil || errors.As(err, &refused) || errors.Is(err, client.ErrUnsupported) {
		return
	}
	s.later = true
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		if !jobs.Pause(ctx, longestRest) {
			return nil
		}
		return unanswered{s}
	})
}

// happenedAt keeps the approvals of other sessions up to date.
func (m *model) happenedAt(s *site, ev protocol.Event) {
	m.over.changed(m, s, true)
	e, ok := ev.(protocol.Status)
	switch {
	case !ok:
	case s != m.site:
		state := protocol.State{PendingApprovals: s.asked}
		state.PendingApprovals = approval.Pending(state.PendingApprovals, e)
		s.asked = state.PendingApprovals
		s.heard++
		m.boundAsked()
	case e.SessionID != m.state.SessionID:
		m.recount(s)
	}
}

// boundAsked shortens approvals of daemons that are not shown, as daemons do it: to open
// the session shows them whole.
func (ds *daemons) boundAsked() {
	size := 0
	for _, s := range ds.sites {
		if s == ds.site {
			continue
		}
		s.asked = s.asked[:min(len(s.asked), maxAsked)]
		for i := range s.asked {
			a := &s.asked[i]
			if size += len(a.Arguments) + len(a.Diff) + len(a.Schema); size > maxAskedOf {
				a.Arguments, a.Diff, a.Schema, a.Shortened = nil, "", nil, true
			}
		}
	}
}

// asking is an approval of a session that is not shown.
type asking struct {
	site *site
	protocol.Approval
}

// elsewhere are the approvals of other sessions: of the daemon that is shown, then of the
// others.
func (ds *daemons) elsewhere() (all []asking) {
	for _, a := range approval.Elsewhere(ds.state) {
		all = append(all, asking{ds.site, a})
	}
	for i := range ds.sites[1:] {
		s := ds.sites[(ds.site.index+1+i)%len(ds.sites)]
		for _, a := range s.asked {
			all = append(all, asking{s, a})
		}
	}
	return all
}

// updateSites takes in what is heard of all daemons.
func (m *model) updateSites(msg tea.Msg) (cmd tea.Cmd, mine bool) {
	switch msg := msg.(type) {
	case unheard:
		m.siteReached(msg.site)
	case unanswered:
		m.askAgain(msg.site)
	case away:
		m.away(msg)
	case counted:
		m.counted(msg)
	case happened:
		m.happened(msg)
	case burstOver:
		cmd = m.ring()
	default:
		return nil, false
	}
	return cmd, true
}

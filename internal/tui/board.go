package tui

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/board"
	"noused/internal/tui/pick"
)

const (
	// relistEvery is how often all is listed again: no event reports a session
	// that was made or deleted. The ages are renewed with it.
	relistEvery = 30 * time.Second
	workTick    = time.Second // while something works
)

// What waits for the screen, at most; with more it is all listed again.
const (
	maxBoardEvents = 4096
	maxBoardBytes  = 8 << 20
)

// boardTypes are the events that change the board.
var boardTypes = []string{
	"agent_start", "agent_end", "turn_start", "message_start", "message_update", "message_end",
	"tool_execution_start", "tool_execution_end", "status",
}

// boardView is the board as the screen shows it: a box of an overlay, and what
// keeps it up to date while it is open.
type boardView struct {
	*board.Board
	m       *model
	cancel  context.CancelFunc
	feed    *boardFeed
	choice  board.Choice
	daemons []*boardDaemon // of the model's sites
	preview bool           // one is on its way
	retry   struct {
		board.Choice
		key string
	}
}

// boardDaemon is what the board asks of a daemon.
type boardDaemon struct {
	*site
	host    string // its name on the board, "" where it is the only one
	listing bool   // all are being listed
	again   bool   // and have to be once more
	lost    bool   // something was asked for in vain: there was no connection
	asked   map[string]bool
	lists   error  // why it lists no sessions, or nil
	note    string // what it cannot tell
}

// boardTold is what a job of the board has to tell it, in the screen's goroutine.
type boardTold func()

// openBoard shows the board over the conversation.
func (m *model) openBoard() {
	ctx, cancel := context.WithCancel(m.jobs.Ctx)
	key, _, _ := strings.Cut(m.keys.Shown("answer"), ", ")
	several := len(m.sites) > 1
	look := board.Look{Theme: m.theme, Home: m.opts.home(), Here: m.state.Workdir, Key: key}
	if several {
		look.Host = m.opts.Host
	}
	v := &boardView{Board: board.New(look), m: m, cancel: cancel, feed: newBoardFeed(len(m.sites))}
	m.board = v
	m.open(&overlay{box: v, board: v, chosen: v.chose})
	for i, s := range m.sites {
		d := &boardDaemon{site: s, asked: map[string]bool{}}
		if several {
			d.host = s.opts.Host
		}
		v.daemons = append(v.daemons, d)
		if s != m.site || m.known {
			v.list(d) // to be seen at once; once events come, all is listed again
		}
		m.jobs.Start(func(context.Context) tea.Msg {
			v.feed.pump(ctx, i, several, follow.NewStream(s.opts.Daemon,
				follow.Options{Filter: protocol.SubscribeParams{Types: boardTypes}}))
			return nil
		})
	}
	m.jobs.Start(func(context.Context) tea.Msg {
		v.feed.wake(ctx, func() { m.jobs.Send(boardTold(v.woke)) }, func() { m.jobs.Send(boardTold(v.ticked)) })
		return nil
	})
}

// shownBoard is the board, if it is on the screen.
func (m *model) shownBoard() *boardView {
	if m.over == nil {
		return nil
	}
	return m.over.board
}

// The box of the overlay.

// Update is box.
func (v *boardView) Update(msg tea.Msg) (pick.Choice, bool) {
	v.choice = v.Board.Update(msg)
	done := v.choice.Action == board.Leave || v.choice.Action == board.Open
	return pick.Choice{Action: pick.Action(v.choice.Action), IDs: []string{v.choice.ID.Session}}, done
}

// View is box.
func (v *boardView) View(width, height int) string {
	if len(v.daemons) == 1 {
		v.SetLink(v.m.boardLink())
	} else {
		for _, d := range v.daemons {
			v.SetAway(d.host, v.m.why(d.site))
		}
	}
	text := v.Board.View(width, height, v.m.opts.Now())
	v.askPreview()
	return text
}

// SetLook is box.
func (v *boardView) SetLook(l pick.Look) { v.SetTheme(l.Theme) }

func (m *model) boardLink() string {
	if m.offline == nil {
		return ""
	}
	parts := m.connection()
	return parts[0].text
}

// woke takes in what happened.
func (v *boardView) woke() {
	events, of := v.feed.takeEvents()
	for _, ev := range events {
		d := v.daemons[ev.from]
		if e, ok := ev.Event.Event.(protocol.Status); ok {
			v.m.askedElsewhere(d.site, e)
		}
		if id, unsure := v.Apply(d.host, ev.Event.Event, ev.At); unsure {
			v.askSession(d, id.Session)
		}
	}
	for i, news := range of {
		d := v.daemons[i]
		if news.relist {
			v.list(d)
		}
	}
	v.putShown()
	v.feed.moves(v.Moving())
}

// noted says what daemons cannot tell.
func (v *boardView) noted(d *boardDaemon, note string) {
	d.note = note
	var notes []string
	for _, d := range v.daemons {
		if d.note != "" {
			notes = append(notes, strings.TrimPrefix(d.host+": "+d.note, ": "))
		}
	}
	v.SetNote(strings.Join(notes, "; "))
}

// daemon is that of a host.
func (v *boardView) daemon(host string) *boardDaemon {
	i := slices.IndexFunc(v.daemons, func(d *boardDaemon) bool { return d.host == host })
	return v.daemons[i]
}

// id is how the board calls a session of a site.
func (v *boardView) id(s *site, session string) board.ID {
	return board.ID{Host: v.daemons[s.index].host, Session: session}
}

// isShown tells whether a session is the one behind the board.
func (v *boardView) isShown(id board.ID) bool { return id == v.id(v.m.site, v.m.state.SessionID) }

// ticked shows the board anew, and lists all again where that was long ago, or
// was in vain.
func (v *boardView) ticked() {
	if v.feed.due() {
		for _, d := range v.daemons {
			v.list(d)
		}
	}
}

// connected lists all of a site again, if that was in vain while there was no connection.
func (v *boardView) connected(s *site) {
	if d := v.daemons[s.index]; d.lost {
		d.lost = false
		v.list(d)
	}
}

// putShown puts the session that is shown on the board of a daemon that lists none.
func (v *boardView) putShown() {
	s, d := v.m.state, v.daemons[v.m.site.index]
	if d.lists == nil || s.SessionID == "" || v.Has(v.id(v.m.site, s.SessionID)) {
		return
	}
	info := protocol.SessionInfo{
		SessionID: s.SessionID, Title: s.Title, RunState: s.RunState, Model: s.Model,
		Workdir: s.Workdir,
	}
	v.Put(d.host, info)
}

// list asks for all sessions of a daemon, once at a time.
func (v *boardView) list(d *boardDaemon) {
	if d.lists != nil {
		return
	}
	if d.listing {
		d.again = true
		return
	}
	d.listing = true
	v.m.keep(v.m.at(d.site), func(ctx context.Context, p slash.Place) tea.Msg {
		list, more, err := slash.AllSessions(ctx, p)
		var gone map[string]bool
		if p.Site.Host == "" {
			gone = foldersGone(list)
		}
		return boardTold(func() { v.SetGone(gone); v.listed(d, list, more, err) })
	})
}

// foldersGone are the folders of sessions that are no more. One that cannot be
// looked at may be there.
func foldersGone(list []protocol.SessionInfo) map[string]bool {
	gone := map[string]bool{}
	for _, s := range list {
		if _, known := gone[s.Workdir]; !known && s.Workdir != "" {
			_, err := os.Stat(s.Workdir)
			gone[s.Workdir] = errors.Is(err, fs.ErrNotExist)
		}
	}
	return gone
}

func (v *boardView) listed(d *boardDaemon, list []protocol.SessionInfo, more bool, err error) {
	d.listing = false
	var wire *protocol.Error
	switch {
	case errors.Is(err, client.ErrUnsupported):
		d.lists = err
		v.noted(d, "an older core lists no sessions: here are the shown one, and those that speak")
		v.woke()
	case errors.As(err, &wire):
		v.Tell(strings.TrimPrefix(d.host+": "+slash.Describe(err), ": "), true)
	case err != nil: // told in the first line
		d.lost = true
	default:
		v.Load(d.host, list, more)
		v.noted(d, board.Lacking(list))
	}
	v.feed.moves(v.Moving())
	if d.again {
		d.again = false
		v.list(d)
	}
}

// askSession asks for one session that an event did not describe in full. Ids are in the
// order of their times: it is the first of those before the next id.
func (v *boardView) askSession(d *boardDaemon, id string) {
	if d.lists != nil {
		if !v.Has(v.id(d.site, id)) {
			v.Put(d.host, protocol.SessionInfo{SessionID: id})
		}
		return
	}
	if d.asked[id] || len(d.asked) > maxUnsent {
		return
	}
	d.asked[id] = true
	v.m.keep(v.m.at(d.site), func(ctx context.Context, p slash.Place) tea.Msg {
		r, err := slash.Ask(ctx, p, protocol.ListSessions, protocol.ListSessionsParams{Limit: new(1), Before: id + "-"})
		return boardTold(func() { v.answered(d, id, r.Sessions, err) })
	})
}

func (v *boardView) answered(d *boardDaemon, id string, list []protocol.SessionInfo, err error) {
	delete(d.asked, id)
	switch {
	case err != nil:
		d.lost = true
	case len(list) > 0 && list[0].SessionID == id:
		v.Put(d.host, list[0])
	default:
		v.Remove(v.id(d.site, id))
	}
	v.feed.moves(v.Moving())
}

// askPreview asks for the preview that is on the screen, one at a time.
func (v *boardView) askPreview() {
	if v.preview {
		return
	}
	id, ok := v.NeedsPreview()
	if !ok {
		return
	}
	v.preview = true
	v.m.keep(v.m.at(v.daemon(id.Host).site), func(ctx context.Context, p slash.Place) tea.Msg {
		jobs.Pause(ctx, typingPause)
		r, err := slash.Ask(ctx, p, protocol.GetMessages, protocol.GetMessagesParams{
			Scope: protocol.Scope{SessionID: id.Session},
			Limit: new(board.PreviewMessages),
		})
		return boardTold(func() {
			v.preview = false
			if err != nil {
				v.SetPreview(id, r, slash.Describe(err))
			} else {
				v.SetPreview(id, r, "")
			}
		})
	})
}

// chose carries out what the user wants.
func (v *boardView) chose(m *model, _ pick.Choice) tea.Cmd {
	c := v.choice
	switch at := v.daemon(c.ID.Host).site; {
	case c.Action == board.Answer:
		m.sendAnswer(at, c.Answer)
	case c.Action != board.Open:
		v.carryOut(c)
	case !v.isShown(c.ID) || m.goal != nil:
		m.move(at, c.ID.Session)
	}
	return nil
}

// tendBoard ends what keeps the board up to date, once it is not on the screen
// any more.
func (m *model) tendBoard() {
	if m.board != nil && m.board != m.shownBoard() {
		m.board.cancel()
		m.board = nil
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

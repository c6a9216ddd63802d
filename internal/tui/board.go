package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/uuid"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/board"
	"noused/internal/tui/pick"
)

const (
	boardPage  = 1000 // sessions of one list_sessions
	boardPages = 10   // at most
	// relistEvery is how often all is listed again: no event tells of a session
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
	listing bool // all are being listed
	again   bool // and have to be once more
	lost    bool // something was asked for in vain: there was no connection
	asked   map[string]bool
	older   bool
	preview bool // one is on its way
	retry   struct {
		board.Choice
		key string
	}
}

// boardTold is what a job of the board has to tell it, in the screen's goroutine.
type boardTold func()

// openBoard shows the board over the conversation.
func (m *model) openBoard() {
	ctx, cancel := context.WithCancel(m.jobs.ctx)
	key, _, _ := strings.Cut(m.keys.shown("answer"), ", ")
	look := board.Look{Theme: m.theme, Home: m.opts.home(), Here: m.state.Workdir, Key: key}
	v := &boardView{Board: board.New(look), m: m, cancel: cancel, asked: map[string]bool{}, feed: newBoardFeed()}
	m.board = v
	m.open(&overlay{box: v, board: v, chosen: v.chose})
	if m.known {
		v.list() // to be seen at once; once events come, all is listed again
	}
	m.jobs.start(func(context.Context) tea.Msg {
		v.feed.pump(ctx, follow.NewStream(m.opts.Daemon, follow.Options{Filter: protocol.SubscribeParams{Types: boardTypes}}))
		return nil
	})
	m.jobs.start(func(context.Context) tea.Msg {
		v.feed.wake(ctx, func() { m.jobs.send(boardTold(v.woke)) }, func() { m.jobs.send(boardTold(v.ticked)) })
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
	return pick.Choice{Action: pick.Action(v.choice.Action), IDs: []string{v.choice.ID}}, done
}

// View is box.
func (v *boardView) View(width, height int) string {
	v.SetLink(v.m.boardLink())
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
	events, relist, older := v.feed.take()
	for _, ev := range events {
		if e, ok := ev.Event.(protocol.Status); ok {
			v.m.askedElsewhere(e)
		}
		if id, unsure := v.Apply(ev.Event, ev.At); unsure {
			v.ask(id)
		}
	}
	if older && !v.older {
		v.older = true
		v.SetNote("an older core lists no sessions: here are the shown one, and those that speak")
	}
	v.putShown()
	if relist {
		v.list()
	}
	v.feed.moves(v.Moving())
}

// ticked shows the board anew, and lists all again where that was long ago, or
// was in vain.
func (v *boardView) ticked() {
	if v.feed.due() {
		v.list()
	}
}

// connected lists all again, if that was in vain while there was no connection.
func (v *boardView) connected() {
	if v.lost {
		v.lost = false
		v.list()
	}
}

// putShown puts the session that is shown on the board of a core that lists none.
func (v *boardView) putShown() {
	s := v.m.state
	if !v.older || s.SessionID == "" || v.Has(s.SessionID) {
		return
	}
	info := protocol.SessionInfo{SessionID: s.SessionID, Title: s.Title, RunState: s.RunState, Model: s.Model, Workdir: s.Workdir}
	v.Put(info)
}

// list asks for all sessions, once at a time.
func (v *boardView) list() {
	if v.older {
		return
	}
	if v.listing {
		v.again = true
		return
	}
	v.listing = true
	p := v.m.place()
	v.m.jobs.start(func(ctx context.Context) tea.Msg {
		list, more, err := allSessions(ctx, p)
		var gone map[string]bool
		if p.opts.Host == "" {
			gone = foldersGone(list)
		}
		return boardTold(func() { v.SetGone(gone); v.listed(list, more, err) })
	})
}

// allSessions lists them by pages. More: there are others.
func allSessions(ctx context.Context, p place) (all []protocol.SessionInfo, more bool, err error) {
	params := protocol.ListSessionsParams{Limit: new(boardPage)}
	for range boardPages {
		r, err := ask(ctx, p, protocol.ListSessions, params)
		if err != nil {
			return nil, false, err
		}
		all = append(all, r.Sessions...)
		if len(r.Sessions) < boardPage {
			return all, false, nil
		}
		params.Before = r.Sessions[len(r.Sessions)-1].SessionID
	}
	return all, true, nil
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

func (v *boardView) listed(list []protocol.SessionInfo, more bool, err error) {
	v.listing = false
	var wire *protocol.Error
	switch {
	case errors.Is(err, follow.ErrUnsupported):
		v.feed.isOlder()
		v.woke()
	case errors.As(err, &wire):
		v.Tell(describe(err), true)
	case err != nil: // told in the first line
		v.lost = true
	default:
		v.Load(list, more)
		v.SetNote(lacking(list))
	}
	v.feed.moves(v.Moving())
	if v.again {
		v.again = false
		v.list()
	}
}

// lacking says what a core that lists sessions does not say of them.
func lacking(list []protocol.SessionInfo) string {
	if len(list) == 0 || list[0].Workdir != "" {
		return ""
	}
	return "this older core says neither folders, nor what was read, nor how runs ended"
}

// ask asks for one session, of which an event did not say all. Ids are in the
// order of their times: it is the first of those before the next id.
func (v *boardView) ask(id string) {
	if v.older {
		if !v.Has(id) {
			v.Put(protocol.SessionInfo{SessionID: id})
		}
		return
	}
	if v.asked[id] || len(v.asked) > maxUnsent {
		return
	}
	v.asked[id] = true
	p := v.m.place()
	v.m.jobs.start(func(ctx context.Context) tea.Msg {
		r, err := ask(ctx, p, protocol.ListSessions, protocol.ListSessionsParams{Limit: new(1), Before: id + "-"})
		return boardTold(func() { v.answered(id, r.Sessions, err) })
	})
}

func (v *boardView) answered(id string, list []protocol.SessionInfo, err error) {
	delete(v.asked, id)
	switch {
	case err != nil:
		v.lost = true
	case len(list) > 0 && list[0].SessionID == id:
		v.Put(list[0])
	default:
		v.Remove(id)
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
	p := v.m.place()
	v.m.jobs.start(func(ctx context.Context) tea.Msg {
		pause(ctx, typingPause)
		r, err := ask(ctx, p, protocol.GetMessages, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}, Limit: new(board.PreviewMessages)})
		return boardTold(func() {
			v.preview = false
			if err != nil {
				v.SetPreview(id, r, describe(err))
			} else {
				v.SetPreview(id, r, "")
			}
		})
	})
}

// chose carries out what the user wants.
func (v *boardView) chose(m *model, _ pick.Choice) tea.Cmd {
	c := v.choice
	if c.Action == board.Answer {
		m.sendAnswer(c.Answer)
		return nil
	}
	if c.Action != board.Open {
		v.carryOut(c)
		return nil
	}
	if c.ID != m.state.SessionID || m.goal != nil {
		m.follow(c.ID)
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

// carryOut does what the user wants of a session, beside the screen.
func (v *boardView) carryOut(c board.Choice) {
	if v.older && c.ID != v.m.state.SessionID {
		v.Tell("this core is an older one: open the session first", true)
		v.Ask(c)
		return
	}
	p := v.m.place()
	p.state = protocol.State{SessionID: c.ID}
	if info, ok := v.Selected(); ok && info.SessionID == c.ID {
		p.state.RunState = info.RunState
	}
	key := v.key(c)
	v.m.jobs.start(func(ctx context.Context) tea.Msg {
		info, err := actOn(ctx, p, c, key)
		return boardTold(func() { v.did(c, info, err) })
	})
}

// key makes a second try to say a text the same as the first, should that have
// been accepted all the same.
func (v *boardView) key(c board.Choice) string {
	if v.retry.Choice != c || v.retry.key == "" {
		v.retry.Choice, v.retry.key = c, uuid.NewString()
	}
	return v.retry.key
}

func actOn(ctx context.Context, p place, c board.Choice, key string) (info string, err error) {
	switch c.Action {
	case board.Say:
		return "sent", say(ctx, p, unsent{text: c.Text, key: key}).err
	case board.Later:
		return "queued as a follow-up", queueFollowUp(ctx, p, unsent{text: c.Text, key: key}).err
	case board.Abort:
		r, err := ask(ctx, p, protocol.Abort, protocol.AbortParams{Scope: p.scope()})
		if err == nil && len(r.Discarded) > 0 {
			return "", undelivered(r.Discarded)
		}
		return "aborted", err
	case board.Rename:
		_, err := ask(ctx, p, protocol.SetTitle, protocol.SetTitleParams{Scope: p.scope(), Title: c.Text})
		return "renamed", err
	case board.Delete:
		_, err := ask(ctx, p, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: c.ID})
		return "deleted", err
	}
	return "", nil
}

func (v *boardView) did(c board.Choice, info string, err error) {
	var wire *protocol.Error
	var back undelivered
	switch {
	case errors.As(err, &wire) && wire.Code == protocol.SessionNotFound:
		v.Tell("the session was deleted elsewhere", true)
		v.Remove(c.ID)
		return
	case errors.As(err, &back):
		v.handBack(c, back)
		return
	case err != nil:
		v.Tell(describe(err), true)
		if c.Text != "" {
			v.Ask(c)
		}
		return
	}
	v.retry.key = ""
	v.Tell(info, false)
	if c.Action == board.Delete {
		v.Remove(c.ID)
		if c.ID == v.m.state.SessionID {
			v.m.notices = append(v.m.notices, "the session shown before was deleted")
			v.m.follow("")
		}
	}
}

// undelivered are the texts that an abort handed back.
type undelivered []protocol.DiscardedInput

func (u undelivered) Error() string { return "aborted; " + u.count() + " not delivered" }

func (u undelivered) count() string {
	if len(u) == 1 {
		return "a queued text was"
	}
	return fmt.Sprintf("%d queued texts were", len(u))
}

// handBack puts what an abort handed back where the user can have it again. The
// conversation that is shown has it already, in its input or among its notices.
// Of another session it goes into the line that is said to it, and stays in the
// conversation of this screen, should that line be left.
func (v *boardView) handBack(c board.Choice, texts undelivered) {
	if c.ID == v.m.state.SessionID {
		v.Tell(texts.Error()+": see the conversation", false)
		return
	}
	var all []string
	for _, d := range texts {
		all = append(all, d.Text)
		v.m.talk.Notice("warning", "not delivered to "+c.ID+": "+d.Text)
	}
	v.Tell(texts.Error()+": Enter says it again; it is in the conversation, too", false)
	v.Ask(board.Choice{Action: board.Say, ID: c.ID, Text: strings.Join(all, "\n\n")})
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// boardList are the sessions of a board that is printed.
type boardList []protocol.SessionInfo

func listBoard(ctx context.Context, p place) outcome {
	list, _, err := allSessions(ctx, p)
	if err != nil {
		return failed(explain(err, "to list its sessions"))
	}
	return outcome{show: boardList(list)}
}

// PrintBoard prints the board line by line: to pipes, and for screen readers.
func PrintBoard(w io.Writer, list []protocol.SessionInfo, here string) error {
	b := board.New(board.Look{Home: os.Getenv("HOME"), Here: here})
	b.Load(list, false)
	b.SetNote(lacking(list))
	for _, line := range b.Lines(time.Now()) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

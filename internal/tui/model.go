package tui

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/question"
	"noused/internal/tui/theme"
	"noused/internal/tui/transcript"
)

const (
	refreshEvery = 250 * time.Millisecond // between two looks at the state, at least
	tickEvery    = 100 * time.Millisecond // while something moves
	slowTick     = 500 * time.Millisecond // while only seconds are counted
	maxUnsent    = 100
)

// model is the screen.
type model struct {
	opts  *Options // of the site that is shown
	link  *follow.Session
	busy  *sync.WaitGroup // what is being done over link
	sites []*site         // all that can be shown
	site  *site           // that is
	jobs  *jobs
	crash error
	none  error // why the session that the user named cannot be shown
	stops stops
	lent  lent

	width, height int
	dark, color   bool // of the terminal
	background    background
	chosen        string // one of themes
	theme         theme.Theme
	mouse         bool        // is ours; else the terminal's
	arrows        atomic.Bool // not mouse, for the input
	focused       bool        // the terminal; true as long as it does not say otherwise
	reports       bool        // it says so

	config     config
	keys       keymap
	remembered remembered
	remembers  string // the file

	daemonView

	talk    *transcript.Transcript
	input   *input
	history *history
	menu    menu
	over    *overlay
	board   *boardView // on the screen

	question  *question.Panel // what the session waits for
	attention attention
	notices   []string // to be shown once the next Snapshot is
	find      *find    // nil: nothing is looked for

	images  []image  // that go with the next text
	unsent  []unsent // in the order they go in; see sending
	sending bool     // the first of unsent is on its way
	former  []former // on their way to daemons that are shown no more
	working []string // other commands that the daemon has not answered
	goal    *string  // the session that is to be shown, until it is
	held    []job    // commands that wait until it is

	endShell context.CancelFunc // of the shell line that was begun last

	ticking      bool
	forgetting   bool // a job waits for the end of a note
	frame        int
	questionRow  int    // of the lines below the conversation, where the question begins
	leaving      bool   // Ctrl+C was pressed once
	editing      bool   // Esc was, with nothing to abort
	answeredHere string // id of the question that was answered here last
}

// daemonView is what the daemon said that is shown, and what is known of it.
type daemonView struct {
	state   protocol.State
	lacks   error                // what the daemon has not, or nil
	known   bool                 // there was a Snapshot
	offline *follow.Disconnected // nil while connected
	since   time.Time            // when the run began; zero where nobody said
	tools   []tool               // that are running, in the order they began
	ours    []string             // ids of inputs sent from here
	waiting []string             // sent to the run of a daemon that hands nothing back
	heard   []string             // said by users in that run: one may be before its reply
	retry   unsent               // what was sent last and failed
	where   whereabouts
	offer   offer

	refreshing, again bool
}

type tool struct{ id, name string }

func newModel(o Options, l *follow.Session, j *jobs) *model {
	color := o.Getenv("NO_COLOR") == "" && o.Getenv("TERM") != "dumb"
	m := &model{
		opts: &o, link: l, busy: new(sync.WaitGroup), jobs: j, dark: true, color: color, width: 80, height: 24,
		input: newInput(), stops: make(stops, 1), focused: true,
	}
	m.talk = transcript.New(m.look())
	m.question = question.New(m.theme, o.home())
	m.sites = sitesOf(m.opts)
	m.site = m.sites[0]
	m.configure()
	var err error
	m.history, err = loadHistory(filepath.Join(stateDir(o.Getenv, "nous"), "history"))
	if err != nil {
		m.notices = append(m.notices, err.Error())
	}
	return m
}

func (m *model) look() transcript.Look {
	return transcript.Look{Width: m.width, Dark: m.isDark(), Color: m.isColored()}
}

func (m *model) isDark() bool { return m.dark && m.chosen != "light" || m.chosen == "dark" }

func (m *model) isColored() bool { return m.color && m.chosen != "none" }

// dress gives everything its styles and sizes.
func (m *model) dress() {
	m.theme = theme.New(m.isDark(), m.isColored())
	m.input.look(m.theme)
	m.input.resize(m.width, m.height*2/5)
	m.talk.SetLook(m.look())
	m.question.SetTheme(m.theme)
	if m.over != nil {
		m.over.box.SetLook(m.pickLook())
	}
}

// Messages of the jobs.
type (
	finished struct {
		at place
		outcome
	}
	answered struct { // to the first of unsent
		at place
		outcome
	}
	refreshed struct {
		link    *follow.Session
		session string
		state   protocol.State
		err     error
	}
	said struct { // by a link
		link *follow.Session
		follow.Update
	}
	ticked    struct{}
	forgotten struct{} // a note's time is over
)

// Init is called by bubbletea.
func (m *model) Init() tea.Cmd {
	if m.opts.Session != "" {
		m.goal = &m.opts.Session // the link has been told
	}
	m.listen(m.link)
	if len(m.sites) > 1 {
		for _, s := range m.sites {
			m.watch(s)
		}
	}
	if m.opts.Board {
		m.openBoard()
	}
	return m.askBackground()
}

// listen ends with the program, or with the link. While events stream it takes
// them a frame's worth at a time.
func (m *model) listen(link *follow.Session) {
	m.jobs.start(func(ctx context.Context) tea.Msg {
		for {
			select {
			case u, ok := <-link.Updates():
				if !ok {
					return nil
				}
				m.jobs.send(said{link, u})
				if _, streaming := u.(follow.Events); streaming && !pause(ctx, time.Second/framesPerSecond) {
					return nil
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// pause waits and tells whether it was not cut short.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Update is called by bubbletea.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := m.update(msg)
	m.tendBoard()
	m.markRead()
	m.tendQuestion()
	m.tick()
	m.forget()
	m.findMore()
	return m, cmd
}

// forget sees to it that notes go away by themselves.
func (m *model) forget() {
	end, ok := m.talk.NotesEnd()
	if m.forgetting || !ok {
		return
	}
	m.forgetting = true
	left := end.Sub(m.opts.Now())
	m.jobs.start(func(ctx context.Context) tea.Msg {
		if !pause(ctx, left) {
			return nil
		}
		return forgotten{}
	})
}

func (m *model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
		m.dress()
	case tea.BackgroundColorMsg:
		if m.dark != msg.IsDark() {
			m.dark = msg.IsDark()
			m.dress()
		}
		return m.backgroundAnswered()
	case noBackground:
		return m.backgroundAnswered()
	case tea.ColorProfileMsg:
		if m.color && msg.Profile <= colorprofile.ASCII {
			m.color = false
			m.dress()
		}
	case stopped:
		return m.suspend()
	case continued:
		return release(func() {})
	case tea.FocusMsg:
		m.reports = true
		m.lookedAt(true)
	case tea.BlurMsg:
		m.reports = true
		m.lookedAt(false)
	case tea.ResumeMsg:
		return m.resumed()
	case edited:
		return m.edited(msg)
	case wasSetUp:
		return m.setUpDone(msg)
	case tea.KeyPressMsg:
		return m.press(msg)
	case tea.PasteMsg:
		return m.paste(msg)
	case tea.MouseWheelMsg:
		return m.wheel(msg)
	case said:
		if msg.link == m.link {
			return m.heed(msg.Update)
		}
	case finished:
		return m.finish(msg)
	case answered:
		return m.answer(msg)
	case refreshed:
		m.refreshed(msg)
	case pasted:
		m.pasted(msg)
	case moreCommands:
		msg.show()
	case completed:
		m.menu.fill(msg)
	case offered:
		m.offer.service = bool(msg)
	case previewed:
		m.previewed(msg)
	case found:
		m.found(msg)
	case removed:
		m.removed(msg)
	case listed:
		m.listed(msg)
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
		return m.ring()
	case located:
		m.located(msg)
	case boardTold:
		msg()
	case started:
		return m.started(msg)
	case approved:
		m.approved(msg)
	case findOn:
		m.foundMore(msg)
	case resend:
		m.sendNext()
	case forgotten:
		m.forgetting = false
		m.talk.DropNotes(false, false)
	case ticked:
		m.ticking = false
		m.frame++
	case crashed:
		m.crash = msg.err
		return tea.Quit
	}
	return nil
}

// heed takes in what the link says, unless it is the end.
func (m *model) heed(u follow.Update) tea.Cmd {
	switch u := u.(type) {
	case follow.Broken:
		m.crash = u.Err
		return tea.Quit
	case follow.Refused:
		if m.opts.refused(u, m.known) {
			m.none = u.Err
			return tea.Quit
		}
	}
	m.told(u)
	return nil
}

// resumed draws on a terminal that somebody has just given back, who looks at it.
func (m *model) resumed() tea.Cmd {
	m.lookedAt(true)
	return tea.Sequence(tea.ClearScreen, m.askBackground())
}

func (m *model) place() place {
	return place{opts: m.opts, link: m.link, busy: m.busy, state: m.state}
}

// refresh asks for the state, not more often than every refreshEvery, and again
// if something happens meanwhile.
func (m *model) refresh() {
	if m.refreshing {
		m.again = true
		return
	}
	m.refreshing = true
	p := m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		if !pause(ctx, refreshEvery) {
			return nil
		}
		s, err := ask(ctx, p, protocol.GetState, protocol.GetStateParams{Scope: p.scope()})
		return refreshed{p.link, p.state.SessionID, s, err}
	})
}

func (m *model) refreshed(r refreshed) {
	if r.link != m.link {
		return
	}
	m.refreshing = false
	if r.err == nil && cmp.Or(r.state.SessionID, r.session) == m.state.SessionID {
		if !m.again { // else it is old already
			m.setState(r.state)
		} else {
			m.state.Queued, m.state.Usage = r.state.Queued, r.state.Usage
		}
	}
	if m.again {
		m.again = false
		m.refresh()
	}
}

// tick keeps the clock going while something on the screen moves by itself.
func (m *model) tick() {
	every := tickEvery
	switch {
	case m.ticking, m.shownBoard() != nil && m.offline == nil: // the board has a clock of its own
		return
	case m.offline != nil:
		every = slowTick
	case m.question.ID() != "" && len(m.working) == 0 && len(m.unsent) == 0: // which may wait for days
		return
	case !m.running() && len(m.working) == 0 && len(m.unsent) == 0 && !m.talk.Animating() && m.known:
		return
	}
	m.ticking = true
	m.jobs.start(func(ctx context.Context) tea.Msg {
		if !pause(ctx, every) {
			return nil
		}
		return ticked{}
	})
}

func (m *model) running() bool { return m.known && m.place().running() }

// title is what the session is called.
func (m *model) title() string {
	if m.state.Title != "" {
		return cell.Line(m.state.Title, 200)
	}
	return m.state.SessionID
}

func panicError(r any) error { return fmt.Errorf("panic: %v\n%s", r, debug.Stack()) }

// noDaemon tells whether the screen has nothing to show because nobody listens.
func (m *model) noDaemon() bool {
	return !m.known && m.offline != nil && m.offline.NoDaemon
}

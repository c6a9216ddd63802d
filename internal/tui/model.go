package tui

import (
	"cmp"
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"noused/internal/tui/composer"
	"noused/internal/tui/jobs"
	"noused/internal/tui/keymap"
	"noused/internal/tui/settings"
	"noused/internal/tui/slash"
	"noused/internal/tui/terminal"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/approvals"
	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
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
	outbox
	appearance
	device

	crash error
	none  error // why the session that the user named cannot be shown

	config     settings.Config
	remembered settings.Remembered
	remembers  string // the file

	over  *overlay
	board *boardView // on the screen

	children *childWatch
	marks    map[string]transcript.Mark // of conversations that were left for a child, by key
	returns  string                     // the one that is come back to

	changesOf string // the session whose changes are shown once it is

	approval  *approvals.Panel // what the session waits for
	attention attention
	find      *find // nil: nothing is looked for

	shells   map[string]*shellLine // those that run, by OutputID
	endShell context.CancelFunc    // of the one that was begun last

	ticking      bool
	forgetting   bool // a job waits for the end of a note
	frame        int
	approvalRow  int    // of the lines below the conversation, where the approval begins
	leaving      bool   // Ctrl+C was pressed once
	editing      bool   // Esc was, with nothing to abort
	answeredHere string // id of the approval that was answered here last
}

// outbox is what is on its way to daemons, and where it is written and what happened to it is
// told. What was not accepted goes back into the input.
type outbox struct {
	daemons
	talk    *transcript.Transcript
	input   *composer.Composer
	notices []string // to be shown once the next Snapshot is

	unsent   []slash.Unsent            // in the order they go in; see sending
	sending  bool                      // the first of unsent is on its way
	retry    slash.Unsent              // what came back last: sent unchanged it is the same, in case it did arrive
	former   []former                  // on their way to daemons that are shown no more
	working  []string                  // other commands that the daemon has not answered
	comments map[string]*pick.Comments // on changes, which were not sent, by the key of a session
	plans    planMode
	letters  letters
	goal     *string // the session that is to be shown, until it is
	astray   string  // the session that took the place of the one that the input was written for
	held     []job   // commands that wait until it is
}

// daemons are those that can be shown, and what is known of the one that is.
type daemons struct {
	opts  *Options // of the site that is shown
	link  *follow.Session
	busy  *sync.WaitGroup // what is being done over link
	sites []*site         // all that can be shown
	site  *site           // that is
	jobs  *jobs.Jobs

	daemonView
}

// appearance is how everything is drawn.
type appearance struct {
	width, height int
	dark, color   bool   // of the terminal
	chosen        string // one of themes
	theme         theme.Theme
	keys          keymap.Map
}

// device is what is known of the terminal, and who has it.
type device struct {
	stops      terminal.Stops
	lent       terminal.Lent
	background background
	mouse      bool        // is ours; else the terminal's
	arrows     atomic.Bool // not mouse, for the input
	focused    bool        // the terminal; true as long as it does not say otherwise
	reports    bool        // it says so

	showsProgress bool // it takes OSC 9;4
	showsStatus   bool // it has said that it takes OSC 7501
}

// daemonView is what the daemon said that is shown, and what is known of it.
type daemonView struct {
	state    protocol.State
	lacks    error                // what the daemon has not, or nil
	known    bool                 // there was a Snapshot
	offline  *follow.Disconnected // nil while connected
	since    time.Time            // when the run began; zero where nobody said
	took     time.Duration        // of the run before
	tools    []tool               // that are running, in the order they began
	plan     plan                 // what the agent has written down to do
	ours     []string             // ids of inputs sent from here
	waiting  []string             // sent to the run of a daemon that hands nothing back
	heard    []string             // said by users in that run: one may be before its reply
	rewrite  *slash.Edit          // the message that the input is written for anew
	where    whereabouts
	began    began
	counting string // the run whose changes are counted
	lastLine string // what it has changed, or a rewind has taken back; "" is nothing
	offer    offer

	refreshing, again bool
}

type tool struct{ id, name string }

func newModel(o Options, l *follow.Session, j *jobs.Jobs) *model {
	color := o.Getenv("NO_COLOR") == "" && o.Getenv("TERM") != "dumb"
	m := &model{
		outbox:     outbox{daemons: daemons{opts: &o, link: l, busy: new(sync.WaitGroup), jobs: j}},
		appearance: appearance{dark: true, color: color, width: 80, height: 24},
	}
	m.notices = o.Notices
	m.stops, m.focused = make(terminal.Stops, 1), true
	m.showsProgress = terminal.ShowsProgress(o.Getenv)

	var err error
	m.input, err = composer.New(filepath.Join(stateDir(o.Getenv, "nous"), "history"), j.Start, m.place)
	if err != nil {
		m.notices = append(m.notices, err.Error())
	}
	m.talk = transcript.New(m.transcriptLook())
	m.approval = approvals.New(m.theme, o.home())
	m.sites = sitesOf(m.opts)
	m.site = m.sites[0]
	m.configure()
	return m
}

// Messages of the jobs.
type (
	finished struct {
		at slash.Place
		slash.Outcome
	}
	answered struct { // to the first of unsent
		at slash.Place
		slash.Outcome
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
	return tea.Sequence(tea.RequestProgramStatusSupport, m.askBackground()) // so is the last answer the background's
}

// listen ends with the program, or with the link. While events stream it takes
// them a frame's worth at a time.
func (ds *daemons) listen(link *follow.Session) {
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		for {
			select {
			case u, ok := <-link.Updates():
				if !ok {
					return nil
				}
				ds.jobs.Send(said{link, u})
				if _, streaming := u.(follow.Events); streaming && !jobs.Pause(ctx, time.Second/terminal.FramesPerSecond) {
					return nil
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// Update is called by bubbletea.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := m.update(msg)
	if m.input.Empty() {
		m.astray = ""
	}
	m.tendBoard()
	m.markRead()
	m.tendApproval()
	m.tendLetters()
	m.tendChildren()
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
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		if !jobs.Pause(ctx, left) {
			return nil
		}
		return forgotten{}
	})
}

// update gives a message to the part whose it is.
func (m *model) update(msg tea.Msg) (cmd tea.Cmd) {
	for _, part := range []func(tea.Msg) (tea.Cmd, bool){
		m.updateTerminal, m.updateConnection, m.updateInput, m.updateSites, m.updateOverlay, m.updateJobs,
	} {
		if cmd, mine := part(msg); mine {
			return cmd
		}
	}
	return nil
}

// updateJobs takes in what the screen has of itself.
func (m *model) updateJobs(msg tea.Msg) (cmd tea.Cmd, mine bool) {
	switch msg := msg.(type) {
	case moreCommands:
		msg.show()
	case located:
		m.located(msg)
	case findOn:
		m.foundMore(msg)
	case forgotten:
		m.forgetting = false
		m.talk.DropNotes(false, false)
	case ticked:
		m.ticking = false
		m.frame++
	case letterStayed:
		m.letterStayed(msg)
	case jobs.Crashed:
		m.crash = msg.Err
		return tea.Quit, true
	default:
		return nil, false
	}
	return nil, true
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

func (ds *daemons) place() slash.Place {
	p := ds.opts.place()
	p.Link, p.Busy, p.State = ds.link, ds.busy, ds.state
	p.RunAs = p.State.As
	if p.State.RunID == ds.began.id {
		p.RunAs = ds.began.as
	}
	return p
}

// refresh asks for the state, not more often than every refreshEvery, and again
// if something happens meanwhile.
func (ds *daemons) refresh() {
	if ds.refreshing {
		ds.again = true
		return
	}
	ds.refreshing = true
	p := ds.place()
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		if !jobs.Pause(ctx, refreshEvery) {
			return nil
		}
		s, err := slash.Ask(ctx, p, protocol.GetState, protocol.GetStateParams{Scope: p.Scope()})
		return refreshed{p.Link, p.State.SessionID, s, err}
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
	case m.approval.ID() != "" && len(m.working) == 0 && len(m.unsent) == 0: // which may wait for days
		return
	case !m.running() && len(m.working) == 0 && len(m.unsent) == 0 && !m.talk.Animating() && m.known:
		return
	}
	m.ticking = true
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		if !jobs.Pause(ctx, every) {
			return nil
		}
		return ticked{}
	})
}

func (ds *daemons) running() bool { return ds.known && ds.place().Running() }

// title is what the session is called.
func (ds *daemons) title() string {
	if ds.state.Title != "" {
		return cell.Line(ds.state.Title, 200)
	}
	return ds.state.SessionID
}

// noDaemon tells whether the screen has nothing to show because nobody listens.
func (ds *daemons) noDaemon() bool {
	return !ds.known && ds.offline != nil && ds.offline.NoDaemon
}

package tui

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/cmd/nous/tui/cell"
	"noused/cmd/nous/tui/link"
	"noused/cmd/nous/tui/theme"
	"noused/cmd/nous/tui/transcript"
	"noused/internal/protocol"
)

const (
	refreshEvery = 250 * time.Millisecond // between two looks at the state, at least
	tickEvery    = 100 * time.Millisecond // while something moves
	slowTick     = 500 * time.Millisecond // while only seconds are counted
	maxUnsent    = 100
)

// model is the screen.
type model struct {
	opts  Options
	link  *link.Link
	jobs  *jobs
	crash error
	none  error // why the session that the user named cannot be shown
	stops stops

	width, height int
	dark, color   bool
	theme         theme.Theme
	mouse         bool

	// What the daemon said.
	state   protocol.State
	missing []string
	known   bool          // there was a Snapshot
	offline *link.Offline // nil while connected
	since   time.Time     // when the run began; zero where nobody said
	tools   []tool        // that are running, in the order they began
	ours    []string      // ids of inputs sent from here

	talk    *transcript.Transcript
	input   *input
	history *history
	menu    menu
	over    *overlay
	offer   offer
	notices []string // to be shown once the next Snapshot is

	images  []string // paths of images that go with the next text
	waiting []string // sent to the run of an older core, which hands nothing back
	heard   []string // said by users in that run: one may be before its reply
	unsent  []unsent // in the order they go in; see sending
	sending bool     // the first of unsent is on its way
	retry   unsent   // what was sent last and failed
	working []string // other commands that the daemon has not answered
	goal    *string  // the session that is to be shown, until it is
	held    []job    // commands that wait until it is

	refreshing, again bool
	ticking           bool
	frame             int
	leaving           bool // Ctrl+C was pressed once
}

type tool struct{ id, name string }

func newModel(o Options, l *link.Link, j *jobs) *model {
	color := o.Getenv("NO_COLOR") == "" && o.Getenv("TERM") != "dumb"
	m := &model{
		opts: o, link: l, jobs: j, dark: true, color: color, width: 80, height: 24,
		input: newInput(), stops: make(stops, 1),
	}
	m.talk = transcript.New(m.look())
	var err error
	m.history, err = loadHistory(filepath.Join(stateDir(o.Getenv, "nous"), "history"))
	if err != nil {
		m.notices = append(m.notices, err.Error())
	}
	m.dress()
	return m
}

func (m *model) look() transcript.Look {
	return transcript.Look{Width: m.width, Dark: m.dark, Color: m.color}
}

// dress gives everything its styles and sizes.
func (m *model) dress() {
	m.theme = theme.New(m.dark, m.color)
	m.input.look(m.theme)
	m.input.resize(m.width, m.height*2/5)
	m.talk.SetLook(m.look())
	if m.over != nil {
		m.over.box.SetLook(m.pickLook())
	}
}

// Messages of the jobs.
type (
	finished  struct{ outcome }
	answered  struct{ outcome } // to the first of unsent
	refreshed struct {
		session string
		state   protocol.State
		err     error
	}
	ticked struct{}
)

// Init is called by bubbletea.
func (m *model) Init() tea.Cmd {
	if m.opts.Session != "" {
		m.goal = &m.opts.Session // the link has been told
	}
	m.jobs.start(m.listen)
	return tea.RequestBackgroundColor
}

// listen ends with the program, or with the link. While events stream it takes
// them a frame's worth at a time.
func (m *model) listen(ctx context.Context) tea.Msg {
	for {
		select {
		case u, ok := <-m.link.Updates():
			if !ok {
				return nil
			}
			m.jobs.send(u)
			if _, streaming := u.(link.Events); streaming && !pause(ctx, time.Second/framesPerSecond) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
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
	m.tick()
	return m, cmd
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
	case tea.ColorProfileMsg:
		if m.color && msg.Profile <= colorprofile.ASCII {
			m.color = false
			m.dress()
		}
	case stopped:
		return m.suspend()
	case continued:
		return release(func() {})
	case tea.ResumeMsg:
		return tea.Sequence(tea.ClearScreen, tea.RequestBackgroundColor)
	case tea.KeyPressMsg:
		return m.press(msg)
	case tea.PasteMsg:
		return m.paste(msg)
	case tea.MouseWheelMsg:
		m.wheel(msg)
	case link.Broken:
		m.crash = msg.Err
		return tea.Quit
	case link.Update:
		if refused, ok := msg.(link.Refused); ok && m.opts.refused(refused, m.known) {
			m.none = refused.Err
			return tea.Quit
		}
		m.told(msg)
	case finished:
		return m.finish(msg.outcome)
	case answered:
		return m.answer(msg.outcome)
	case refreshed:
		m.refreshed(msg)
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
	case started:
		return m.started(msg)
	case ticked:
		m.ticking = false
		m.frame++
	case crashed:
		m.crash = msg.err
		return tea.Quit
	}
	return nil
}

// told takes in what the link says.
func (m *model) told(u link.Update) {
	if _, off := u.(link.Offline); !off {
		m.offline = nil
	}
	defer m.arrive(u)
	switch u := u.(type) {
	case link.Snapshot:
		m.restore(u)
	case link.Events:
		for _, ev := range u.List {
			m.event(ev)
		}
		if u.Dropped {
			m.talk.Notice("info", "too much happened at once; the conversation is read again")
		}
	case link.Changed:
		m.setState(u.State)
	case link.Refused:
		m.talk.Notice("error", fmt.Sprintf("session %s cannot be shown: %s", u.SessionID, describe(u.Err)))
		m.notices = append(m.notices, fmt.Sprintf("session %s cannot be shown: %s", u.SessionID, describe(u.Err)))
	case link.Offline:
		m.offline = &u
		m.offer.child.reap()
		if u.NoDaemon && !m.known {
			m.askForService()
		}
	}
}

// follow asks for a session to be shown.
func (m *model) follow(id string) {
	m.goal = &id
	m.link.Follow(id)
}

// arrive goes on with what waited for the session that is to be shown, once it
// is, or will not be.
func (m *model) arrive(u link.Update) {
	if m.goal == nil {
		return
	}
	switch u := u.(type) {
	case link.Snapshot:
		if !m.reached(u) {
			return
		}
		m.goal = nil
	case link.Refused:
		m.goal = nil
		m.stay()
	}
	m.goOn()
}

// reached tells whether the session that is shown is the one asked for. The one
// before may be read once more on the way there.
func (m *model) reached(s link.Snapshot) bool {
	return m.goal == nil || *m.goal == "" || *m.goal == s.State.SessionID
}

// restore shows a session as it is at one moment.
func (m *model) restore(s link.Snapshot) {
	first, other := !m.known, m.state.SessionID != s.State.SessionID
	m.known, m.missing = true, s.Missing
	m.offer = offer{child: m.offer.child}
	if other {
		m.talk.Clear()
	}
	if err := m.talk.Load(s.Messages, s.State.Partial); err != nil {
		m.talk.Notice("error", err.Error())
	}
	if first || other {
		m.tools, m.ours, m.waiting = nil, nil, nil
	}
	m.setState(s.State)
	if !m.running() {
		m.settle(s.Messages)
	}
	m.talk.SetRunning(m.running())
	if last := m.state.LastRun; last != nil && !m.running() {
		m.talk.SetLastRun(*last)
	}
	m.since = beganAt(s.Messages, s.State.RunID)
	switch {
	case s.New:
		m.talk.Notice("info", "the daemon was restarted")
	case first && len(s.Missing) > 0:
		m.talk.Notice("info", "this core is an older one: it has no list of sessions or tools, no search and no model to choose")
	}
	if m.reached(s) { // they are of that session
		for _, text := range m.notices {
			m.talk.Notice("info", text)
		}
		m.notices = nil
	}
	if other {
		m.talk.End()
	}
}

// settle gives back the texts that an older core has neither delivered nor will:
// its run is over, and the end of it was not seen.
func (m *model) settle(entries []jsontext.Value) {
	var said []string
	for _, raw := range entries {
		var e struct {
			Role string `json:"role"`
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &e) == nil && e.Role == "user" {
			said = append(said, e.Text)
		}
	}
	for _, text := range m.waiting {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, text) }) {
			m.input.before(text)
		}
	}
	m.waiting = nil
}

// beganAt is when a run said its first word: no core tells when it began.
func beganAt(entries []jsontext.Value, run string) time.Time {
	var at time.Time
	if run == "" {
		return at
	}
	for i := len(entries) - 1; i >= 0; i-- {
		var e struct {
			RunID     string    `json:"run_id"`
			CreatedAt time.Time `json:"created_at"`
		}
		if json.Unmarshal(entries[i], &e) != nil || e.RunID != run {
			break
		}
		at = e.CreatedAt
	}
	return at
}

func (m *model) setState(s protocol.State) {
	s.SessionID = cmp.Or(s.SessionID, m.state.SessionID) // an older core may leave it out
	if s.SessionID != m.state.SessionID {
		m.menu.close()
	}
	m.state = s
	if s.RunState == "idle" {
		m.tools, m.since = nil, time.Time{}
	}
}

// event shows an event and keeps what the HUD says up to date until the state
// is asked for again.
func (m *model) event(ev link.Event) {
	m.talk.Apply(ev.Event, ev.At)
	if where := ev.Where().SessionID; where != "" && where != m.state.SessionID {
		return
	}
	switch e := ev.Event.(type) {
	case protocol.AgentStart:
		m.state.RunState, m.state.RunID, m.since, m.tools = "running", e.RunID, ev.At, nil
	case protocol.AgentEnd:
		m.state.RunState, m.state.RunID, m.since, m.tools = "idle", "", time.Time{}, nil
		m.returned(e.Discarded)
		if e.StopReason == "aborted" {
			m.input.before(m.waiting...)
		}
		m.waiting, m.heard = nil, nil
	case protocol.ToolStart:
		m.tools = append(m.tools, tool{e.ToolCallID, e.ToolName})
		return
	case protocol.ToolEnd:
		m.tools = slices.DeleteFunc(m.tools, func(t tool) bool { return t.id == e.ToolCallID })
		return
	case protocol.Status:
		if e.PendingCounts != nil {
			m.state.PendingCounts = *e.PendingCounts
		}
		if e.Code == "abort_requested" {
			m.state.RunState = "aborting"
		}
	case protocol.MessageStart:
		m.delivered(e)
		return
	case protocol.MessageUpdate, protocol.ToolUpdate:
		return
	}
	m.refresh()
}

// delivered notes for an older core, which does not name inputs, that a text does
// not wait any more.
func (m *model) delivered(e protocol.MessageStart) {
	if e.Role != "user" || len(m.missing) == 0 {
		return
	}
	before := len(m.waiting)
	m.waiting = slices.DeleteFunc(m.waiting, func(text string) bool { return strings.Contains(e.Text, text) })
	if len(m.waiting) == before && len(m.heard) < maxUnsent {
		m.heard = append(m.heard, e.Text)
	}
}

// returned puts texts that were sent from here, and given up by the daemon, into
// the input again.
func (m *model) returned(texts []protocol.DiscardedInput) {
	var back []string
	for _, d := range texts {
		if i := slices.Index(m.ours, d.InputID); i >= 0 {
			m.ours = slices.Delete(m.ours, i, i+1)
			back = append(back, d.Text)
		}
	}
	m.input.before(back...)
}

func (m *model) place() place {
	return place{opts: &m.opts, link: m.link, state: m.state, missing: m.missing}
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
		return refreshed{p.state.SessionID, s, err}
	})
}

func (m *model) refreshed(r refreshed) {
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
	case m.ticking:
		return
	case m.offline != nil:
		every = slowTick
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

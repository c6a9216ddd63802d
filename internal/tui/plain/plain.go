// Package plain is the terminal interface line by line, for screen readers and terminals that
// can do no more: what was written stays.
//
// Run owns all that it starts. The package keeps no state of a session of its own, and ends no
// run because its terminal has ended.
package plain

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"noused/internal/tui/composer"
	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/muesli/cancelreader"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// plainEntries is how much of a conversation is read out at the beginning.
const plainEntries = 10

// Options are what Run has to know. All but Host are required.
type Options struct {
	slash.Site
	Session string // the session to show first; "" is the active one
	Finds   bool   // another one is looked for, for an empty Session
	Person  bool   // one reads Out

	In    io.Reader
	Out   io.Writer
	Event func(protocol.Event)       // prints an event of a run
	Entry func(jsontext.Value) error // prints an entry of get_messages

	Getenv func(string) string
	Now    func() time.Time
}

// Messages of the jobs.
type (
	finished struct{ slash.Outcome }
	started  struct{ err error }
)

// plain is the mode while it runs: nothing that was written is written again, so that a screen
// reader can say it. It belongs to the goroutine of Run.
type plain struct {
	opts *Options
	link *follow.Session
	jobs *jobs.Jobs

	state    protocol.State
	known    bool
	offline  bool
	noDaemon bool                  // nobody listens; it was said
	held     []string              // lines that were typed while another machine is away
	over     bool                  // no more lines come
	sending  int                   // texts and commands that have not been answered and that lines wait for
	goal     *string               // the session that is to be shown, until it is
	seen     map[string]bool       // ids of the messages that were said
	shells   map[string]*shellLine // those that run, by OutputID
	images   []slash.Image         // that go with the next text
	said     string                // text of the last prompt from here: the daemon repeats it
	prompted bool                  // the turn begins with a prompt
	asked    string                // id of the approval that was said last
	others   int                   // approvals of other sessions that were announced
	leaving  bool                  // Ctrl+C was pressed once
	quit     bool
	none     error // why the session that the user named cannot be shown
}

// Run shows a session until the user leaves or ctx ends; neither is an error. That there is no
// such session is one. It blocks, and waits for its jobs.
func Run(ctx context.Context, o Options, l *follow.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan tea.Msg)
	p := &plain{opts: &o, link: l, seen: map[string]bool{}}
	p.jobs = &jobs.Jobs{Ctx: ctx, Send: func(msg tea.Msg) {
		select {
		case results <- msg:
		case <-ctx.Done():
		}
	}}
	reader, err := cancelreader.NewReader(o.In)
	if err != nil {
		cancel()
		return fmt.Errorf("read the terminal: %w", err)
	}
	defer reader.Close()
	lines := make(chan typed)
	p.jobs.WG.Go(func() { readLines(ctx, reader, lines) })
	defer func() {
		cancel()
		if reader.Cancel() { // else it is waiting for a line that no one can cut short
			p.jobs.WG.Wait()
		}
	}()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)

	p.sayf("nous, plain mode. /help lists the commands, /quit leaves.")
	if o.Session != "" {
		p.goal = &o.Session // the link has been told
	}
	defer p.tellUnsent()
	return p.loop(ctx, lines, results, interrupts)
}

// loop takes in what happens, one thing after the other, until the user leaves or ctx ends.
func (p *plain) loop(
	ctx context.Context, typed <-chan typed, results <-chan tea.Msg, interrupts <-chan os.Signal,
) (err error) {
	for !p.quit && err == nil {
		lines := typed
		ready := p.sending == 0 && p.goal == nil && (p.known || p.offline)
		switch {
		case ready && p.nextHeld():
			continue
		case ready && p.over && len(p.held) == 0 && len(p.shells) == 0:
			return nil
		case !ready || p.over:
			lines = nil // what was typed before goes first
		}
		select {
		case u := <-p.link.Updates():
			err = p.told(u)
		case line := <-lines:
			err = p.line(line)
		case msg := <-results:
			err = p.result(msg)
		case <-interrupts:
			p.interrupt()
		case <-ctx.Done():
			return nil
		}
	}
	return cmp.Or(err, p.none)
}

// line takes in a line, or the end of them.
func (p *plain) line(line typed) error {
	switch {
	case errors.Is(line.err, io.EOF):
		p.over = true
	case line.err != nil:
		return fmt.Errorf("read the terminal: %w", line.err)
	default:
		p.leaving = false
		p.typed(line.text)
	}
	return nil
}

// result takes in what a job came to.
func (p *plain) result(msg tea.Msg) error {
	switch msg := msg.(type) {
	case finished:
		if waitedFor(msg.Name) {
			p.sending--
		}
		p.apply(p.shellEnded(msg.Outcome))
	case started:
		if msg.err != nil {
			p.sayf("error: %s", msg.err)
		}
	case jobs.Crashed:
		return msg.Err
	}
	return nil
}

type typed struct {
	text string
	err  error
}

// readLines ends with ctx or with the input. A line that ends in a backslash
// goes on in the next one.
func readLines(ctx context.Context, in io.Reader, lines chan<- typed) {
	r := bufio.NewReader(in)
	var text strings.Builder
	for {
		line, err := r.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		more, goesOn := strings.CutSuffix(line, `\`)
		next := typed{}
		switch {
		case err == nil && goesOn && text.Len() < composer.MaxText:
			text.WriteString(more + "\n")
			continue
		case err == nil || text.Len()+len(line) > 0:
			text.WriteString(line)
			next.text = text.String()
			text.Reset()
		default:
			next.err = err
		}
		select {
		case lines <- next:
		case <-ctx.Done():
			return
		}
		if next.err != nil {
			return
		}
	}
}

// sayf writes lines, without what could drive a terminal.
func (p *plain) sayf(format string, args ...any) {
	fmt.Fprintln(p.opts.Out, cell.Sanitize(fmt.Sprintf(format, args...)))
}

func (p *plain) place() slash.Place {
	return slash.Place{Site: &p.opts.Site, Sites: 1, Getenv: p.opts.Getenv, Link: p.link, State: p.state}
}

func (p *plain) told(u follow.Update) error {
	if _, off := u.(follow.Disconnected); !off && p.offline {
		p.offline, p.noDaemon = false, false
		p.sayf("connected again")
	}
	switch u := u.(type) {
	case follow.Broken:
		return u.Err
	case follow.Snapshot:
		if p.goal != nil && (*p.goal == "" || *p.goal == u.State.SessionID) {
			p.goal = nil
		}
		p.restore(u)
	case follow.Events:
		for _, ev := range u.List {
			p.event(ev)
		}
	case follow.Changed:
		p.state = u.State
		p.askAloud()
	case follow.Refused:
		p.refused(u)
	case follow.Disconnected:
		p.lost(u)
	}
	return nil
}

// refused ends the mode where the session that the user named cannot be shown.
func (p *plain) refused(r follow.Refused) {
	if p.goal != nil && *p.goal == r.SessionID {
		p.goal = nil
	}
	if !p.known && (p.opts.Finds || p.opts.Session != "" && r.SessionID == p.opts.Session) {
		p.none, p.quit = r.Err, true
		return
	}
	p.sayf("error: %s", slash.CannotShow(r.SessionID, r.Err))
}

func (p *plain) lost(d follow.Disconnected) {
	switch {
	case d.NoDaemon && !p.noDaemon:
		p.sayf("no daemon runs at %s; /start starts one", p.opts.Place)
	case !p.offline:
		p.sayf("no connection: %s; trying again", d.Err)
	}
	p.goal = nil // or no line would be read until there is a daemon
	clear(p.shells)
	p.offline, p.noDaemon = true, p.noDaemon || d.NoDaemon
}

// restore says the end of a conversation, or what of it was not said yet.
func (p *plain) restore(s follow.Snapshot) {
	other := !p.known || p.state.SessionID != s.State.SessionID
	if other && s.Lost != nil {
		p.sayf("%s", slash.Lost(p.state.SessionID, s.Lost))
	}
	p.state = s.State
	if s.New {
		p.sayf("the daemon was restarted")
	}
	if other {
		p.seen = map[string]bool{}
		p.sayf("session %s, %s", cmp.Or(p.state.Title, p.state.SessionID), p.state.RunState)
	}
	if !p.known && s.Lacks != nil {
		p.sayf("%s", s.Lacks)
	}
	if text := p.opts.OtherVersion(s.State.Daemon); text != "" && (!p.known || s.New) {
		p.sayf("%s", text)
	}
	p.known = true
	p.readOut(s.Messages)
	p.markRead()
	if s.State.Partial != nil && s.State.Partial.Text != "" {
		p.sayf("so far: %s", s.State.Partial.Text)
	}
	p.askAloud()
}

// readOut says the newest of the messages that were not said yet.
func (p *plain) readOut(all []jsontext.Value) {
	var fresh []jsontext.Value
	for _, entry := range all {
		var e struct {
			ID   string `json:"id"`
			Text string `json:"text"`
		}
		if err := json.Unmarshal(entry, &e); err == nil && p.seen[e.ID] {
			continue
		}
		p.seen[e.ID] = true
		switch rest, said := p.shellNote(e.Text); {
		case !said:
			fresh = append(fresh, entry)
		case rest != "":
			p.sayf("%s", rest)
		}
	}
	if left := len(fresh) - plainEntries; left > 0 {
		p.sayf("%d earlier ones are left out; `nous%s messages` prints all", left, p.opts.Flags)
		fresh = fresh[left:]
	}
	for _, entry := range fresh {
		if err := p.opts.Entry(entry); err != nil {
			p.sayf("error: %s", err)
		}
	}
}

func (p *plain) event(ev follow.Event) {
	switch e := ev.Event.(type) {
	case protocol.AgentStart:
		p.state.RunState, p.state.RunID = protocol.StateRunning, e.RunID
	case protocol.AgentEnd:
		p.state.RunState, p.state.RunID = protocol.StateIdle, ""
		p.opts.Event(e)
		p.sayf("the run is %s", e.StopReason)
		p.markRead()
		return
	case protocol.TurnStart:
		p.prompted = e.Kind == protocol.KindPrompt
	case protocol.MessageStart:
		if e.Role == "user" && p.prompted && e.Text != "" && e.Text != p.said {
			p.sayf("another client asks: %s", e.Text)
		}
	case protocol.MessageEnd:
		p.seen[e.MessageID] = true
	case protocol.Status:
		if e.PendingCounts != nil {
			p.state.PendingCounts = *e.PendingCounts
		}
		if e.Code == protocol.StatusApprovalRequested || e.Code == protocol.StatusApprovalResolved {
			p.approvalEvent(e)
			return
		}
		if e.Code == protocol.StatusOperationOutput {
			p.shellSays(e)
			return
		}
	}
	p.opts.Event(ev.Event)
}

// markRead tells the daemon that a person has read the session up to now, unless a run goes on.
func (p *plain) markRead() {
	if !p.opts.Person || p.place().Running() || p.goal != nil ||
		slash.Refusal(p.link, protocol.MarkRead, protocol.MarkReadParams{}) != nil {
		return
	}
	at := p.place()
	p.jobs.Start(func(ctx context.Context) tea.Msg {
		// Where it fails the next run's end asks again.
		_, _ = slash.Ask(ctx, at, protocol.MarkRead, protocol.MarkReadParams{Scope: at.Scope()})
		return nil
	})
}

// instead says what to do where the screen has a command.
var instead = map[string]string{
	"copy":   "copy with the terminal",
	"diff":   "nous diff prints the changes",
	"do":     "a text has the plan done",
	"edit":   "/leaf ENTRY goes back to an entry of /tree, and a text goes on from there",
	"find":   "/search TEXT looks in all sessions",
	"plan":   "/as plan TEXT has a plan made, and a text has it done",
	"rewind": "nous rewind takes back, and nous rewind --undo undoes that",
	"setup":  "nous setup asks for a model and its key",
}

// typed does what a line says.
func (p *plain) typed(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	cmd, rest, err := slash.Parse(text)
	switch {
	case err != nil:
		p.sayf("error: %s", err)
	case cmd != nil && cmd.Screen:
		p.sayf("the plain mode has no /%s: %s", cmd.Name, instead[cmd.Name])
	case cmd != nil && cmd.Local:
		p.apply(cmd.Run(p.jobs.Ctx, p.place(), rest))
	case p.offline && p.opts.Host != "" && !p.noDaemon:
		p.hold(text)
	case !p.known || p.offline:
		p.sayf("error: not connected to the daemon; nothing was sent")
	case cmd != nil && strings.HasPrefix(cmd.Name, "bash"):
		p.shellLine(cmd, rest)
	case cmd != nil && slash.SaysAs(cmd, rest):
		p.send(slash.UnsentAs(slash.CutAs(rest)))
	case cmd != nil:
		p.do(cmd.Name, func(ctx context.Context, at slash.Place) slash.Outcome { return cmd.Run(ctx, at, rest) })
	default:
		if p.place().Running() {
			p.sayf("steering the run; /follow-up TEXT waits for its end")
		}
		p.send(slash.Unsent{Text: rest, Skill: slash.SkillOf(text), Call: slash.IsCall(text)})
	}
}

// send sends a text, with the images that are named for it.
func (p *plain) send(u slash.Unsent) {
	u.Images, u.Key = p.images, uuid.NewString()
	p.said, p.images = u.Text, nil
	p.do(sendingName, func(ctx context.Context, at slash.Place) slash.Outcome {
		u, err := u.Written(ctx, at)
		if err != nil {
			return slash.Failed(err)
		}
		return slash.Say(ctx, at, u)
	})
}

// sendingName is the name of what has to arrive in the order it was typed in.
const sendingName = "send"

// waitedFor tells whether the lines after a command wait for its answer.
func waitedFor(name string) bool {
	c := slash.Named(name)
	return name == sendingName || c != nil && (c.Moves || c.First)
}

func (p *plain) follow(id string) {
	p.goal = &id
	p.link.Follow(id)
}

// do runs a command beside the conversation.
func (p *plain) do(name string, f func(context.Context, slash.Place) slash.Outcome) {
	at := p.place()
	if name == "abort" || name == "follow-up" {
		name = sendingName
	}
	if waitedFor(name) {
		p.sending++
	}
	p.jobs.Start(func(ctx context.Context) tea.Msg { return finished{f(ctx, at).Of(name)} })
}

func (p *plain) apply(o slash.Outcome) {
	if o.Err != nil {
		p.sayf("error: %s", slash.Describe(o.Err))
	}
	if o.Text != "" {
		p.sayf("not sent: %s", o.Text)
	}
	for _, text := range o.Back {
		p.sayf("not delivered: %s", text)
	}
	if o.Info != "" {
		p.sayf("%s", o.Info)
	}
	switch {
	case o.Follow != nil:
		p.follow(*o.Follow)
	case o.Show != nil:
		p.list(o.Show)
	case o.Help:
		p.help()
	case o.Board:
		p.do("board", slash.ListBoard)
	case o.Palette:
		p.sayf("/help lists the commands")
	case o.Theme != "":
		p.sayf("the plain mode has no colours")
	case o.Mouse:
		p.sayf("the plain mode leaves the mouse to the terminal")
	case o.Start:
		p.startDaemon()
	case o.Images != nil:
		p.images = slash.Attached(p.images, o.Images)
	case o.Quit:
		p.quit = true
	}
}

func (p *plain) startDaemon() {
	if !p.offline {
		p.sayf("a daemon runs at %s", p.opts.Place)
		return
	}
	p.sayf("starting a daemon")
	p.jobs.Start(func(ctx context.Context) tea.Msg { return started{p.opts.Start(ctx)} })
}

func (p *plain) interrupt() {
	switch {
	case p.leaving:
		p.quit = true
	case p.place().Running() && !p.offline:
		p.sayf("ending the run; Ctrl+C again leaves")
		p.do(sendingName, slash.Abort)
	default:
		p.sayf("Ctrl+C again leaves")
	}
	p.leaving = true
}

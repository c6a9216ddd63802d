package tui

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/muesli/cancelreader"

	"noused/internal/client/follow"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
)

// plainEntries is how much of a conversation is read out at the beginning.
const plainEntries = 10

// plain is the interface line by line: nothing that was written is written
// again, so that a screen reader can say it. It belongs to the goroutine of
// Run.
type plain struct {
	opts Options
	link *follow.Session
	jobs *jobs
	out  io.Writer

	state    protocol.State
	known    bool
	offline  bool
	noDaemon bool            // nobody listens; it was said
	held     []string        // lines that were typed while another machine is away
	over     bool            // no more lines come
	sending  int             // texts and commands that have not been answered and that lines wait for
	goal     *string         // the session that is to be shown, until it is
	seen     map[string]bool // ids of the messages that were said
	images   []image         // that go with the next text
	said     string          // text of the last prompt from here: the daemon repeats it
	prompted bool            // the turn begins with a prompt
	asked    string          // id of the question that was said last
	others   int             // approvals of other sessions that were announced
	leaving  bool            // Ctrl+C was pressed once
	quit     bool
	none     error // why the session that the user named cannot be shown
}

func runPlain(ctx context.Context, o Options, l *follow.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan tea.Msg)
	p := &plain{opts: o, link: l, out: o.Out, seen: map[string]bool{}}
	p.jobs = &jobs{ctx: ctx, send: func(msg tea.Msg) {
		select {
		case results <- msg:
		case <-ctx.Done():
		}
	}}
	if p.out == nil {
		p.out = os.Stdout
	}
	in := o.In
	if in == nil {
		in = os.Stdin
	}
	reader, err := cancelreader.NewReader(in)
	if err != nil {
		cancel()
		return fmt.Errorf("read the terminal: %w", err)
	}
	defer reader.Close()
	lines := make(chan typed)
	p.jobs.wg.Go(func() { readLines(ctx, reader, lines) })
	defer func() {
		cancel()
		if reader.Cancel() { // else it is waiting for a line that no one can cut short
			p.jobs.wg.Wait()
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
	for !p.quit {
		lines := lines
		ready := p.sending == 0 && p.goal == nil && (p.known || p.offline)
		switch {
		case ready && p.nextHeld():
			continue
		case ready && p.over && len(p.held) == 0:
			return nil
		case !ready || p.over:
			lines = nil // what was typed before goes first
		}
		select {
		case u := <-l.Updates():
			if broken, ok := u.(follow.Broken); ok {
				return broken.Err
			}
			p.told(u)
		case line := <-lines:
			if line.err != nil {
				if errors.Is(line.err, io.EOF) {
					p.over = true
					continue
				}
				return fmt.Errorf("read the terminal: %w", line.err)
			}
			p.leaving = false
			p.typed(line.text)
		case msg := <-results:
			switch msg := msg.(type) {
			case finished:
				if waitedFor(msg.name) {
					p.sending--
				}
				p.apply(msg.outcome)
			case started:
				if msg.err != nil {
					p.sayf("error: %s", msg.err)
				}
			case crashed:
				return msg.err
			}
		case <-interrupts:
			p.interrupt()
		case <-ctx.Done():
			return nil
		}
	}
	return p.none
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
		case err == nil && goesOn && text.Len() < maxText:
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
	fmt.Fprintln(p.out, cell.Sanitize(fmt.Sprintf(format, args...)))
}

func (p *plain) place() place {
	return place{opts: &p.opts, link: p.link, state: p.state}
}

func (p *plain) told(u follow.Update) {
	if _, off := u.(follow.Disconnected); !off && p.offline {
		p.offline, p.noDaemon = false, false
		p.sayf("connected again")
	}
	switch u := u.(type) {
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
		if p.goal = nil; p.opts.refused(u, p.known) {
			p.none, p.quit = u.Err, true
			return
		}
		p.sayf("error: session %s cannot be shown: %s", u.SessionID, describe(u.Err))
	case follow.Disconnected:
		switch {
		case u.NoDaemon && !p.noDaemon:
			p.sayf("no daemon runs at %s; /start starts one", p.opts.Place)
		case !p.offline:
			p.sayf("no connection: %s; trying again", u.Err)
		}
		p.goal = nil // or no line would be read until there is a daemon
		p.offline, p.noDaemon = true, p.noDaemon || u.NoDaemon
	}
}

// restore says the end of a conversation, or what of it was not said yet.
func (p *plain) restore(s follow.Snapshot) {
	other := !p.known || p.state.SessionID != s.State.SessionID
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
	if text := p.opts.otherVersion(s.State.Daemon); text != "" && (!p.known || s.New) {
		p.sayf("%s", text)
	}
	p.known = true
	var fresh []jsontext.Value
	for _, entry := range s.Messages {
		var e struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(entry, &e); err != nil || !p.seen[e.ID] {
			fresh = append(fresh, entry)
		}
		p.seen[e.ID] = true
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
	if s.State.Partial != nil && s.State.Partial.Text != "" {
		p.sayf("so far: %s", s.State.Partial.Text)
	}
	p.askAloud()
}

func (p *plain) event(ev follow.Event) {
	switch e := ev.Event.(type) {
	case protocol.AgentStart:
		p.state.RunState, p.state.RunID = protocol.StateRunning, e.RunID
	case protocol.AgentEnd:
		p.state.RunState, p.state.RunID = protocol.StateIdle, ""
		p.opts.Event(e)
		p.sayf("the run is %s", e.StopReason)
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
	}
	p.opts.Event(ev.Event)
}

// typed does what a line says.
func (p *plain) typed(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	cmd, rest, err := parseCommand(text)
	switch {
	case err != nil:
		p.sayf("error: %s", err)
	case cmd != nil && cmd.local:
		p.apply(cmd.run(p.jobs.ctx, p.place(), rest))
	case p.offline && p.opts.Host != "" && !p.noDaemon:
		p.hold(text)
	case !p.known || p.offline:
		p.sayf("error: not connected to the daemon; nothing was sent")
	case cmd != nil:
		p.do(cmd.name, func(ctx context.Context, at place) outcome { return cmd.run(ctx, at, rest) })
	default:
		if p.place().running() {
			p.sayf("steering the run; /follow-up TEXT waits for its end")
		}
		u := unsent{
			text: rest, skill: skillOf(text), call: isCall(text), images: p.images,
			key: uuid.NewString(),
		}
		p.said, p.images = rest, nil
		p.do(sendingName, func(ctx context.Context, at place) outcome {
			u, err := u.written(ctx, at)
			if err != nil {
				return failed(err)
			}
			return say(ctx, at, u)
		})
	}
}

// sendingName is the name of what has to arrive in the order it was typed in.
const sendingName = "send"

// waitedFor tells whether the lines after a command wait for its answer.
func waitedFor(name string) bool {
	c := commandNamed(name)
	return name == sendingName || c != nil && (c.moves || c.first)
}

func (p *plain) follow(id string) {
	p.goal = &id
	p.link.Follow(id)
}

// do runs a command beside the conversation.
func (p *plain) do(name string, f func(context.Context, place) outcome) {
	at := p.place()
	if name == "abort" || name == "follow-up" {
		name = sendingName
	}
	if waitedFor(name) {
		p.sending++
	}
	p.jobs.start(func(ctx context.Context) tea.Msg { return finished{at, f(ctx, at).of(name)} })
}

func (p *plain) apply(o outcome) {
	if o.err != nil {
		p.sayf("error: %s", describe(o.err))
	}
	if o.text != "" {
		p.sayf("not sent: %s", o.text)
	}
	for _, text := range o.back {
		p.sayf("not delivered: %s", text)
	}
	if o.info != "" {
		p.sayf("%s", o.info)
	}
	switch {
	case o.follow != nil:
		p.follow(*o.follow)
	case o.show != nil:
		p.list(o.show)
	case o.help:
		p.help()
	case o.board:
		p.do("board", listBoard)
	case o.find != nil:
		p.sayf("the plain mode does not search what was printed; /search TEXT looks in all sessions")
	case o.palette:
		p.sayf("/help lists the commands")
	case o.theme != "":
		p.sayf("the plain mode has no colours")
	case o.mouse:
		p.sayf("the plain mode leaves the mouse to the terminal")
	case o.start:
		p.startDaemon()
	case o.images != nil:
		p.images = attached(p.images, o.images)
	case o.quit:
		p.quit = true
	}
}

// list says what the screen would let one choose from, and how to choose here.
func (p *plain) list(show any) {
	switch list := show.(type) {
	case sessionList:
		for _, item := range pick.Sessions(list.sessions, list.matches, p.opts.Now()) {
			mark := ""
			if item.ID == p.state.SessionID {
				mark = " (this one)"
			}
			p.sayf("%s%s: %s, %s %s", item.ID, mark, item.Title, strings.ReplaceAll(item.Detail, "\t", ", "), item.Mark)
		}
		for _, m := range list.matches {
			p.sayf("%s, %s: %s", m.SessionID, m.Role, m.Snippet)
		}
		p.sayf("/switch ID shows one")
	case boardList:
		if err := PrintBoard(p.out, list, p.state.Workdir); err != nil {
			p.sayf("error: %s", err)
			return
		}
		p.sayf("/switch ID shows one")
	case toolList:
		for _, t := range list.tools {
			state := map[bool]string{true: "on", false: "off"}[t.Active]
			if !t.Healthy {
				state += ", unhealthy: " + t.Problem
			}
			p.sayf("%s (%s): %s", t.Name, state, t.Description)
		}
		for _, s := range list.servers {
			p.sayf("server %s (%s): %s", s.Name, strings.ReplaceAll(s.State, "_", " "),
				cmp.Or(s.Message, format.Count(s.Tools, "tool")))
		}
		p.sayf("/tools NAMES, /tools all or /tools none chooses")
	case modelList:
		for _, item := range pick.Models(list.models) {
			p.sayf("%s: %s %s", item.Title, strings.ReplaceAll(item.Detail, "\t", ", "), item.Mark)
		}
		p.sayf("/model NAME chooses, /model NAME SERVER one at another server; /model probe asks the servers")
	case protocol.Tree:
		depth := map[string]int{}
		for _, n := range list.Nodes {
			depth[n.ID] = depth[n.ParentID] + 1
			leaf := ""
			if n.ID == list.LeafID {
				leaf = " (the leaf)"
			}
			p.sayf("%s, level %s%s, %s: %s", n.ID, strconv.Itoa(depth[n.ID]), leaf, n.Role, n.Snippet)
		}
		p.sayf("/leaf ENTRY goes on from one, /branch ENTRY does so in a session of its own")
	}
}

func (p *plain) help() {
	for _, c := range commands {
		if c.screen {
			continue
		}
		p.sayf("%s: %s", strings.TrimSpace("/"+c.name+" "+c.args), c.about)
	}
	p.sayf("/skill:NAME [TEXT]: send what a skill says, and the text behind it")
	p.sayf("Any other line is sent; // begins one with a slash, a backslash at its end goes on in the next.\nCtrl+C " +
		"ends the run; Ctrl+D or /quit leaves, and the run goes on.")
}

func (p *plain) startDaemon() {
	if !p.offline {
		p.sayf("a daemon runs at %s", p.opts.Place)
		return
	}
	p.sayf("starting a daemon")
	p.jobs.start(func(ctx context.Context) tea.Msg { return started{err: p.opts.Start(ctx)} })
}

func (p *plain) interrupt() {
	switch {
	case p.leaving:
		p.quit = true
	case p.place().running() && !p.offline:
		p.sayf("ending the run; Ctrl+C again leaves")
		p.do(sendingName, abort)
	default:
		p.sayf("Ctrl+C again leaves")
	}
	p.leaving = true
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/model"
	"noused/internal/proc"
)

// A daemon that starts anew executes the next program in its own process. Its agents live
// through that: each is left to the next program between two lines of what it says, with
// what this one knows of it.

// LeftVersion is that of what is left: a program takes over no other.
const LeftVersion = 1

const (
	// leaveTime is how long an agent has to read what it was sent before.
	leaveTime = 2 * time.Second
	// orphanTime is how long an agent that was left lives on without a session.
	orphanTime = 10 * time.Minute
)

// Left is a session of a hosted agent that a program leaves to the next. Those of one process name
// the same child.
type Left struct {
	SessionID string         `json:"session_id"`
	Child     proc.Kept      `json:"child"`
	State     jsontext.Value `json:"state"` // a leftState
}

type leftState struct {
	Name     string        `json:"name"`
	Workdir  string        `json:"workdir"`
	Session  string        `json:"session"` // the agent's
	Said     acp.AgentSaid `json:"said"`
	Conn     acp.Left      `json:"conn"`
	Run      string        `json:"run"`
	Deaths   int           `json:"deaths"`
	Taken    int           `json:"taken"`
	Cost     float64       `json:"cost"`
	CostFrom float64       `json:"cost_from"`
	CostTold bool          `json:"cost_told"`
	Offer    offer         `json:"offer"`
	Lost     bool          `json:"lost"`
	Chosen   bool          `json:"chosen"`
	Own      []string      `json:"own"`
	Apart    bool          `json:"apart,omitzero"`
	Key      string        `json:"key,omitzero"` // of the process, where others may join it
	Turn     *leftTurn     `json:"turn,omitzero"`
}

type leftTurn struct {
	Run        string           `json:"run"`
	Number     int              `json:"number"`
	leftPrompt                  // the newest
	Older      []leftPrompt     `json:"older,omitzero"` // those before it whose answers nobody has taken in
	Cut        bool             `json:"cut"`
	Spoke      bool             `json:"spoke"`
	Message    string           `json:"message"`
	Asked      []jsontext.Value `json:"asked"` // ids of the agent's requests
	Events     []leftEvent      `json:"events"`
	Calls      []leftCall       `json:"calls"`
	Over       []string         `json:"over"`   // the agent's ids of calls that are over
	Served     []string         `json:"served"` // our tools that were called, and that the agent has not told yet
}

type leftPrompt struct {
	Texts  int   `json:"texts"`
	Prompt int64 `json:"prompt"` // id of the request; 0: it was answered
}

type leftEvent struct {
	Kind    kind                   `json:"kind"`
	Line    int                    `json:"line"`
	ID      string                 `json:"id"`
	Text    string                 `json:"text"`
	Call    *acp.ToolCall          `json:"call"`
	Tool    string                 `json:"tool"`
	Options []acp.PermissionOption `json:"options"`
	Ask     jsontext.Value         `json:"ask,omitzero"` // the request's id
	Usage   acp.Usage              `json:"usage"`
	Answer  acp.PromptAnswer       `json:"answer"`
	Prompt  int                    `json:"prompt"` // which of the turn's was answered, the oldest is 0
	Err     *acp.Error             `json:"err"`
}

type leftCall struct {
	Of      string                 `json:"of"` // the agent's id
	ID      string                 `json:"id"`
	Name    string                 `json:"name"`
	Kind    string                 `json:"kind"`
	Status  string                 `json:"status"`
	Input   jsontext.Value         `json:"input,omitzero"`
	Output  jsontext.Value         `json:"output,omitzero"`
	Raw     jsontext.Value         `json:"raw,omitzero"`
	Content []acp.ToolContent      `json:"content"`
	Places  []acp.Location         `json:"places"`
	Ask     jsontext.Value         `json:"ask,omitzero"`
	Options []acp.PermissionOption `json:"options"`
	Allowed bool                   `json:"allowed"`
	Told    bool                   `json:"told"`
	Placed  bool                   `json:"placed"`
	Shown   int                    `json:"shown"`
	Size    [4]int                 `json:"size"`
}

// lenient is how what agents have said is written and read again.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// Pause has Stream and Call return, with [model.ErrPaused] and [model.ToolResult].Paused, and
// then nothing more be read of what the agent says, for the next program. It does
// not block. When nothing is under way any more, the session is told so once.
func (s *Session) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pausing() {
		return
	}
	close(s.paused)
	go func() { // ends with Stream or Call, or with the session
		select {
		case s.turnstile <- struct{}{}: // for good
		case <-s.ctx.Done():
			return
		}
		s.quieten()
		_ = s.report(s.ctx, model.AgentNews{Paused: true})
	}()
}

func (s *Session) pausing() bool {
	select {
	case <-s.paused:
		return true
	default:
		return false
	}
}

// quieten ends the reading, once all sessions of the process rest.
func (s *Session) quieten() {
	s.mu.Lock()
	l, t := s.link, s.turn
	var prompts []*prompt
	if t != nil {
		prompts = slices.Clone(t.prompts)
	}
	s.mu.Unlock()
	if l != nil && l.isRead() {
		l.rest()
		select {
		case <-l.still:
		case <-l.over:
		}
		for _, p := range prompts {
			if !p.question.Waits() { // and what follows from the answer is under way
				<-p.over
			}
		}
	}
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
}

func (p *process) isRead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading
}

// keep has the session's part in the process be left to the next program, and reports whether
// that can be. It is so once the others are closed, too.
func (l *link) keep() bool {
	if !l.isOpen() || l.ctx.Err() != nil || l.told != nil { // else it is loaded again
		return false
	}
	if last, kept := l.remove(true); last {
		l.leaveBehind(kept)
	}
	return true
}

// leaveBehind leaves the process to the next program with these sessions, or ends it.
func (p *process) leaveBehind(kept []*link) {
	p.mu.Lock()
	reading, pause := p.reading, p.reading && !p.paused
	p.paused = p.paused || pause
	p.mu.Unlock()
	if pause {
		p.pause(kept)
	}
	if reading {
		select {
		case <-p.still:
		case <-p.over:
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if left, ok := p.leaveTo(ctx, kept); ok {
		p.agents.mu.Lock()
		defer p.agents.mu.Unlock()
		p.agents.left = append(p.agents.left, left...)
		return
	}
	p.p.Kill()
	p.p.Wait()
}

// leaveTo is what the next program gets. ok is false where it gets nothing.
func (p *process) leaveTo(ctx context.Context, kept []*link) (left []Left, ok bool) {
	conn, ok := p.conn.Leave()
	if !p.isRead() {
		conn = *p.was
	}
	if !ok {
		return nil, false
	}
	for _, l := range kept {
		state, err := json.Marshal(l.s.leftState(l, conn), lenient)
		if err != nil {
			return nil, false
		}
		conn.Rest = nil // the first has it
		left = append(left, Left{SessionID: l.s.id, State: state})
	}
	child, err := p.p.Keep(ctx)
	for i := range left {
		left[i].Child = child
	}
	return left, err == nil
}

func (s *Session) leftState(l *link, conn acp.Left) leftState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := leftState{
		Name: s.name, Workdir: s.workdir, Session: l.session, Said: l.said, Conn: conn, Run: s.run, Deaths: s.deaths,
		Taken: s.taken, Cost: s.cost, CostFrom: s.costFrom, CostTold: s.costTold,
		Offer: s.offer, Lost: l.lost, Chosen: l.chosen, Own: s.own, Apart: s.apart, Key: l.key,
	}
	if t := s.turn; t != nil && t.link == l {
		out.Turn = t.left()
	}
	return out
}

// left is called under the session's lock.
func (t *turn) left() *leftTurn {
	out := &leftTurn{
		Run: t.run, Number: t.number, Cut: t.cut, Spoke: t.spoke, Message: t.message, Served: t.served,
	}
	for i, p := range t.prompts {
		left := leftPrompt{Texts: p.texts}
		if p.question.Waits() {
			left.Prompt = p.question.ID
		}
		if i < len(t.prompts)-1 {
			out.Older = append(out.Older, left)
		} else {
			out.leftPrompt = left
		}
	}
	for _, r := range t.asked {
		if !r.Answered() {
			out.Asked = append(out.Asked, r.ID)
		}
	}
	for e, ok := t.in.pop(); ok; e, ok = t.in.pop() {
		if e.kind == wanted || e.kind == steered { // its caller loses this daemon, and the next knows of the steer
			continue
		}
		left := leftEvent{
			Kind: e.kind, Line: e.line, ID: e.id, Text: e.text, Call: e.call, Tool: e.tool, Options: e.options, Ask: idOf(e.ask),
			Usage: e.usage, Answer: e.answer, Prompt: max(0, slices.Index(t.prompts, e.prompt)),
		}
		if e.err != nil && !errors.As(e.err, &left.Err) {
			left.Err = acp.Errorf(acp.InternalError, "%v", e.err)
		}
		out.Events = append(out.Events, left)
	}
	for id, c := range t.calls {
		if c.over {
			out.Over = append(out.Over, id)
		}
	}
	for _, c := range t.order {
		left := leftCall{
			ID: c.id, Name: c.name, Kind: c.kind, Status: c.status, Input: c.input, Output: c.output, Raw: c.raw,
			Content: c.content, Places: c.places, Ask: idOf(c.ask), Options: c.options, Allowed: c.allowed,
			Told: c.told, Placed: c.placed, Shown: c.said, Size: c.size,
		}
		for id, other := range t.calls {
			if other == c {
				left.Of = id
			}
		}
		out.Calls = append(out.Calls, left)
	}
	return out
}

func idOf(r *acp.Request) jsontext.Value {
	if r == nil || r.Answered() {
		return nil
	}
	return r.ID
}

// orphan is a session that a former program has left and that nobody has opened.
type orphan struct {
	s    *Session
	late *time.Timer
}

// TakeOver has the agents that a former program has left; claim returns their processes.
// What goes on begins when a session is opened. What cannot be read is ended: its run is resumed
// as after a crash.
func (a *Agents) TakeOver(left []Left, claim func(proc.Kept) (*proc.Process, error)) error {
	var problems []error
	processes := map[uint32]*process{} // by the number of the child
	for _, l := range left {
		var state leftState
		err := json.Unmarshal(l.State, &state, lenient)
		if err == nil && state.Session == "" {
			err = errors.New("it has none of the agent's")
		}
		p := processes[l.Child.Number]
		if err == nil && p == nil {
			var child *proc.Process
			if child, err = claim(l.Child); err == nil {
				p = a.resumed(child, &state)
				processes[l.Child.Number] = p
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("session %s: %w", l.SessionID, err))
			continue
		}
		a.adopt(p, l.SessionID, &state)
	}
	return errors.Join(problems...)
}

// resumed is a process that a former program has left, by the first of its sessions.
func (a *Agents) resumed(child Process, state *leftState) *process {
	spec, _ := a.spec(state.Name)
	p := newProcess(a, spec)
	p.spec.Name = state.Name
	p.p, p.conn, p.was = child, acp.Resume(state.Conn, child, writer{child, p.ctx}), &state.Conn
	p.said = facts(state.Said) // of an older program it is the whole answer
	close(p.started)
	if state.Key != "" {
		a.mu.Lock()
		defer a.mu.Unlock()
		p.key, a.shared[state.Key] = state.Key, p
	}
	return p
}

// adopt makes a session that was left, which Open returns. Nothing is read of it before TakeUp.
func (a *Agents) adopt(p *process, sessionID string, state *leftState) {
	s := a.newSession(sessionID, state.Name, state.Workdir)
	l := p.link(s)
	l.session, l.rests, l.lost, l.chosen = state.Session, true, state.Lost, state.Chosen
	s.link, s.left = l, true
	s.queues = p.said.Queues()
	s.offer, s.own, s.apart = state.Offer, state.Own, state.Apart
	s.run, s.deaths, s.taken = state.Run, state.Deaths, state.Taken
	s.cost, s.costFrom, s.costTold = state.Cost, state.CostFrom, state.CostTold
	if state.Turn != nil {
		s.turn = state.Turn.turn(s, l)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unopened[sessionID] = &orphan{s, time.AfterFunc(orphanTime, func() {
		if s := a.takeUnopened(sessionID); s != nil {
			s.Close()
		}
	})}
}

// takeUnopened returns a session that was left, nil for none.
func (a *Agents) takeUnopened(sessionID string) *Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.unopened[sessionID]
	if o == nil {
		return nil
	}
	delete(a.unopened, sessionID)
	o.late.Stop()
	return o.s
}

// unopenedSessions takes all that were left.
func (a *Agents) unopenedSessions() (all []*Session) {
	a.mu.Lock()
	ids := slices.Collect(maps.Keys(a.unopened))
	a.mu.Unlock()
	for _, id := range ids {
		if s := a.takeUnopened(id); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// Leave is to be called when all sessions are closed, and returns what of their agents the
// next program can have.
func (a *Agents) Leave() []Left {
	for _, s := range a.unopenedSessions() {
		s.quiet = true
		s.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left
}

// Close ends the agents that were left and whose sessions nobody has opened.
func (a *Agents) Close() {
	var all sync.WaitGroup // none waits for another
	for _, s := range a.unopenedSessions() {
		all.Go(s.Close)
	}
	all.Wait()
}

// turn is the turn that was left.
func (l *leftTurn) turn(s *Session, p *link) *turn {
	t := newTurn(s, p, l.Run)
	t.number, t.spoke, t.message, t.served = l.Number, l.Spoke, l.Message, l.Served
	for _, left := range append(slices.Clone(l.Older), l.leftPrompt) {
		made := &prompt{texts: left.Texts, over: make(chan struct{})}
		made.question = p.conn.Asked(left.Prompt, t.hears(made))
		if left.Prompt == 0 {
			close(made.over)
		}
		t.prompts = append(t.prompts, made)
	}
	asked := map[string]*acp.Request{}
	for _, id := range l.Asked {
		r := p.conn.Unanswered(id)
		asked[string(id)] = r
		t.asked = append(t.asked, r)
	}
	for _, id := range l.Over {
		t.calls[id] = &call{over: true}
	}
	for _, c := range l.Calls {
		made := &call{
			id: c.ID, name: c.Name, kind: c.Kind, status: c.Status, input: c.Input, output: c.Output, raw: c.Raw,
			content: c.Content, places: c.Places, ask: asked[string(c.Ask)], options: c.Options, allowed: c.Allowed,
			told: c.Told, placed: c.Placed, said: c.Shown, size: c.Size,
		}
		t.calls[c.Of] = made
		t.order = append(t.order, made)
		t.keep(&made.choice, bytesOf(c.Options))
		for _, n := range c.Size {
			t.held += n
		}
	}
	full, cancel := context.WithCancel(context.Background())
	cancel() // where there is no room it is not waited for
	_ = s.calls.Grow(full, t.held)
	var events []event
	for _, e := range l.Events {
		made := event{
			kind: e.Kind, line: e.Line, id: e.ID, text: e.Text, call: e.Call, tool: e.Tool, options: e.Options,
			ask: asked[string(e.Ask)], usage: e.Usage, answer: e.Answer, prompt: t.prompts[min(e.Prompt, len(l.Older))],
		}
		if e.Err != nil {
			made.err = e.Err
		}
		events = append(events, made)
	}
	t.in.unget(events...)
	switch {
	case l.Cut && t.answered():
		t.cut = true
		t.in.close()
		close(t.over)
	case l.Cut:
		s.cutTurn(t)
	}
	return t
}

// TakeUp begins to read what an agent says that a former program has left. kept reports that the agent is
// at the point where the session's run is, in that turn, or between two where turn is 0;
// shown, that the call that is under way has shown something. It does not block.
func (s *Session) TakeUp(runID string, turn int) (kept, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, t := s.link, s.turn
	if l == nil && t != nil { // its process has ended meanwhile
		l = t.link
	}
	if l == nil || !s.left {
		return false, false
	}
	s.left = false
	offered := s.newOffer()
	go func() { // ends with the process
		s.tellEarly(l.ctx)
		_ = s.report(l.ctx, model.AgentNews{Offer: offered})
		if l.takesUp() {
			l.serve()
		}
	}()
	if t == nil {
		return true, false
	}
	for _, p := range t.prompts {
		select {
		case <-p.over:
		default:
			go t.wait(p) // ends with the answer, or the process
		}
	}
	if turn == 0 {
		return true, false
	}
	for _, c := range t.order {
		shown = shown || c.told && c.said > 0
	}
	return t.run == runID && t.number == turn && !t.cut, shown
}

// takesUp says that the session is at work again. first: its process is to be read from now on.
func (l *link) takesUp() (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rests = false
	first = !l.reading && !l.paused
	l.reading = true
	return first
}

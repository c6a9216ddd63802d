package agent

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/budget"
	"noused/internal/format"
	"noused/internal/model"
)

// maxDeaths is how often an agent may end in a turn without getting on, and is started
// again.
const maxDeaths = 3

// maxEarly is how many news are kept for a session that a former program has left.
const maxEarly = 64

// Session is an agent at work in one session.
type Session struct {
	agents            *Agents
	id, name, workdir string
	tell              func(context.Context, model.AgentNews) error // set once it is opened
	ctx               context.Context                              // ends with Close
	cancel            context.CancelFunc
	turnstile         chan struct{} // holds one while Stream or Call is at work
	paused            chan struct{} // closed by Pause
	calls             *budget.Part  // what is kept of calls; of who has entered

	mu      sync.Mutex
	link    *link
	turn    *turn
	run     string // that the agent has worked in last
	deaths  int    // in it, since the agent has got on last
	taken   int    // of the user messages, as took has said
	closed  bool
	apart   bool // it may have ended an agent with others in it
	offer   offer
	ready   chan struct{}       // closed once the session is open in a process; nil: nobody waits
	own     []string            // MCP servers of the user's that the agent has itself
	serves  map[string]*serving // calls of our tools that have no result yet, by id
	queues  bool                // the agent takes a prompt while it works on another
	steered bool                // a steer waits for the turn that begins
	quiet   bool                // paused, and nothing is under way: the process may be left to the next program
	left    bool                // a former program has left it, and TakeUp was not called
	telling bool                // news are told
	early   []model.AgentNews   // else: what is told then
	beside  int                 // bytes of what the agent has said beside its turn since the last prompt

	cost     float64 // of the agent's session, as it was told last
	costFrom float64 // of what runs before have paid
	costTold bool
}

var errClosed = errors.New("the session is closed")

// enter waits until no other Stream or Call is at work.
func (s *Session) enter(ctx context.Context) error {
	select {
	case s.turnstile <- struct{}{}:
		return nil
	case <-s.paused: // nobody leaves it any more
		return model.ErrPaused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) leave() {
	<-s.turnstile
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		s.giveBack()
	}
}

// giveBack gives the memory for calls back, unless somebody has entered, who does it then.
func (s *Session) giveBack() {
	select {
	case s.turnstile <- struct{}{}: // for good
		s.calls.End()
	default:
	}
}

// Stream streams the next message of a turn. Its end is that of the message.
func (s *Session) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if err := s.enter(ctx); err != nil {
			yield(model.Delta{}, err)
			return
		}
		defer s.leave()
		to, fresh := *req.Agent, req.Agent.Fresh
		for {
			t, err := s.open(ctx, &to, req.Load)
			if err == nil {
				err = s.stream(ctx, t, yield)
			}
			if ctx.Err() != nil { // a turn that has begun just then belongs to nobody
				s.Cut()
			}
			if died := new(endedError); errors.As(err, &died) && ctx.Err() == nil {
				if err = s.mayStartAgain(died); err == nil {
					if to.Again = true; t != nil {
						to.Cut = append(to.Cut, t.open()...)
					}
					to.Fresh = s.lacks(fresh, to.Texts)
					continue
				}
			}
			if err != nil {
				yield(model.Delta{}, err)
			}
			return
		}
	}
}

// lacks is how many of the last user messages the agent may not have, where the run loop knows
// of so many.
func (s *Session) lacks(fresh, texts int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(fresh, texts-s.taken)
}

// mayStartAgain counts an end of the agent's, and says that it is started again, or why
// it is not.
func (s *Session) mayStartAgain(died *endedError) error {
	s.mu.Lock()
	others := died.culprit != nil && died.culprit != s
	if !others {
		s.deaths++
		s.apart = s.apart || died.crowded
	}
	n, sent := s.deaths, 0
	if t := s.turn; t != nil {
		sent = t.sent()
		if t.link.ctx.Err() != nil {
			s.turn = nil
			t.in.close()
		}
	}
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return died
	case n > maxDeaths:
		s.took(sent) // nobody sends again what may be the reason
		return failedf("%s has ended %d times without getting on: %s", s.name, n, died.how)
	}
	warning := fmt.Sprintf("%s has ended (%s) and is started again", s.name, died.how)
	if others {
		warning = fmt.Sprintf("%s was ended, as it did not end a turn of session %s, and is started again", s.name,
			died.culprit.id)
	}
	_ = s.report(s.ctx, model.AgentNews{Code: "agent_ended", Warning: warning})
	return nil
}

// took says that the agent has the first of the user messages, so many.
func (s *Session) took(texts int) {
	s.mu.Lock()
	news := texts > s.taken
	s.taken = max(s.taken, texts)
	s.mu.Unlock()
	if news {
		_ = s.report(s.ctx, model.AgentNews{Took: texts})
	}
}

// gotOn says that the agent has done something.
func (s *Session) gotOn() {
	s.mu.Lock()
	s.deaths = 0
	s.mu.Unlock()
}

// further reports that a turn's prompt is for the agent that works on the one before.
func (s *Session) further(t *turn, to *model.AgentTurn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t != nil && s.queues && !t.cut && t.run == to.RunID
}

// open returns the turn that is meant, and begins it where it has not begun.
func (s *Session) open(ctx context.Context, to *model.AgentTurn,
	load func(int) ([]model.Message, func(), error),
) (*turn, error) {
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	if t != nil && t.is(to) && !s.isCut(t) {
		return t, nil
	}
	if s.pausing() {
		return nil, model.ErrPaused
	}
	further := s.further(t, to)
	if t != nil && !further {
		s.Cut()
		select {
		case <-t.over:
		case <-s.paused:
			return nil, model.ErrPaused
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !to.Again { // what the run loop may not have known yet
		to.Fresh = s.lacks(to.Fresh, to.Texts)
	}
	messages, done, err := load(0)
	if err != nil {
		return nil, err
	}
	defer done()
	var p *link
	var lost bool
	if further {
		p = t.link
		s.mu.Lock()
		to.Fresh = min(to.Fresh, to.Texts-t.sent())
		s.mu.Unlock()
	} else if p, lost, err = s.started(ctx, to); err == nil {
		t = newTurn(s, p, to.RunID)
		s.calls.End() // those of a turn that was cut
	}
	if err != nil {
		return nil, err
	}
	all := last(messages, len(messages))
	older := len(all) - min(to.Fresh, len(all))
	if p.told != nil {
		ahead, err := p.told.beyond(ctx, textsOf(all[:older]))
		if err != nil {
			return nil, err
		}
		p.ahead, p.told = ahead, nil
	}
	lost, p.lost = lost || p.lost, false
	fresh := p.lacks(all[older:])
	if len(fresh) == 0 && to.Fresh > 0 {
		to.Fresh = 0
		s.took(to.Texts)
	}
	return t, s.begin(ctx, t, to, s.blocks(p, to, messages, fresh, lost))
}

// begin sends a prompt of a turn.
func (s *Session) begin(ctx context.Context, t *turn, to *model.AgentTurn, blocks []acp.ContentBlock) error {
	sent, err := t.link.calm(ctx)
	if err != nil {
		return err
	}
	defer sent()
	if to.Fresh == 0 { // the agent has the texts: what it gets is ours
		if err := s.report(ctx, model.AgentNews{Prompted: *blocks[0].Text}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.cut: // just now
		return model.ErrCancelled
	}
	p := &prompt{texts: to.Texts, over: make(chan struct{})}
	p.question = t.link.conn.Ask(acp.SessionPrompt, acp.PromptRequest{
		SessionID: t.link.session, Prompt: blocks,
	}, t.hears(p))
	s.turn, t.number, t.prompts, s.beside = t, to.Turn, append(t.prompts, p), 0
	if s.steered {
		s.steered = false
		t.in.unget(event{kind: steered})
	}
	go t.wait(p) // ends with the answer, or the process
	return nil
}

// started returns the session's link to the agent's process, with the session open in it. lost
// reports that the agent does not know what was said before.
func (s *Session) started(ctx context.Context, to *model.AgentTurn) (l *link, lost bool, err error) {
	s.mu.Lock()
	l = s.link
	open := l != nil && l.ctx.Err() == nil && l.chosen
	if to.RunID != "" && to.RunID != s.run { // its deaths are its own
		s.run, s.deaths = to.RunID, 0
	}
	apart := s.apart || s.deaths > 0
	s.mu.Unlock()
	if open {
		return l, false, nil
	}
	spec, err := s.agents.spec(s.name)
	if err != nil {
		return nil, false, failedf("%v", err)
	}
	l, lost, err = s.openAt(ctx, s.agents.join(s, spec, apart), to)
	if err == nil || !l.joined || ctx.Err() != nil || errors.Is(err, errClosed) {
		return l, lost, err
	}
	refused := l.refused
	l, lost, err = s.openAt(ctx, s.agents.join(s, spec, true), to) // it may take one session alone
	if err == nil && !lost && refused {
		s.agents.oneEach(s.name)
	}
	return l, lost, err
}

// openAt opens the session in a process, once that is started.
func (s *Session) openAt(ctx context.Context, l *link, to *model.AgentTurn) (_ *link, lost bool, err error) {
	s.mu.Lock()
	s.link = l
	closed := s.closed
	s.mu.Unlock()
	select {
	case <-l.started:
		err = l.problem
	case <-s.ctx.Done():
		err = errClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !closed && err == nil {
		s.mu.Lock()
		s.queues = l.said.Queues()
		s.mu.Unlock()
		if lost, err = s.openIn(ctx, l, to); err != nil {
			l.refused, err = errors.As(err, new(*acp.Error)), l.spec.problem(err)
		}
	}
	if !closed && err == nil {
		err = s.chooseAgain(ctx, l, to.Choices)
	}
	if closed || err != nil {
		l.leave()
		return l, false, cmp.Or(errors.Join(err, context.Cause(ctx)), errClosed)
	}
	s.mu.Lock()
	l.chosen = true
	if s.ready != nil {
		close(s.ready)
		s.ready = nil
	}
	s.mu.Unlock()
	return l, lost, nil
}

// openIn opens the session in a process: the one that the agent knows, or a new one.
func (s *Session) openIn(ctx context.Context, l *link, to *model.AgentTurn) (lost bool, err error) {
	limit := startTime
	if l.joined {
		limit = joinTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.mu.Lock()
	s.offer = offer{Version: s.offer.Version} // what it does not say again it has no more
	s.mu.Unlock()
	request := acp.OpenRequest{CWD: s.workdir, SessionID: to.Session}
	if give := s.agents.o().Servers; give != nil && !l.spec.NoTools {
		request.MCPServers = s.give(give, l.said.Capabilities.MCP.HTTP)
	}
	if to.Session != "" {
		doubt := to.Fresh > 0 && (to.Again || to.Turn > 1)
		known, err := s.reopen(ctx, l, request, doubt)
		if err != nil {
			return false, err
		}
		if known {
			return false, nil
		}
	}
	request.SessionID = ""
	made, err := l.makeNew(ctx, request)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.cost, s.costTold = 0, true // a new one has cost nothing
	s.mu.Unlock()
	news := model.AgentNews{Session: made}
	if lost = to.Session != "" && to.Texts > to.Fresh; lost {
		news.Code = "agent_forgot"
		news.Warning = s.name + " cannot take the conversation up again: it reads what was said as one text"
	}
	to.Session = made
	return lost, s.report(ctx, news)
}

// reopen has an agent take up a session that it knows. False: it cannot, or refuses. With doubt
// it may have texts that nobody has said it has: what it tells again says so.
func (s *Session) reopen(ctx context.Context, p *link, request acp.OpenRequest, doubt bool) (bool, error) {
	s.mu.Lock()
	s.costTold = false
	s.mu.Unlock()
	if !p.call(request.SessionID) {
		return false, nil
	}
	resume := func() (bool, error) { return p.accepts(ctx, acp.SessionResume, request, s.learnFrom(p)) }
	load := func() (bool, error) { return s.load(ctx, p, request) }
	var ways []func() (bool, error)
	if p.said.Can(canResume) {
		ways = append(ways, resume)
	}
	if p.said.Capabilities.LoadSession {
		ways = append(ways, load)
	}
	if doubt {
		slices.Reverse(ways)
	}
	for _, way := range ways {
		if known, err := way(); known || err != nil {
			return known, err
		}
	}
	p.uncall()
	if p.joined && len(ways) > 0 {
		return false, acp.Errorf(acp.InvalidRequest, "it does not take the session up beside others")
	}
	return false, nil
}

// accepts asks a method of the agent's, and reports whether it does not refuse.
func (p *link) accepts(ctx context.Context, method string, request acp.OpenRequest,
	then func(jsontext.Value, *acp.Error),
) (bool, error) {
	err := p.askThen(ctx, method, request, nil, then)
	if errors.As(err, new(*acp.Error)) {
		return false, nil
	}
	return err == nil, err
}

// load is reopen for an agent that tells the session again.
func (s *Session) load(ctx context.Context, p *link, request acp.OpenRequest) (bool, error) {
	told := &replay{}
	p.mu.Lock()
	p.replay = told
	p.mu.Unlock()
	known, err := p.accepts(ctx, acp.SessionLoad, request, s.learnFrom(p))
	p.mu.Lock()
	p.replay = nil
	p.mu.Unlock()
	if known {
		p.told = told
	}
	return known, err
}

// last are the last n messages of people, and all that stands between.
func last(messages []model.Message, n int) []model.Message {
	var found []model.Message
	for i := len(messages) - 1; i >= 0 && len(found) < n; i-- {
		if messages[i].Role == model.User && !messages[i].Summary {
			found = append([]model.Message{messages[i]}, found...)
		}
	}
	return found
}

func textsOf(messages []model.Message) (texts []string) {
	for _, m := range messages {
		texts = append(texts, m.Text)
	}
	return texts
}

// blocks are the prompt of a turn: the texts that the agent does not have, or how it goes
// on. With lost what was said before comes first.
func (s *Session) blocks(p *link, to *model.AgentTurn, messages, fresh []model.Message, lost bool) (
	out []acp.ContentBlock,
) {
	if len(fresh) == 0 {
		out = append(out, acp.TextBlock(goOn(to.Cut)))
	}
	if lost {
		out = append(out, acp.TextBlock(transcript(messages[:max(0, len(messages)-len(fresh))])))
	}
	for _, m := range fresh {
		if m.Text != "" {
			out = append(out, acp.TextBlock(m.Text))
		}
		for _, a := range m.Attachments {
			out = append(out, image(a, p.said.Capabilities.Prompt.Image))
		}
	}
	return out
}

// goOn is what an agent is told that goes on with a turn which was cut.
func goOn(cut []string) string {
	text := "You were stopped in the middle of this, and have been started again. Go on where you were."
	if len(cut) > 0 {
		text += " These calls were under way; each may or may not have happened, so check before you repeat one: " +
			format.Clip(strings.Join(cut, ", "), 4<<10) + "."
	}
	return text
}

// maxTranscript is how much an agent is informed about a conversation that it does not know, in
// bytes, the newest.
const maxTranscript = 200 << 10

// transcript is a conversation as one text.
func transcript(messages []model.Message) string {
	var out strings.Builder
	for _, m := range messages {
		if m.Text != "" {
			fmt.Fprintf(&out, "%s:\n%s\n", m.Role, format.Indent(m.Text, "> "))
		}
	}
	return "This is what was said before:\n\n" + format.CutStart(out.String(), maxTranscript)
}

// image is an image for an agent, in words for one that sees none.
func image(a model.Attachment, sees bool) acp.ContentBlock {
	data := a.Data
	if sees && len(data) == 0 && a.Open != nil {
		if file, err := a.Open(); err == nil {
			data, _ = io.ReadAll(file)
			_ = file.Close()
		}
	}
	if !sees || len(data) == 0 {
		return acp.TextBlock("[" + a.Title() + " is left out: it cannot be shown]")
	}
	text := base64.StdEncoding.EncodeToString(data)
	return acp.ContentBlock{Type: "image", Data: &text, MimeType: a.MediaType}
}

// Queues reports that the agent takes a prompt while it works on another.
func (s *Session) Queues() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues
}

// Steered says that a steer waits: the message or the call that is told ends there, and the agent
// goes on with it. It does not block.
func (s *Session) Steered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == nil || s.turn.cut {
		s.steered = true
		return
	}
	s.turn.in.unget(event{kind: steered})
}

// Cut has the agent end its turn. It does not block.
func (s *Session) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.cut {
		return
	}
	if t.answered() {
		s.turn, t.cut = nil, true
		t.in.close()
		close(t.over)
		return
	}
	t.refuse()
	s.dropServed()
	t.link.conn.Notify(acp.SessionCancel, acp.SessionOnly{SessionID: t.link.session})
	s.cutTurn(t)
}

// isCut reports that a turn was.
func (s *Session) isCut(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.cut
}

// cutTurn has nobody hear of a turn any more, and its agent ended where it does not end it.
func (s *Session) cutTurn(t *turn) {
	t.cut = true
	t.in.close()
	late := time.AfterFunc(cancelTime, func() { t.link.kill(s) })
	go func() { // ends with the turn
		<-t.over
		late.Stop()
	}()
}

// lost is called when a process has ended.
func (s *Session) lost(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link = nil
	}
}

// Close ends the session's part in the agent, and the agent where it is the last, and waits for
// that. After Pause it leaves the agent to the next program, where that can be.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	s.dropServed()
	l, quiet := s.link, s.quiet
	s.mu.Unlock()
	if l != nil && quiet && l.keep() {
		s.cancel()
		return
	}
	s.cancel()
	s.mu.Lock()
	if s.turn != nil {
		s.turn.in.close()
	}
	s.mu.Unlock()
	s.giveBack()
	if l != nil {
		l.leave()
	}
}

// report tells news. Of a session that nobody has taken up yet it keeps some.
func (s *Session) report(ctx context.Context, news model.AgentNews) error {
	s.mu.Lock()
	tell := s.tell
	switch {
	case s.closed:
		s.mu.Unlock()
		return errClosed
	case !s.telling:
		tell = nil
		if s.early = append(s.early, news); len(s.early) > maxEarly {
			s.early = slices.Clone(s.early[1:])
		}
	}
	s.mu.Unlock()
	if tell == nil {
		return nil
	}
	return tell(ctx, news)
}

// tellEarly tells what was kept of news, and from then on all.
func (s *Session) tellEarly(ctx context.Context) {
	for {
		s.mu.Lock()
		early := s.early
		s.early, s.telling = nil, len(early) == 0
		s.mu.Unlock()
		if len(early) == 0 {
			return
		}
		for _, news := range early {
			if s.tell != nil { // else nobody has opened it
				_ = s.tell(ctx, news)
			}
		}
	}
}

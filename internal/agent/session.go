package agent

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"noused/internal/acp"
	"noused/internal/format"
	"noused/internal/model"
)

// maxDeaths is how often an agent may end in a turn without getting on, and is started
// again.
const maxDeaths = 3

// Session is an agent at work in one session.
type Session struct {
	agents            *Agents
	id, name, workdir string
	tell              func(context.Context, model.AgentNews)
	ctx               context.Context // ends with Close
	cancel            context.CancelFunc
	turnstile         chan struct{} // holds one while Stream or Call is at work

	mu      sync.Mutex
	process *process
	turn    *turn
	run     string // that the agent has worked in last
	deaths  int    // in it, since the agent has got on last
	taken   int    // of the user messages, as took has said
	closed  bool
	offer   offer
	ready   chan struct{} // closed once the session is open in a process; nil: nobody waits

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
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) leave() { <-s.turnstile }

// Stream streams the next message of a turn. Its end is that of the message.
func (s *Session) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if err := s.enter(ctx); err != nil {
			yield(model.Delta{}, err)
			return
		}
		defer s.leave()
		to := *req.Agent
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
					to, to.Again = after(to, t), true
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

// after is how a turn goes on whose agent has ended.
func after(to model.AgentTurn, t *turn) model.AgentTurn {
	if t != nil && t.took {
		to.Fresh = 0
	}
	if t != nil {
		to.Cut = append(to.Cut, t.open()...)
	}
	return to
}

// mayStartAgain counts an end of the agent's, and says that it is started again, or why
// it is not.
func (s *Session) mayStartAgain(died *endedError) error {
	s.mu.Lock()
	s.deaths++
	n, sent := s.deaths, s.turn
	if t := s.turn; t != nil && t.process.ctx.Err() != nil {
		s.turn = nil
	}
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return died
	case n > maxDeaths:
		if sent != nil { // nobody sends again what may be the reason
			s.took(sent.texts)
		}
		return failedf("%s has ended %d times without getting on: %s", s.name, n, died.how)
	}
	s.tell(s.ctx, model.AgentNews{
		Code: "agent_ended", Warning: fmt.Sprintf("%s has ended (%s) and is started again", s.name, died.how),
	})
	return nil
}

// took says that the agent has the first of the user messages, so many.
func (s *Session) took(texts int) {
	s.mu.Lock()
	news := texts > s.taken
	s.taken = max(s.taken, texts)
	s.mu.Unlock()
	if news {
		s.tell(s.ctx, model.AgentNews{Took: texts})
	}
}

// gotOn says that the agent has done something.
func (s *Session) gotOn() {
	s.mu.Lock()
	s.deaths = 0
	s.mu.Unlock()
}

// open returns the turn that is meant, and begins it where it has not begun.
func (s *Session) open(ctx context.Context, to *model.AgentTurn,
	load func(int) ([]model.Message, func(), error),
) (*turn, error) {
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	if t != nil && t.is(to) {
		return t, nil
	}
	if t != nil { // it was cut
		select {
		case <-t.over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	s.mu.Lock()
	if !to.Again { // what the run loop may not have known yet
		to.Fresh = min(to.Fresh, to.Texts-s.taken)
	}
	s.mu.Unlock()
	messages, done, err := load(0)
	if err != nil {
		return nil, err
	}
	defer done()
	p, lost, err := s.started(ctx, to, messages)
	if err != nil {
		return nil, err
	}
	lost, p.lost = lost || p.lost, false
	return s.begin(ctx, p, to, s.blocks(p, to, messages, lost))
}

// begin sends the prompt of a turn.
func (s *Session) begin(ctx context.Context, p *process, to *model.AgentTurn, prompt []acp.ContentBlock) (*turn,
	error,
) {
	t := newTurn(s, p, to)
	if to.Fresh == 0 { // the agent has the texts: what it gets is ours
		t.took = true
		s.tell(ctx, model.AgentNews{Prompted: *prompt[0].Text})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.turn = t
	go t.prompt(acp.PromptRequest{SessionID: p.session, Prompt: prompt}) // ends with the answer, or the process
	return t, nil
}

// started returns the agent's process with the session open in it. lost reports that the
// agent does not know what was said before.
func (s *Session) started(ctx context.Context, to *model.AgentTurn, messages []model.Message) (p *process, lost bool,
	err error,
) {
	s.mu.Lock()
	p = s.process
	open := p != nil && p.ctx.Err() == nil && p.session != ""
	if to.RunID != "" && to.RunID != s.run { // its deaths are its own
		s.run, s.deaths = to.RunID, 0
	}
	s.mu.Unlock()
	if open {
		return p, false, nil
	}
	if p, err = s.start(ctx); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	s.process = p
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		lost, err = s.openIn(ctx, p, to, messages)
	}
	if !closed && err == nil {
		err = s.chooseAgain(ctx, p, to.Choices)
	}
	if closed || err != nil {
		p.p.Stop()
		<-p.over
		return nil, false, cmp.Or(errors.Join(err, context.Cause(ctx)), errClosed)
	}
	s.mu.Lock()
	p.chosen = true
	if s.ready != nil {
		close(s.ready)
		s.ready = nil
	}
	s.mu.Unlock()
	return p, lost, nil
}

// openIn opens the session in a process: the one that the agent knows, or a new one.
func (s *Session) openIn(ctx context.Context, p *process, to *model.AgentTurn, messages []model.Message) (lost bool,
	err error,
) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	spec, err := s.agents.spec(s.name)
	if err != nil {
		return false, failedf("%v", err)
	}
	s.mu.Lock()
	s.offer = offer{version: s.offer.version} // what it does not say again it has no more
	s.mu.Unlock()
	request := acp.OpenRequest{CWD: s.workdir, SessionID: to.Session}
	if to.Session != "" {
		known, err := s.reopen(ctx, p, to, request, messages)
		if err != nil {
			return false, s.problem(spec, err)
		}
		if known {
			s.mu.Lock()
			p.session = to.Session
			s.mu.Unlock()
			return false, nil
		}
	}
	request.SessionID = ""
	var made acp.SessionOnly
	if err = p.askThen(ctx, acp.SessionNew, request, &made, s.learnFrom(p)); err == nil && made.SessionID == "" {
		err = errors.New("its answer to session/new has no sessionId")
	}
	if err == nil && len(made.SessionID) > maxID {
		err = fmt.Errorf("its sessionId has %d bytes, want at most %d", len(made.SessionID), maxID)
	}
	if err != nil {
		return false, s.problem(spec, err)
	}
	s.mu.Lock()
	p.session = made.SessionID
	s.cost, s.costTold = 0, true // a new one has cost nothing
	s.mu.Unlock()
	news := model.AgentNews{Session: made.SessionID}
	if lost = to.Session != "" && to.Texts > to.Fresh; lost {
		news.Code = "agent_forgot"
		news.Warning = s.name + " cannot take the conversation up again: it reads what was said as one text"
	}
	to.Session = made.SessionID
	s.tell(ctx, news)
	return lost, nil
}

// reopen has an agent take up a session that it knows. False: it cannot, or refuses.
func (s *Session) reopen(ctx context.Context, p *process, to *model.AgentTurn, request acp.OpenRequest,
	messages []model.Message,
) (bool, error) {
	s.mu.Lock()
	s.costTold = false
	s.mu.Unlock()
	refused := func(err error) bool { return errors.As(err, new(*acp.Error)) }
	if p.said.Can("resume") {
		err := p.askThen(ctx, acp.SessionResume, request, nil, s.learnFrom(p))
		if err == nil || !refused(err) {
			return err == nil, err
		}
	}
	if !p.said.Capabilities.LoadSession {
		return false, nil
	}
	told := &replay{}
	p.mu.Lock()
	p.replay = told
	p.mu.Unlock()
	err := p.askThen(ctx, acp.SessionLoad, request, nil, s.learnFrom(p))
	p.mu.Lock()
	p.replay = nil
	p.mu.Unlock()
	if err != nil {
		if refused(err) {
			err = nil
		}
		return false, err
	}
	if texts := textsOf(last(messages, to.Fresh)); to.Again && to.Fresh > 0 && told.has(texts) {
		to.Fresh = 0
		s.took(to.Texts)
	}
	return true, nil
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
func (s *Session) blocks(p *process, to *model.AgentTurn, messages []model.Message, lost bool) (
	out []acp.ContentBlock,
) {
	fresh := last(messages, to.Fresh)
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

// Cut has the agent end its turn. It does not block.
func (s *Session) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.cut {
		return
	}
	select {
	case <-t.over:
		s.turn = nil
		return
	default:
	}
	t.cut = true
	t.in.close()
	t.refuse()
	t.process.conn.Notify(acp.SessionCancel, acp.SessionOnly{SessionID: t.process.session})
	late := time.AfterFunc(cancelTime, t.process.p.Kill)
	go func() { // ends with the turn
		<-t.over
		late.Stop()
	}()
}

// lost is called when a process has ended.
func (s *Session) lost(p *process, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == p {
		s.process = nil
	}
}

// Close ends the agent, and waits for that.
func (s *Session) Close() {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	p := s.process
	if s.turn != nil {
		s.turn.in.close()
	}
	s.mu.Unlock()
	if p != nil {
		p.end(&endedError{"the daemon has ended it"}) // nobody takes in what it says
		p.p.Stop()
		<-p.over
	}
}

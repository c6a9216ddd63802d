package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/model"
)

// turn is what an agent works on: a prompt, and where it takes prompts while it works those that
// have come meanwhile, each for a steer.
type turn struct {
	s    *Session
	link *link
	run  string
	in   *inbox
	over chan struct{} // closed once it is cut, and its prompts are answered or the process has ended

	// Guarded by the session. number and prompts change while it is entered.
	number  int
	prompts []*prompt // whose answers nobody has taken in, the oldest first
	cut     bool
	asked   []*acp.Request // that have no answer

	// The rest is of who takes from the inbox.
	spoke   bool // the message that a pause has cut has text
	message string
	calls   map[string]*call
	order   []*call  // that are not over
	served  []string // our tools that were called, and that the agent has not told yet
	held    int      // bytes that are kept of these
}

// prompt is one that an agent was sent.
type prompt struct {
	texts    int // user messages that the agent has, once it has this
	question *acp.Question
	over     chan struct{} // closed once it is answered, or the process has ended
}

func newTurn(s *Session, l *link, run string) *turn {
	return &turn{
		s: s, link: l, run: run, in: newInbox(s.agents.words), over: make(chan struct{}), calls: map[string]*call{},
	}
}

// sent is how many user messages the agent was sent. It is called under the session's lock.
func (t *turn) sent() int {
	if len(t.prompts) == 0 {
		return 0
	}
	return t.prompts[len(t.prompts)-1].texts
}

// answered reports that all prompts are over. It is called under the session's lock.
func (t *turn) answered() bool {
	for _, p := range t.prompts {
		select {
		case <-p.over:
		default:
			return false
		}
	}
	return true
}

func (t *turn) is(to *model.AgentTurn) bool { return t.run == to.RunID && t.number == to.Turn }

// open are the names of the calls that are under way.
func (t *turn) open() (names []string) {
	for _, c := range t.order {
		if c.id != "" {
			names = append(names, c.name)
		}
	}
	return names
}

// refuse answers everything that the agent has asked. It is called under the session's
// lock.
func (t *turn) refuse() {
	for _, r := range t.asked {
		r.Reply(acp.Selected(""))
	}
	t.asked = nil
}

// wait waits for the answer to a prompt.
func (t *turn) wait(p *prompt) {
	err := t.link.answer(context.Background(), t.link.ctx, acp.SessionPrompt, p.question, nil)
	died := errors.As(err, new(*endedError))
	t.s.mu.Lock()
	cut := t.cut
	t.s.mu.Unlock()
	if cut || !died { // what was sent and then cut is not sent again
		t.s.took(p.texts)
	}
	if died {
		<-t.link.over
		t.in.put(t.link.ctx, event{kind: gone, err: err}, 0)
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	close(p.over)
	if !t.answered() {
		return
	}
	t.refuse()
	t.s.dropServed()
	if t.cut {
		if t.s.turn == t {
			t.s.turn = nil
		}
		close(t.over)
	}
}

// hears takes in the answer to a prompt, in the order of what the agent says.
func (t *turn) hears(p *prompt) func(jsontext.Value, *acp.Error) {
	return func(raw jsontext.Value, refused *acp.Error) {
		e := event{kind: ended, prompt: p}
		if refused != nil {
			e.err = refused
		} else {
			e.err = read(acp.SessionPrompt, raw, &e.answer)
		}
		t.hear(e)
	}
}

// hear takes in what the agent does in the turn. Where nobody does that in time, and other
// sessions wait for it, the turn is cut.
func (t *turn) hear(e event) {
	for !t.in.put(t.link.ctx, e, roomTime) {
		if t.link.isShared() {
			t.link.conn.Notify(acp.SessionCancel, acp.SessionOnly{SessionID: t.link.session})
			t.in.choke(event{kind: choked, err: failedf("%s has said more than could be taken in, and other sessions of it "+
				"waited for that", t.s.name)})
			return
		}
	}
}

// isLast reports that no other prompt is to be answered.
func (t *turn) isLast(p *prompt) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return len(t.prompts) == 1 && t.prompts[0] == p
}

// told takes in that a prompt is answered, and reports whether it was the last: its answer is
// that to the turn.
func (t *turn) told(p *prompt) (last bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.prompts = slices.DeleteFunc(t.prompts, func(other *prompt) bool { return other == p })
	return len(t.prompts) == 0
}

// oldest is how many user messages the oldest prompt leads to: what the agent says may be about
// that, and says of no other that it has it.
func (t *turn) oldest() int {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if len(t.prompts) == 0 {
		return 0
	}
	return t.prompts[0].texts
}

// next is the next event of a turn.
func (s *Session) next(ctx context.Context, t *turn) (event, error) {
	spec, _ := s.agents.spec(s.name)
	e, err := t.in.next(ctx, s.paused, spec.Idle)
	if errors.Is(err, errSilent) {
		t.link.kill(s)
		e, err = t.in.next(ctx, nil, 0)
		if e.kind == gone {
			e.err = &endedError{how: fmt.Sprintf("it said nothing for %v", spec.Idle), culprit: s}
		}
	}
	switch {
	case err != nil, e.kind == gone, e.kind == steered:
	case e.kind == ended:
		s.took(e.prompt.texts)
	default:
		s.took(t.oldest())
	}
	return e, err
}

// stream streams a message.
func (s *Session) stream(ctx context.Context, t *turn, yield func(model.Delta, error) bool) error {
	t.reject()
	spoke, size := t.spoke, 0
	t.spoke = false
	for {
		e, err := s.next(ctx, t)
		if err != nil {
			t.spoke = spoke
			return err
		}
		switch e.kind {
		case said, thought:
			if spoke && e.id != t.message {
				t.in.unget(e)
				yield(model.Delta{Stop: model.StopEnd, More: true}, nil)
				return nil
			}
			if size += len(e.text); size > model.MaxContent {
				s.Cut()
				return failedf("%s: the message holds more than %d MiB", s.name, model.MaxContent>>20)
			}
			s.gotOn()
			t.message, spoke = e.id, spoke || e.kind == said
			if !yield(deltaOf(e), nil) {
				return nil
			}
		case wanted:
			if e.serving.ctx.Err() != nil { // nobody waits any more
				continue
			}
			s.gotOn()
			t.tellServed(e.serving.call.Name)
			if yield(model.Delta{ToolCall: &e.serving.call}, nil) {
				yield(model.Delta{Stop: model.StopToolCalls, More: true}, nil)
			}
			return nil
		case called, asked:
			c, err := t.merge(ctx, e)
			if err != nil {
				return err
			}
			if c.due() {
				if err := t.settle(ctx, c); err != nil {
					return err
				}
				if yield(model.Delta{ToolCall: c.tell(s.agents.o().NewID)}, nil) {
					yield(model.Delta{Stop: model.StopToolCalls, More: true}, nil)
				}
				return nil
			}
		case used:
			s.spent(e.usage)
		case steered:
			yield(model.Delta{Stop: model.StopEnd, More: true}, nil)
			return nil
		case ended:
			if t.told(e.prompt) {
				return s.finish(t, e, yield)
			}
			if !yield(model.Delta{Usage: usageOf(e.answer.Usage)}, nil) {
				return nil
			}
		case choked:
			s.Cut()
			return e.err
		case gone:
			return e.err
		}
	}
}

// askTime is how long a call that has begun is not told, since some agents ask about it
// only then.
const askTime = 400 * time.Millisecond

// settle waits for what an agent says of a call right after its beginning.
func (t *turn) settle(ctx context.Context, c *call) error {
	for until := time.Now().Add(askTime); c.ask == nil && !c.final(); {
		e, err := t.in.next(ctx, nil, max(time.Until(until), 1))
		switch {
		case errors.Is(err, errSilent):
			return nil
		case err != nil:
			return err
		case (e.kind != called && e.kind != asked) || t.calls[e.call.ID] != c:
			t.in.unget(e)
			return nil
		}
		if _, err := t.merge(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func deltaOf(e event) model.Delta {
	if e.kind == thought {
		return model.Delta{Thinking: e.text}
	}
	return model.Delta{Text: e.text}
}

// finish ends a turn that the agent has answered.
func (s *Session) finish(t *turn, e event, yield func(model.Delta, error) bool) error {
	s.gotOn()
	t.in.close()
	s.calls.End()
	s.mu.Lock()
	if s.turn == t {
		s.turn = nil
	}
	usage := usageOf(e.answer.Usage)
	if paid := s.cost - s.costFrom; s.costTold && paid > 0 {
		usage.Cost = int64(math.Min(paid, 1e6) * 1e9)
		s.costFrom = s.cost // what a turn has cost that was cut counts with the next
	}
	s.mu.Unlock()
	if e.err != nil {
		spec, _ := s.agents.spec(s.name)
		return spec.problem(e.err)
	}
	stop := model.StopEnd
	switch e.answer.StopReason {
	case acp.EndTurn:
	case acp.MaxTokens:
		stop = model.StopLength
	case acp.StopCancelled: // by itself: what we cancel nobody waits for
		return model.ErrCancelled
	case acp.Refusal:
		return fmt.Errorf("%s: %w", s.name, model.ErrRefused)
	case acp.MaxTurnRequests:
		return &model.AgentError{Code: "step_limit", Message: s.name + " has reached its own limit of model calls"}
	default:
		return fmt.Errorf("%s: its turn ended for a reason that is not known: %.40q", s.name, e.answer.StopReason)
	}
	yield(model.Delta{Stop: stop, Usage: usage}, nil)
	return nil
}

func usageOf(u *acp.PromptUsage) model.Usage {
	if u == nil {
		return model.Usage{}
	}
	return model.Usage{
		InputTokens:  u.InputTokens + u.CachedReadTokens + u.CachedWriteTokens,
		OutputTokens: u.OutputTokens, CachedTokens: u.CachedReadTokens, CacheWriteTokens: u.CachedWriteTokens,
	}.Believed()
}

// spent takes in what the agent's session has cost. Of one that was taken up again the
// first figure says what it had cost before.
func (s *Session) spent(u acp.Usage) {
	if u.Cost == nil || u.Cost.Currency != "USD" || u.Cost.Amount < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cost = u.Cost.Amount; !s.costTold {
		s.costTold, s.costFrom = true, s.cost
	}
}

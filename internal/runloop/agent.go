package runloop

import (
	"context"
	"errors"
	"fmt"

	"noused/internal/budget"
	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A hosted session's turns are made by another agent, in the place of models and tools:
// what it says streams as a model's answer does, and each of its calls is one that the
// machine decides about and waits for. So the queue, the approvals, the journal and the
// fate of texts are the same as with the daemon's own loop.

// Agents are the hosted agents. All methods may be called from any goroutine.
type Agents interface {
	// Default is what sessions have that name none; "" is the daemon's own loop.
	Default() string
	// Check says why no session can have that agent; its error is for people. It does not block.
	Check(name string) error
	// Missing says why an agent cannot be started, nil where it can. It blocks for the disk.
	Missing(name string) error
	// Resumes reports whether a run goes on that a crash has cut.
	Resumes(name string) bool
	// Open returns the agent of a session, and starts nothing. tell blocks until the
	// session has taken the news in, or ctx ends.
	Open(sessionID, name, workdir string, tell func(ctx context.Context, news model.AgentNews)) Agent
}

// Agent makes the turns of one session. Stream and Call are called one after the other.
type Agent interface {
	// Model streams the next message of the turn that Request.Agent says: it begins the
	// turn, or goes on with it. A message that has calls is followed by Call for those
	// that are allowed; one with Delta.More by another Stream.
	Model
	// Call waits for a call that a message has had, and lets it happen where the agent
	// has asked. It fails only through its result.
	Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult
	// Judge says what the rules make of a call, as [Policy].Judge does. What the agent has
	// not asked about is allowed: it happens in any case.
	Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict
	// Offer returns what can be chosen, and starts the agent for it where it does not run and
	// no turn is under way (running): a turn starts it. at is where the session stands. It
	// blocks for 2 minutes at most.
	Offer(ctx context.Context, at model.AgentTurn, running bool) (*model.AgentOffer, error)
	// Choose has the agent take a value of an option, and starts it as Offer does. It returns
	// the value that the option has then. An unknown option or value is a
	// *[model.AgentOptionError].
	Choose(ctx context.Context, at model.AgentTurn, running bool, id, value string) (string, error)
	// Cut has the agent end the turn that it works on. It does not block.
	Cut()
	// Close ends the agent, and waits for that.
	Close()
}

// maxAgentTitle is how long a title is that an agent gives, in bytes.
const maxAgentTitle = 200

// agentIn is something that the session's agent has said beside its turn.
type agentIn struct{ news model.AgentNews }

func (in agentIn) step(m *machine) {
	n := in.news
	run := m.s.Run
	if n.Session != "" && n.Session != m.s.AgentSession {
		m.record(session.AgentSession{ID: n.Session})
	}
	if n.Took > m.s.Taken {
		m.record(session.AgentTook{Texts: n.Took})
	}
	if n.Prompted != "" && run != nil {
		m.record(session.AgentPrompted{RunID: run.ID, Text: n.Prompted})
	}
	if title := format.Clip(format.Line(n.Title), maxAgentTitle); title != "" && title != m.s.Title && !m.s.Titled {
		m.record(session.TitleSet{Title: title, Agent: true})
		m.publish(protocol.Status{
			Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusTitleSet, Message: "the session is called " + title,
			Title: title,
		})
	}
	if n.Offer != nil {
		m.offered(n.Offer)
	}
	if n.Patch != nil {
		m.warned(m.ref(), "", model.ToolUpdate{Patch: n.Patch})
	}
	if n.Warning != "" {
		m.publish(protocol.Warning{Ref: m.ref(), Code: protocol.Code(n.Code), Message: n.Warning})
	}
}

// hosted reports that another agent makes the session's turns.
func (m *machine) hosted() bool { return m.s.Agent != "" }

// agentName is what makes a session's turns, as the wire has it.
func agentName(name string) string {
	if name == "" {
		return protocol.OwnAgent
	}
	return name
}

// agentMissing refuses a prompt whose agent cannot be started, nil where it can.
func (m *machine) agentMissing() *protocol.Error {
	if !m.hosted() || m.agents == nil {
		return nil
	}
	if err := m.agents.Missing(m.s.Agent); err != nil {
		return protocol.Rejectf(protocol.AgentMissing, "%v", err)
	}
	return nil
}

// unsupported refuses a command that the session's agent has no way to do.
func (m *machine) unsupported(what string) *protocol.Error {
	return protocol.Rejectf(protocol.UnsupportedByAgent, "%s cannot %s", m.s.Agent, what)
}

// callAgent has the agent begin the turn, or go on with it.
func (m *machine) callAgent() {
	if why := m.spentTerms(); why != nil {
		m.endTurn(protocol.StopError, why)
		return
	}
	if why := m.overLimit(); why != nil {
		m.overBudget(why)
		return
	}
	m.msg = message{id: m.newID("msg-"), model: m.s.Agent}
	m.await(streaming, work{call: &modelCall{
		before: m.recordFirst(false), workdir: m.workdir(), agent: &model.AgentTurn{
			RunID: m.s.Run.ID, Turn: m.s.Run.Turn, Texts: m.s.Texts, Fresh: m.s.Texts - m.s.Taken,
			Again: m.turnCut, Session: m.s.AgentSession, Cut: m.cutCalls, Choices: m.s.Choices,
		},
		history: m.s.Conversation(), fit: func(all []model.Message) []model.Message { return all },
	}})
	m.cutCalls, m.turnCut = nil, false
}

// agentDone goes on from the end of what the agent has streamed.
func (m *machine) agentDone(err error) {
	if err == nil && m.msg.stop == "" {
		err = fmt.Errorf("%s broke off without a stop reason", m.s.Agent)
	}
	more := m.msg.more
	switch stop := m.msg.stop; {
	case errors.Is(err, model.ErrCancelled):
		if m.msg.started {
			m.endMessage(model.StopAborted)
		}
		m.endTurn(protocol.StopAborted, nil)
		return
	case err != nil:
		if m.msg.started {
			m.endMessage(model.StopError)
		}
		m.endTurn(protocol.StopError, providerError(err))
		return
	case m.msg.started:
		m.endMessage(stop)
	case m.msg.usage != (model.Usage{}): // that of no message
		m.record(session.Spent(m.s.Run.ID, m.msg.usage))
	}
	switch {
	case len(m.s.Run.Calls) > 0:
		m.nextCall()
	case m.steerWaits() && more:
		m.endTurn(protocol.StopSteered, nil)
	case more:
		m.callModel()
	default:
		m.endAnswered()
	}
}

// steerAgent cuts what the agent says for a steer that waits. A call that it has made
// is waited for.
func (m *machine) steerAgent() {
	if len(m.msg.calls) > 0 {
		return
	}
	m.cancel()
	if m.msg.started {
		m.endMessage(model.StopAborted)
	}
	m.endTurn(protocol.StopSteered, nil)
}

// cutText is the result of a call that was under way when its agent ended.
const cutText = "unknown: it may or may not have happened"

// resumeAgent ends what was under way when the daemon did: the agent has ended with it.
func (m *machine) resumeAgent(interrupted string) {
	if q := m.s.Run.Question; q.Open() && q.Kind == protocol.ApprovalTool {
		m.withdraw(protocol.ByRestart)
	}
	if interrupted != "" {
		m.cutCalls = append(m.cutCalls, interrupted)
	}
	for _, call := range m.s.Run.Calls {
		m.cutCalls = append(m.cutCalls, call.Name)
		m.failCall(call, model.Failed(model.Interrupted, cutText), false)
	}
}

// resumeAgentTurn goes on inside the open turn.
func (m *machine) resumeAgentTurn() {
	m.deliver(m.undelivered())
	if m.steerWaits() {
		m.endTurn(protocol.StopSteered, nil)
		return
	}
	m.turnCut = true
	m.callModel()
}

// openAgent gives the loop of a hosted session its agent.
func (l *loop) openAgent(s *session.State) {
	if s.Agent == "" || l.env.Agents == nil {
		return
	}
	l.agent = l.env.Agents.Open(s.ID, s.Agent, l.m.workdir(), func(ctx context.Context, news model.AgentNews) {
		_ = l.post(ctx, agentIn{news})
	})
	l.m.agents, l.m.agent, l.m.judge = l.env.Agents, l.agent, l.agent.Judge
}

func (l *loop) closeAgent() {
	if l.agent != nil {
		l.agent.Close()
	}
}

// streamAgent is stream for a hosted session.
func (l *loop) streamAgent(ctx context.Context, gen int, call modelCall, req model.Request, part *budget.Part) error {
	if l.agent == nil {
		return errors.New("this daemon hosts no agents")
	}
	l.recordBefore(ctx, gen, call.workdir, call.before)
	req.Agent = call.agent
	req.Load = func(int) ([]model.Message, func(), error) { return l.loadForAgent(ctx, gen, call) }
	for delta, err := range l.agent.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if err := grow(ctx, part, len(delta.Text)+len(delta.Thinking)); err != nil {
			return err
		}
		if err := l.post(ctx, deltaIn{gen, delta}); err != nil {
			return err
		}
	}
	return nil
}

// loadForAgent reads the conversation, once there is room for it, until done.
func (l *loop) loadForAgent(ctx context.Context, gen int, call modelCall) (messages []model.Message, done func(),
	err error,
) {
	making := l.env.requests.Begin()
	if err = making.Grow(ctx, call.history.Bytes()); err == nil {
		messages, err = l.env.Store.Messages(ctx, l.id, call.history, 0)
	}
	if err == nil {
		messages, err = l.withImages(ctx, gen, messages)
	}
	if err != nil {
		making.End()
		return nil, nil, err
	}
	return messages, making.End, nil
}

// defaultAgent is what a session has that names none.
func (h *Hub) defaultAgent() string {
	if h.env.Agents == nil {
		return ""
	}
	return h.env.Agents.Default()
}

// agentOf is the agent that new_session means, "" for the daemon's own loop.
func (h *Hub) agentOf(name string) (string, error) {
	switch {
	case name == "":
		return h.defaultAgent(), nil
	case name == protocol.OwnAgent:
		return "", nil
	case h.env.Agents == nil:
		return "", protocol.Errorf(protocol.InvalidPayload, "agent: this daemon hosts none")
	}
	if err := h.env.Agents.Check(name); err != nil {
		return "", protocol.Errorf(protocol.InvalidPayload, "agent: %v", err)
	}
	return name, nil
}

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
	// Open returns the agent of a session, and starts nothing. tell blocks until the session
	// has taken the news in, or ctx ends. Where its error is nil, the agent's session, and what
	// it is prompted with, are in the journal: only then may the agent be prompted.
	Open(sessionID, name, workdir string, tell func(ctx context.Context, news model.AgentNews) error) Agent
}

// Agent makes the turns of one session. Stream and Call are called one after the other.
type Agent interface {
	// Model streams the next message of the turn that Request.Agent says: it begins the
	// turn, or goes on with it. A message that has calls is followed by Call for those
	// that are allowed; one with Delta.More by another Stream.
	Model
	// Call waits for a call that a message has had, and lets it happen where the agent
	// has asked. It fails only through its result. With ours the call has come to a tool of
	// ours, with the arguments that it was told with, which the caller runs in its place; Serve
	// waits for its result. Call asks may before that: where that says no, the call of our tool
	// is one more of the next message.
	Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate),
		may func(ours model.ToolCall) bool) (res model.ToolResult, ours *model.ToolCall)
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
	// Serve has the agent's turn make a call of a tool of ours that the agent has asked for, and
	// blocks until Answer has its result, ctx ends, or the turn does; the error says why it is
	// not made.
	Serve(ctx context.Context, call model.ToolCall) (model.ToolResult, error)
	// Own are the names of the MCP servers that the agent reaches by itself.
	Own() []string
	// Serves reports whether Serve waits for that call.
	Serves(callID string) bool
	// Answer gives a call's result to the Serve that waits for it, if any does.
	Answer(callID string, res model.ToolResult)
	// Queues reports that the agent takes a prompt while it works on another.
	Queues() bool
	// Steered says that a steer waits for an agent that Queues: the message that Stream streams,
	// or the call that Call waits for, is told as ended, and the agent goes on. It does not block.
	Steered()
	// Cut has the agent end the turn that it works on. It does not block.
	Cut()
	// Close ends the agent, and waits for that.
	Close()
}

// Keeper is an Agent that can live on while the daemon starts anew.
type Keeper interface {
	// Pause has Stream and Call return soon, with [model.ErrPaused] and
	// [model.ToolResult].Paused, and then tells AgentNews.Paused, once. It does not block.
	// The next program has what Close leaves after that.
	Pause()
	// TakeUp goes on with what a former program has left, if anything. kept reports that
	// the agent is where that run is, in that turn, or between two where turn is 0; shown,
	// that the call that is under way has shown something. It does not block.
	TakeUp(runID string, turn int) (kept, shown bool)
}

// maxAgentTitle is how long a title is that an agent gives, in bytes.
const maxAgentTitle = 200

// agentIn is something that the session's agent has said beside its turn.
type agentIn struct {
	news model.AgentNews
	kept ticket // of who waits until it is in the journal; nil: nobody
}

func (in agentIn) step(m *machine) {
	n := in.news
	m.reply(in.kept, nil)
	m.quieting = m.quieting && !n.Paused
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

// queues reports that another agent makes the session's turns, which takes a prompt while it works.
func (m *machine) queues() bool { return m.hosted() && m.agent != nil && m.agent.Queues() }

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
	m.streamAgent()
}

// streamAgent has the next message streamed.
func (m *machine) streamAgent() {
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
	if errors.Is(err, model.ErrPaused) && m.park() {
		return
	}
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
	if m.s.Run.Aborting { // nothing of it is told any more
		return
	}
	q := m.s.Run.Question
	for _, call := range m.s.Run.Calls {
		switch about := q != nil && q.CallID == call.ID; {
		case about && q.Decided.By == protocol.BySteer && m.steerWaits():
			return // the agent never had leave: it is skipped, as it was going to be
		case about && q.Decided.Outcome == protocol.OutcomeDenied:
			m.failCall(call, denied(q), false)
		default:
			m.cutCalls = append(m.cutCalls, call.Name)
			m.failCall(call, model.Failed(model.Interrupted, cutText), false)
		}
	}
}

// pauseIn leaves a hosted session to the next program, whose agent lives on.
type pauseIn struct{}

func (pauseIn) step(m *machine) {
	m.draining, m.quieting, m.out.pause = true, true, true
	m.refusePostponed()
	switch m.phase {
	case waiting, modelless:
		m.park()
	case ending: // the next daemon asks them again
		m.cancel()
		m.park()
	case idle, streaming, calling, looking, compacting, parked: // what is under way ends soon
	}
}

// parkCall leaves the call that is under way to the next program.
func (m *machine) parkCall() {
	if m.s.Run.Aborting { // its end is that of the run
		m.endCall(m.call, model.Failed("aborted", "stopped; it may have done part of its work; check"), false,
			m.now.Sub(m.since))
		m.finishAbort()
		return
	}
	m.park()
}

// takenUp goes on with a run whose agent has lived on while the daemon was started anew, and
// reports whether that is so.
func (m *machine) takenUp() bool {
	run := m.s.Run
	if !m.hosted() || m.takeUp == nil {
		return false
	}
	if run == nil {
		m.takeUp("", 0)
		return false
	}
	turn := 0
	if run.TurnOpen {
		turn = run.Turn
	}
	kept, shown := m.takeUp(run.ID, turn)
	if !kept || run.Question.Form() {
		return false
	}
	call := run.Call(run.Started)
	switch {
	case run.Aborting:
		if call.ID != "" {
			m.call, m.since, m.said = call, run.StartedAt, shown
			m.parkCall()
			break
		}
		m.finishAbort()
	case m.park():
	case run.Question.Open(): // people have been told
		m.phase, m.since = waiting, m.now
		m.steered()
	case run.Turn == 0:
		m.startTurn(protocol.KindPrompt, m.prompts())
	case !run.TurnOpen:
		m.afterTurn()
	case call.ID != "":
		m.call, m.said = model.ToolCall{ID: call.ID, Name: call.Name}, shown
		inv := m.invocation(m.call)
		if q := run.Question; q != nil && q.CallID == call.ID {
			inv.Option = q.Decided.Option
		}
		m.await(calling, work{tool: inv})
		m.since = run.StartedAt
		m.steered()
	case run.Question != nil:
		m.resumeQuestion()
	case len(run.Calls) > 0:
		m.afterCall()
	default:
		m.goOnStreaming()
	}
	return true
}

// goOnStreaming goes on with the message that is under way, if any is.
func (m *machine) goOnStreaming() {
	open, said := m.s.Run.Open, m.s.Run.Said
	m.deliver(m.undelivered())
	if open.ID == "" && m.steerWaits() {
		m.endTurn(protocol.StopSteered, nil)
		return
	}
	if open.ID == "" {
		m.callAgent()
		return
	}
	m.streamAgent()
	m.msg = message{id: open.ID, model: open.Model, started: true, size: sizeOf(model.Delta{
		Text: said.Text, Thinking: said.Thinking,
	})}
	m.msg.text.WriteString(said.Text)
	m.msg.thinking.WriteString(said.Thinking)
	m.steered()
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
	l.agent = l.env.Agents.Open(s.ID, s.Agent, l.m.workdir(), l.hear)
	l.m.agents, l.m.agent, l.m.serves = l.env.Agents, l.agent, l.agent.Serves
	l.m.judge = func(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
		if l.agent.Serves(inv.ID) && l.env.Policy != nil {
			return l.env.Policy.Judge(inv, mode, answers)
		}
		return l.agent.Judge(inv, mode, answers)
	}
	if k, ok := l.agent.(Keeper); ok {
		l.keeps, l.m.takeUp = k, k.TakeUp
	}
}

// hear takes in news of the session's agent. The next daemon has to know what the agent is
// prompted after: it is in the journal before hear returns.
func (l *loop) hear(ctx context.Context, news model.AgentNews) error {
	if news.Session == "" && news.Prompted == "" {
		return l.post(ctx, agentIn{news: news})
	}
	kept := newCall()
	err := l.post(ctx, agentIn{news: news, kept: kept})
	if err == nil {
		_, err = l.await(ctx, kept.reply)
	}
	return err
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
	l.recordBefore(ctx, call.workdir, call.before)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
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

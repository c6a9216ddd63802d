package runloop

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// Agents call our tools by call_tool (nous mcp serve). A call of the session's hosted agent
// becomes one of its turn. One of an agent that the daemon does not know is a run of its own:
// a text that says who calls, and an answer with that call. Both are calls of the machine's
// as any other: rules, approvals, journal and events are the same.

type (
	// callIn is a call of an agent outside the daemon, which waits until the session is idle.
	callIn struct {
		ticket ticket // gets a model.ToolResult
		call   model.ToolCall
		client string
	}
	// uncallIn says that nobody waits for a call any more.
	uncallIn struct{ callID string }
)

// outsideCall is the call that an outside run is for.
type outsideCall struct {
	callIn
	made bool
}

// callResult is the result of a hosted agent's call.
type callResult struct {
	callID string
	res    model.ToolResult
}

func (in callIn) step(m *machine) {
	switch {
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
	case m.s.Run != nil || m.phase == compacting:
		m.postpone(in.ticket, in)
	default:
		m.outside = outsideCall{callIn: in}
		m.beginRun(nil, session.Input{
			Command: session.CommandCallTool, Text: fmt.Sprintf("[%s calls %s]", in.client, in.call.Name),
		})
	}
}

// callOutside makes the call that the run is for, and ends its turn.
func (m *machine) callOutside() {
	if m.outside.ticket == nil || m.outside.made { // a former daemon may have begun it
		m.endTurn(protocol.StopEnd, nil)
		return
	}
	m.outside.made = true
	m.msg = message{id: m.newID("msg-"), model: m.outside.client, calls: []model.ToolCall{m.outside.call}}
	m.startMessage()
	m.endMessage(model.StopToolCalls)
	m.nextCall()
}

// tellCaller gives a call's result to who has asked for it.
func (m *machine) tellCaller(call model.ToolCall, res model.ToolResult) {
	switch {
	case m.hosted():
		m.out.results = append(m.out.results, callResult{call.ID, res})
	case m.outside.ticket != nil && m.outside.call.ID == call.ID:
		m.reply(m.outside.ticket, res)
		m.outside = outsideCall{made: true}
	}
}

// endOutside answers who has asked for a call that has no result: its run was aborted.
func (m *machine) endOutside() {
	if m.outside.ticket != nil {
		m.reply(m.outside.ticket, model.Failed("aborted", "not run: the run was aborted"))
	}
	m.outside = outsideCall{}
}

// dropOutside gives up what a former daemon was asked to call: its caller has gone.
func (m *machine) dropOutside() {
	m.withdraw(protocol.ByRestart)
	for _, call := range m.s.Run.Calls {
		m.failCall(call, model.Failed(model.Interrupted, "not run: the daemon was restarted"), false)
	}
}

func (in uncallIn) step(m *machine) {
	m.postponed = slices.DeleteFunc(m.postponed, func(other input) bool {
		c, ok := other.(callIn)
		return ok && c.call.ID == in.callID
	})
	if m.s.Run == nil || m.s.Run.Aborting {
		return
	}
	if m.outside.ticket != nil && m.outside.call.ID == in.callID {
		abortIn{nil, m.s.Run.ID}.step(m)
		return
	}
	call := m.s.Run.Call(in.callID)
	if call.ID == "" {
		return
	}
	switch { // one that runs ends by itself
	case m.phase == waiting && m.s.Run.Question.Open() && m.s.Run.Question.CallID == in.callID:
		m.withdraw(protocol.ByCall)
	case m.phase == looking && m.s.Run.Calls[0].ID == in.callID:
		m.cancel()
	default:
		return
	}
	m.failCall(call, model.Failed("aborted", "not run: "+m.s.Agent+" has taken it back"), false)
	m.afterCall()
}

// outsiders are those that wait for calls, by the call's id. It may be used from any
// goroutine.
type outsiders struct{ waits sync.Map }

type outsider struct {
	ctx      context.Context
	outputID string
}

// join returns a context that ends also when nobody waits for that call any more, and the
// output_id that was named for it.
func (o *outsiders) join(ctx context.Context, callID string) (joined context.Context, outputID string, done func()) {
	v, ok := o.waits.Load(callID)
	if !ok {
		return ctx, "", func() {}
	}
	out := v.(outsider)
	joined, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(out.ctx, func() { cancel(errAborted) })
	return joined, out.outputID, func() { stop(); cancel(nil) }
}

// mayCall refuses what may not call tools in a session as its model does: what has neither
// the session's token nor is a person's.
func (h *Hub) mayCall(ctx context.Context, command, id, token string) error {
	if token == "" {
		_, err := personOf(ctx, command)
		return err
	}
	if h.env.Token == nil || !h.env.Token(id, token) {
		return protocol.Rejectf(protocol.Forbidden, "token: it is not that of session %.80s", id)
	}
	return nil
}

// callView is what has to be known of a session to call a tool in it.
type callView struct {
	from   model.Scope
	hosted string // the agent's name
}

// callable are those of a session's tools that call_tool can call and its hosted agent does not
// have by itself.
func (h *Hub) callable(ctx context.Context, id string, all protocol.Tools) (protocol.Tools, error) {
	var own []string
	l, release, err := h.acquire(ctx, id)
	if err != nil {
		return protocol.Tools{}, err
	}
	defer release()
	if l.agent != nil {
		own = l.agent.Own()
	}
	all.Tools = slices.DeleteFunc(all.Tools, func(t protocol.ToolInfo) bool {
		server, _, _ := strings.Cut(t.Name, ".")
		return !t.Active || !t.Healthy || t.Name == agentTool || t.Protocol == mcp && slices.Contains(own, server)
	})
	return all, nil
}

// BindAgents binds what hosted agents may do on their own sockets, each with the token of its
// session.
func (h *Hub) BindAgents(mux *protocol.Mux) {
	withToken := func(token string) error {
		if token == "" {
			return protocol.Rejectf(protocol.Forbidden, "token: this socket is for hosted agents, which have one")
		}
		return nil
	}
	protocol.Handle(mux, protocol.CallTool, func(ctx context.Context, p protocol.CallToolParams) (
		a protocol.Answer[protocol.ToolCalled], err error,
	) {
		if err := withToken(p.Token); err != nil {
			return a, err
		}
		return h.callTool(ctx, p)
	})
	protocol.Handle(mux, protocol.ListTools, func(ctx context.Context, p protocol.ListToolsParams) (
		a protocol.Answer[protocol.Tools], err error,
	) {
		if err := withToken(p.Token); err != nil {
			return a, err
		}
		return h.listTools(ctx, p)
	})
}

func (h *Hub) callTool(ctx context.Context, p protocol.CallToolParams) (a protocol.Answer[protocol.ToolCalled],
	err error,
) {
	if err := h.mayCall(ctx, protocol.CallTool.Name(), p.SessionID, p.Token); err != nil {
		return a, err
	}
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.ToolCalled, error) { return h.runToolCall(ctx, id, p) }
	return a, nil
}

func (h *Hub) runToolCall(ctx context.Context, id string, p protocol.CallToolParams) (out protocol.ToolCalled,
	err error,
) {
	v, err := query(ctx, h, id, func(m *machine) (callView, error) { return callView{m.scope(), m.s.Agent}, nil })
	switch {
	case err != nil:
		return out, err
	case v.hosted != "" && p.Token == "":
		return out, protocol.Rejectf(protocol.UnsupportedByAgent, "only %s calls tools in session %s: name another, or one "+
			"without a hosted agent", v.hosted, id)
	case v.hosted == "" && p.Token != "":
		return out, protocol.Rejectf(protocol.Forbidden, "token: session %s has no hosted agent", id)
	case !h.env.Tools.Has(ctx, v.from, p.Name):
		return out, protocol.Rejectf(protocol.ToolNotRegistered, "name: there is no tool %.80q", p.Name)
	}
	call := model.ToolCall{ID: h.env.NewID("call-"), Name: p.Name, Arguments: []byte(p.Arguments)}
	if len(call.Arguments) == 0 || p.Arguments.Kind() == jsontext.KindNull {
		call.Arguments = []byte("{}")
	}
	l, release, err := h.acquire(ctx, id) // it stays open meanwhile
	if err != nil {
		return out, err
	}
	defer release()
	l.outsiders.waits.Store(call.ID, outsider{ctx, p.OutputID})
	defer l.outsiders.waits.Delete(call.ID)
	res, err := l.callFor(ctx, call, cmp.Or(format.Line(p.Client), "an agent"))
	if ctx.Err() != nil {
		_ = l.post(context.WithoutCancel(ctx), uncallIn{call.ID})
		return out, context.Cause(ctx)
	}
	if err != nil {
		return out, err
	}
	out = protocol.ToolCalled{
		ToolCallID: call.ID, OK: res.OK, Result: res.Text, Outputs: res.Outputs, Value: rawValue(res.Value),
		Error: wireToolError(res.Error),
	}
	for _, a := range res.Attachments {
		if err := l.openable(&a); err != nil {
			continue // the text names it
		}
		if data, err := a.Content(); err == nil {
			out.Images = append(out.Images, protocol.ToolImage{
				MediaType: a.MediaType, Data: base64.StdEncoding.EncodeToString(data),
			})
		}
	}
	return out, nil
}

// callFor has the session make a call, and waits for its result.
func (l *loop) callFor(ctx context.Context, call model.ToolCall, client string) (model.ToolResult, error) {
	if l.agent != nil {
		res, err := l.agent.Serve(ctx, call)
		if err != nil && ctx.Err() == nil {
			err = protocol.Rejectf(protocol.NoActiveRun, "%v", err)
		}
		return res, err
	}
	c := newCall()
	if err := l.post(ctx, callIn{c, call, client}); err != nil {
		return model.ToolResult{}, err
	}
	r, err := l.await(ctx, c.reply)
	switch {
	case errors.Is(err, errStopped):
		return model.ToolResult{}, shuttingDown()
	case err != nil:
		return model.ToolResult{}, err
	}
	return r.value.(model.ToolResult), nil
}

// callTheirs waits for a call of the hosted agent's own. One that has come to a tool of ours,
// as was asked about, is made here.
func (l *loop) callTheirs(ctx context.Context, gen int, inv model.Invocation) model.ToolResult {
	var v model.Verdict
	res, ours := l.agent.Call(ctx, inv, func(u model.ToolUpdate) { _ = l.post(ctx, toolUpdateIn{gen, u}) },
		func(ours model.ToolCall) (ok bool) {
			as := inv
			as.ToolCall = ours
			v, ok = l.mayBecome(ctx, as)
			return ok
		})
	if ours == nil {
		return res
	}
	l.env.Audit(ruleAudit(l.id, *ours, v))
	inv.ToolCall, inv.Allowed, inv.Option, inv.Path = *ours, true, "", v.Path
	if v.Arguments != nil {
		inv.Arguments = v.Arguments
	}
	res = l.callOurs(ctx, gen, inv)
	l.agent.Answer(ours.ID, res)
	return res
}

// mayBecome judges a call of a tool of ours that the agent's call has come to. What the rules have allowed by the
// agent's word for it must be allowed as ours; what a person has allowed must not be denied, and be all that was
// shown: no default is filled in, and no link leads elsewhere. Else it is told, judged and asked about as a call of
// its own.
func (l *loop) mayBecome(ctx context.Context, inv model.Invocation) (v model.Verdict, ok bool) {
	v, err := query(ctx, l.env.hub, l.id, func(m *machine) (model.Verdict, error) {
		if m.s.Run == nil {
			return model.Verdict{}, errAborted
		}
		if _, refused := m.refusal(inv.ToolCall); refused || m.searches(inv.ToolCall) {
			return model.Verdict{Decision: model.Deny}, nil
		}
		return m.judged(&inv), nil
	})
	asked := inv.Option != "" // and a person said yes
	shown := asked && v.Arguments == nil && !v.Linked
	if err != nil || v.Failure != nil || v.Delegates || v.Decision != model.Allow && (v.Decision != model.Ask || !shown) {
		return v, false
	}
	if v.Arguments != nil {
		inv.Arguments = v.Arguments
	}
	if v.Guarded {
		guard := l.env.Policy.Guard(ctx, inv)
		return v, guard.Decision != model.Deny && (guard.Decision != model.Ask || asked)
	}
	return v, true
}

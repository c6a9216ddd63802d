package runloop

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// hosts reports that a name is that of a hosted agent. It does not block.
func (h *Hub) hosts(name string) bool { return h.env.Agents != nil && hosts(h.env.Agents.Check, name) }

func hosts(check func(name string) error, name string) bool {
	return check != nil && name != "" && check(name) == nil
}

// hostOf is the hosted agent that makes the turns of a child whose call names an agent, "" for our own: it
// is named itself, or in the file of a named agent. It blocks for the disk.
func (m *machine) hostOf(name string) string {
	if hosts(m.hosts, name) {
		return name
	}
	if name == "" || m.named == nil {
		return ""
	}
	as, err := m.named(m.workdir(), name)
	if err != nil || !hosts(m.hosts, as.Agent) { // the start of the child says why
		return ""
	}
	return as.Agent
}

// hostRule is why people are asked before a child with that hosted agent.
func hostRule(host string) string {
	return format.Line(host) + " is a hosted agent, with hands of its own"
}

// mayHost reports that a call was allowed with that hosted agent: a file may have named another one by then.
func (m *machine) mayHost(call model.ToolCall, host string) bool {
	q := m.s.Run.Question
	return m.approvals() == protocol.ApprovalsAuto || q != nil && q.CallID == call.ID && q.Host == host
}

// namedChild is the named agent that makes a child's run, nil for none, or says in its Agent which hosted one
// does, with its text. It calls no tool that the run may not call which the child is for. A child that goes on has
// the one that it had.
func (h *Hub) namedChild(ctx context.Context, d *delegate, a agentArgs) (*model.NamedAgent, error) {
	within, name, hosted := d.child.Within, a.Agent, h.hosts(a.Agent)
	if a.SessionID != "" {
		var err error
		if name, err = readSession(ctx, h, a.SessionID, func(m *machine) (string, error) {
			hosted = m.hosted()
			return cmp.Or(m.s.Agent, m.s.LastRun.As), nil
		}); err != nil {
			return nil, err
		}
	}
	if hosted {
		return nil, holds(within, name)
	}
	if name == "" || within != nil && within.Name == name {
		return within, nil
	}
	if h.env.Instructions == nil {
		return nil, protocol.Errorf(protocol.InvalidPayload, "agent: there is no agent %.80q", name)
	}
	as, err := h.env.Instructions.Named(d.birth.created.Workdir, name)
	switch {
	case err != nil:
		return nil, protocol.Errorf(protocol.InvalidPayload, "agent: %v", err)
	case as.Agent != "" && h.missing(as.Agent) != nil:
		return nil, h.missing(as.Agent)
	case as.Agent != d.child.Host && a.SessionID != "":
		return nil, protocol.Errorf(protocol.InvalidPayload, "session_id: the turns of this child are made by %s, and the "+
			"file of %s names %s by now: leave out session_id to begin a new one", agentName(d.child.Host), name,
			agentName(as.Agent))
	case as.Agent != d.child.Host:
		return nil, protocol.Errorf(protocol.InvalidPayload, "agent: the file of %s has named another agent since the call "+
			"was allowed: call again", name)
	case as.Agent != "":
		return as, cmp.Or(holds(within, as.Agent), holds(as, as.Agent))
	}
	if within != nil && !within.AllTools {
		if as.AllTools {
			as.AllTools, as.Tools = false, within.Tools
		}
		as.Tools = slices.DeleteFunc(slices.Clone(as.Tools), func(tool string) bool { return !within.May(tool) })
	}
	if a.Model != "" {
		as.Model = model.Choice{}
	}
	return as, nil
}

// missing says why a hosted agent cannot make a child's turns, nil where it can. It blocks for the disk.
func (h *Hub) missing(host string) error {
	if _, err := h.agentOf(host); err != nil {
		return err
	}
	if err := h.env.Agents.Missing(host); err != nil {
		return protocol.Errorf(protocol.InvalidPayload, "agent: %v", err)
	}
	return nil
}

// holds refuses a hosted agent where a named one may call only certain tools: nothing keeps it to them.
func holds(as *model.NamedAgent, host string) error {
	if as == nil || as.AllTools {
		return nil
	}
	return protocol.Errorf(protocol.InvalidPayload, "agent: %s has tools of its own, and the agent %s has only certain "+
		"ones", host, as.Name)
}

// chosenIn is what the file of a named agent chooses of its hosted one's options.
func chosenIn(as *model.NamedAgent) (facts []session.Fact) {
	for _, c := range []model.AgentChoice{{ID: modelCategory, Value: as.Model.Name}, {ID: effortID, Value: as.Effort}} {
		if c.Value != "" {
			facts = append(facts, session.AgentChose{Choice: c})
		}
	}
	return facts
}

// maxNamesTold is how many bytes of named agents a model is told.
const maxNamesTold = 4 << 10

// withNames adds to the tool agent which named agents there are.
func (l *loop) withNames(workdir string, listed []model.ToolInfo) {
	if l.env.Instructions == nil {
		return
	}
	for i := range listed {
		if listed[i].Delegates {
			listed[i].Description += "\n\nagent is one of these, or left out:" +
				format.Cut(l.env.Instructions.ListNamed(workdir), maxNamesTold)
		}
	}
}

// namedAgent returns the named agent of that name in a session's folder, nil for "".
func (h *Hub) namedAgent(ctx context.Context, id, name string) (*model.NamedAgent, error) {
	if name == "" {
		return nil, nil
	}
	from, err := query(ctx, h, id, scope)
	if err != nil {
		return nil, err
	}
	as, err := (*model.NamedAgent)(nil), errors.New("there are no named agents here")
	if h.env.Instructions != nil {
		as, err = h.env.Instructions.Named(from.Workdir, name)
	}
	switch {
	case err != nil:
		return nil, protocol.Errorf(protocol.InvalidPayload, "as: %v", err)
	case as.Agent != "":
		return nil, protocol.Errorf(protocol.InvalidPayload, "as: the turns of %s are made by %s: make a session for that "+
			"agent", name, as.Agent)
	}
	return as, nil
}

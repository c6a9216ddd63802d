package runloop

import (
	"context"

	"noused/internal/protocol"
	"noused/internal/session"
)

// agentSetIn has another agent make the session's turns, where nothing was said there yet. The
// loop ends with it: the next one is opened with that agent.
type agentSetIn struct {
	ticket ticket
	agent  string // "": the daemon's own loop
}

func (in agentSetIn) step(m *machine) {
	name := agentName(in.agent)
	switch {
	case m.s.Agent == in.agent:
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
		return
	case m.s.Leaf != "" || m.s.Run != nil || m.s.LastRun.RunID != "" || len(m.s.Pending) > 0: // a rewind leaves no leaf
		m.refuse(in.ticket, protocol.Rejectf(protocol.SessionBegun,
			"session %s has begun with %s: make another one for %s", m.s.ID, agentName(m.s.Agent), name))
		return
	case m.phase != idle:
		m.refuse(in.ticket, protocol.Rejectf(protocol.Busy, "session %s is at work: try again in a moment", m.s.ID))
		return
	default:
		m.record(session.AgentSet{Agent: in.agent})
		m.tellSetting(false, "agent", name)
		m.reopens = true
	}
	m.reply(in.ticket, protocol.AgentAccepted{Command: protocol.SetAgent.Name(), Agent: name})
}

// setAgent is for people: an agent that runs outside the sandbox has hands of its own.
func (h *Hub) setAgent(ctx context.Context, p protocol.SetAgentParams) (a protocol.AgentAccepted, err error) {
	if _, err := personOf(ctx, protocol.SetAgent.Name()); err != nil {
		return a, err
	}
	agent, err := h.agentOf(p.Agent)
	if err != nil {
		return a, err
	}
	return requestAs[protocol.AgentAccepted](ctx, h, p.SessionID, func(t ticket) input { return agentSetIn{t, agent} })
}

package runloop

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
)

// hosts reports that a name is that of a hosted agent. It does not block.
func (h *Hub) hosts(name string) bool { return h.env.Agents != nil && hosts(h.env.Agents.Check, name) }

func hosts(check func(name string) error, name string) bool {
	return check != nil && name != "" && check(name) == nil
}

// namedChild is the named agent that makes a child's run, nil for none. It calls no tool that the run
// may not call which the child is for. A child that goes on has the one that it had.
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
		if within != nil && !within.AllTools {
			return nil, protocol.Errorf(protocol.InvalidPayload, "agent: %s has tools of its own, and the agent %s has only "+
				"certain ones", name, within.Name)
		}
		return nil, nil
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
	case as.Agent != "":
		return nil, protocol.Errorf(protocol.InvalidPayload, "agent: the turns of %s are made by %s: name that one",
			name, as.Agent)
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

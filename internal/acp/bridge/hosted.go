package bridge

import (
	"cmp"
	"slices"

	"noused/internal/acp"
	"noused/internal/protocol"
)

// What a session has of another agent's, and the choice of one.

// agents are those that can be chosen: noused knows more, whose programs are not there. None are where
// no daemon says so now.
func (b *bridge) agents() (names []string) {
	r, err := requestOnce(b.ctx, b, protocol.ListAgents, protocol.ListAgentsParams{})
	if err != nil {
		b.Log("%s: %v", protocol.ListAgents.Name(), err)
	}
	for _, a := range r.Agents {
		if a.Found {
			names = append(names, a.Name)
		}
	}
	return names
}

// agentOption chooses what makes the session's turns, as long as nothing was said there: then it only
// tells. There is none where nothing but noused can be chosen.
func (w *window) agentOption() []acp.ConfigOption {
	if len(w.agents) == 0 && !w.hosted() {
		return nil
	}
	current, names := cmp.Or(w.state.Agent, protocol.OwnAgent), []string(nil)
	if s := w.state; s.LeafID == "" && s.RunState == protocol.StateIdle && len(s.Queued.Inputs) == 0 {
		names = append([]string{protocol.OwnAgent}, w.agents...)
	}
	if !slices.Contains(names, current) {
		names = append(names, current)
	}
	return []acp.ConfigOption{{
		ID: optionAgent, Name: "Agent", Description: "what makes the turns; it can be chosen before the first text",
		Type: "select", Current: current, Options: values(names...),
	}}
}

// learn takes in a newer state. Another agent has other models.
func (w *window) learn(s protocol.State) {
	another := w.state.Agent != "" && w.state.Agent != s.Agent
	if w.state = s; another {
		w.models, w.planning = nil, w.planning && !w.hosted()
		w.findModels()
	}
}

// hosted reports whether another agent makes the session's turns.
func (w *window) hosted() bool { return w.state.Agent != "" && w.state.Agent != protocol.OwnAgent }

// agentOptions are the options that the session's agent has. One by the id of an option of the
// bridge's has a dot before it.
func (w *window) agentOptions() (list []acp.ConfigOption) {
	for _, o := range w.state.AgentOptions {
		option := acp.ConfigOption{
			ID: agentOptionID(o.ID), Name: o.Name, Description: o.Description, Category: o.Category, Type: "select",
			Current: o.Value, Options: []acp.ConfigValue{},
		}
		if option.Name == "" {
			option.Name = o.ID
		}
		for _, v := range o.Values {
			value := acp.ConfigValue{Value: v.Value, Name: v.Name, Description: v.Description}
			if value.Name == "" {
				value.Name = v.Value
			}
			option.Options = append(option.Options, value)
		}
		if !slices.ContainsFunc(o.Values, func(v protocol.AgentValue) bool { return v.Value == o.Value }) {
			option.Options = append(option.Options, acp.ConfigValue{Value: o.Value, Name: o.Value})
		}
		list = append(list, option)
	}
	return list
}

func agentOptionID(id string) string {
	if id == optionAgent || id == optionApprovals || id == optionSteering {
		return "." + id
	}
	return id
}

// setAgentOption chooses a value of an option of the agent's. False: it has none by that id.
func (w *window) setAgentOption(r *acp.Request, id, value string, answer func() any) bool {
	for _, o := range w.state.AgentOptions {
		if agentOptionID(o.ID) == id {
			choose(w, r, protocol.SetAgentOption, protocol.SetAgentOptionParams{
				Scope: protocol.Scope{SessionID: w.id}, ID: o.ID, Value: value,
			}, "value", answer)
			return true
		}
	}
	return false
}

// agentCommands are the agent's own, without those that are the bridge's or a file's.
func (w *window) agentCommands(others []acp.Command) (list []acp.Command) {
	for _, c := range w.state.AgentCommands {
		if slices.ContainsFunc(others, func(o acp.Command) bool { return o.Name == c.Name }) {
			continue
		}
		one := acp.Command{Name: c.Name, Description: line(c.Description)}
		if c.Hint != "" {
			one.Input = &acp.Hint{Hint: line(c.Hint)}
		}
		list = append(list, one)
	}
	return list
}

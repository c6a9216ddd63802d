package runloop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// The categories of options that have a command of their own.
const (
	modelCategory  = "model"
	effortCategory = "thought_level"
	effortID       = "effort"
)

// offered takes in what the agent says that can be chosen, and tells clients what is
// different.
func (m *machine) offered(o *model.AgentOffer) {
	was := m.offer
	if was != nil && o.Version <= was.Version {
		return
	}
	m.offer = o
	for _, c := range m.s.Choices { // the agent itself has another mode by now
		if is, has := o.Of("", c.ID); o.Settled && has && is.Value != c.Value {
			m.record(session.AgentChose{Choice: model.AgentChoice{ID: c.ID, Value: is.Value}})
		}
	}
	if was == nil {
		m.tellSetting(len(o.Commands)+len(o.Options) == 0, m.s.Agent, fmt.Sprintf("%d commands, %d options",
			len(o.Commands), len(o.Options)))
		return
	}
	m.tellSetting(len(o.Commands) == len(was.Commands) && sameCommands(o.Commands, was.Commands), m.s.Agent,
		fmt.Sprintf("%d commands", len(o.Commands)))
	others := len(o.Options) != len(was.Options)
	for _, option := range o.Options {
		before, had := was.Of("", option.ID)
		switch {
		case !had || len(before.Values) != len(option.Values):
			others = true
		case before.Value != option.Value:
			m.tellSetting(false, option.ID, option.Value)
		}
	}
	m.tellSetting(!others, m.s.Agent, fmt.Sprintf("%d options", len(o.Options)))
}

func sameCommands(a, b []model.AgentCommand) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// offerOf is what a state says of what can be chosen.
func (m *machine) offerOf() (commands []protocol.AgentCommand, options []protocol.AgentOption) {
	if m.offer == nil {
		return nil, nil
	}
	for _, c := range m.offer.Commands {
		commands = append(commands, protocol.AgentCommand(c))
	}
	for _, o := range m.offer.Options {
		option := protocol.AgentOption{
			ID: o.ID, Name: o.Name, Description: o.Description, Category: o.Category, Value: o.Value, Truncated: o.Truncated,
			Values: []protocol.AgentValue{},
		}
		for _, v := range o.Values {
			option.Values = append(option.Values, protocol.AgentValue(v))
		}
		options = append(options, option)
	}
	return commands, options
}

// agentModel is the model of a hosted session, as far as its agent has said.
func (m *machine) agentModel() protocol.ModelInfo {
	info := protocol.ModelInfo{Provider: m.s.Agent}
	if o, has := m.offer.Of(modelCategory, modelCategory); has {
		info.Name = o.Value
	}
	if o, has := m.offer.Of(effortCategory, effortID); has {
		info.Effort = o.Value
	}
	return info
}

// agentTurn is where the session stands for its agent, outside of a turn.
func (m *machine) agentTurn() model.AgentTurn {
	return model.AgentTurn{
		Texts: m.s.Texts, Fresh: m.s.Texts - m.s.Taken, Session: m.s.AgentSession, Choices: m.s.Choices,
	}
}

// agentView is what has to be known of a session to ask its agent.
type agentView struct {
	name    string // "" for the daemon's own loop
	agent   Agent
	at      model.AgentTurn
	running bool
	missing *protocol.Error
}

func (h *Hub) agentView(ctx context.Context, id string) (agentView, error) {
	return query(ctx, h, id, func(m *machine) (agentView, error) {
		v := agentView{name: m.s.Agent, agent: m.agent, running: m.s.Run != nil}
		if v.name != "" {
			v.at, v.missing = m.agentTurn(), m.agentMissing()
		}
		return v, nil
	})
}

// hosted says why the session's agent cannot be asked.
func (v agentView) hosted() error {
	switch {
	case v.name == "":
		return protocol.Rejectf(protocol.UnsupportedByAgent,
			"%s, the daemon's own, has no such options; set_model chooses its model", protocol.OwnAgent)
	case v.missing != nil:
		return v.missing
	case v.agent == nil:
		return protocol.Rejectf(protocol.AgentMissing, "this daemon hosts no agents")
	}
	return nil
}

// agentOptionIn journals a choice that the agent has taken.
type agentOptionIn struct {
	ticket ticket
	agent  string
	choice model.AgentChoice
	reply  func(m *machine) any
}

func (in agentOptionIn) step(m *machine) {
	if m.s.Agent != in.agent {
		m.refuse(in.ticket, protocol.Rejectf(protocol.Busy, "session %s has another agent since: %s", m.s.ID,
			agentName(m.s.Agent)))
		return
	}
	m.record(session.AgentChose{Choice: in.choice})
	m.reply(in.ticket, in.reply(m))
}

// chooseAgentOption has a session's agent take a value, and journals that.
func (h *Hub) chooseAgentOption(ctx context.Context, id string, v agentView, c model.AgentChoice,
	reply func(m *machine) any,
) (any, error) {
	value, err := v.agent.Choose(ctx, v.at, v.running, c.ID, c.Value)
	if err != nil {
		return nil, refusedByAgent(err)
	}
	c.Value = value
	r, err := h.request(ctx, id, func(t ticket) input { return agentOptionIn{t, v.name, c, reply} })
	return r.value, err
}

// refusedByAgent is why an agent has not taken a choice, as clients are told.
func refusedByAgent(err error) error {
	var unknown *model.AgentOptionError
	var failed *model.AgentError
	switch {
	case errors.As(err, &unknown):
		return protocol.Errorf(protocol.InvalidPayload, "%s: %v", unknown.Field, err)
	case errors.As(err, &failed):
		return &protocol.Error{Code: protocol.ProviderError, Message: failed.Message}
	}
	return &protocol.Error{Code: protocol.ProviderError, Message: err.Error()}
}

func (h *Hub) setAgentOption(ctx context.Context, p protocol.SetAgentOptionParams) (
	a protocol.Answer[protocol.AgentOptionAccepted], err error,
) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	v, err := h.agentView(ctx, id)
	if err == nil {
		err = v.hosted()
	}
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (r protocol.AgentOptionAccepted, err error) {
		_, err = h.chooseAgentOption(ctx, id, v, model.AgentChoice{ID: p.ID, Value: p.Value}, func(m *machine) any {
			r = protocol.AgentOptionAccepted{Command: protocol.SetAgentOption.Name(), ID: p.ID, Value: p.Value}
			for _, c := range m.s.Choices {
				if c.ID == p.ID {
					r.Value = c.Value
				}
			}
			return r
		})
		return r, err
	}
	return a, nil
}

// setAgentModel is set_model in a hosted session.
func (h *Hub) setAgentModel(ctx context.Context, id string, v agentView, p protocol.SetModelParams) (
	r protocol.ModelAccepted, err error,
) {
	offer, err := v.agent.Offer(ctx, v.at, v.running)
	if err != nil {
		return r, refusedByAgent(err)
	}
	answer := func(m *machine) any {
		return protocol.ModelAccepted{Command: protocol.SetModel.Name(), Model: m.agentModel()}
	}
	models, has := offer.Of(modelCategory, modelCategory)
	name := strings.TrimPrefix(p.Model, v.name+"/")
	onlyEffort := p.Model == ownModel && p.Effort != "" && !hasValue(models, ownModel)
	effort, thinks := offer.Of(effortCategory, effortID)
	switch {
	case !has && !onlyEffort:
		return r, protocol.Rejectf(protocol.UnsupportedByAgent, "%s cannot have another model", v.name)
	case p.Effort != "" && !thinks:
		return r, protocol.Rejectf(protocol.UnsupportedByAgent, "%s cannot have another effort", v.name)
	}
	if hasValue(models, p.Model) {
		name = p.Model
	}
	var said any
	if !onlyEffort {
		said, err = h.chooseAgentOption(ctx, id, v, model.AgentChoice{ID: models.ID, Value: name}, answer)
	}
	if err == nil && p.Effort != "" {
		said, err = h.chooseAgentOption(ctx, id, v, model.AgentChoice{ID: effort.ID, Value: p.Effort}, answer)
	}
	if err != nil {
		return r, err
	}
	return said.(protocol.ModelAccepted), nil
}

func hasValue(o model.AgentOption, value string) bool {
	for _, v := range o.Values {
		if v.Value == value {
			return true
		}
	}
	return false
}

// AgentModels lists the models that a hosted session's agent offers. ok is false for a
// session of the daemon's own loop. It starts the agent where it does not run.
func (h *Hub) AgentModels(ctx context.Context, sessionID string) (models protocol.Models, ok bool, err error) {
	id, err := h.sessionID(sessionID)
	if err != nil {
		return models, false, err
	}
	v, err := h.agentView(ctx, id)
	if err != nil || v.name == "" {
		return models, false, err
	}
	if err := v.hosted(); err != nil {
		return models, true, err
	}
	offer, err := v.agent.Offer(ctx, v.at, v.running)
	if err != nil {
		return models, true, refusedByAgent(err)
	}
	o, _ := offer.Of(modelCategory, modelCategory)
	models = protocol.Models{Models: []protocol.ListedModel{}, Truncated: o.Truncated}
	for _, value := range o.Values {
		models.Models = append(models.Models, protocol.ListedModel{
			Model: value.Value, Provider: v.name, Name: value.Value, Source: "agent", Default: value.Value == o.Value,
		})
	}
	return models, true, nil
}

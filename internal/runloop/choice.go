package runloop

import (
	"cmp"

	"noused/internal/model"
	"noused/internal/protocol"
)

// model is what answers in the session.
func (m *machine) model() model.Choice {
	if m.hosted() {
		return model.Choice{Provider: m.s.Agent}
	}
	c := chosen(m.s.Model, m.s.Answered, m.ownModel())
	if m.s.Run != nil {
		c = modelAs(m.s.Run.Terms.As, c)
	}
	return c
}

// modelAs is the model of a run that a named agent makes, where the session has that one. Nil makes none.
func modelAs(as *model.NamedAgent, c model.Choice) model.Choice {
	switch {
	case as == nil:
		return c
	case as.Model.Provider != "":
		c = as.Model
	}
	c.Effort = cmp.Or(as.Effort, c.Effort)
	return c
}

// chosen is the model of a session: the one that it has chosen, else the one that has
// answered it before, else the daemon's own. So a daemon with another model changes no
// session's model.
func chosen(choice, answered, own model.Choice) model.Choice {
	if choice.Provider != "" {
		return choice
	}
	if answered.Provider != "" && answered != plainly(own) {
		own = answered
	}
	own.Effort = cmp.Or(choice.Effort, own.Effort)
	return own
}

// plainly is a choice without what makes it no other model: its window and its effort.
func plainly(c model.Choice) model.Choice {
	c.ContextWindow, c.Effort = 0, ""
	return c
}

// modelMissing says why the session's model cannot be asked.
func (m *machine) modelMissing() error { return m.missingFor(nil) }

// missingFor says why the model cannot be asked that makes a run as a named agent.
func (m *machine) missingFor(as *model.NamedAgent) error {
	if m.missing == nil || m.hosted() {
		return nil
	}
	return m.missing(modelAs(as, m.model()))
}

// window is how many tokens the model can read that answers now; 0 has no end.
func (m *machine) window() int64 {
	if m.hosted() {
		return 0
	}
	c := m.answering()
	if c.ContextWindow == 0 && m.windowOf != nil {
		return m.windowOf(c)
	}
	return c.ContextWindow
}

// modelsIn says that the daemon may have other models than before.
type modelsIn struct{}

func (modelsIn) step(m *machine) {
	m.away = nil
	if m.phase == modelless {
		m.callModel()
	}
}

// wireModel is a model as clients see it; the daemon's own is at its own server.
func wireModel(c, own model.Choice) protocol.ModelInfo {
	if plainly(c) == plainly(own) {
		c.BaseURL = ""
	}
	return protocol.ModelInfo{Provider: c.Provider, Name: c.Name, BaseURL: c.BaseURL, Effort: c.Effort}
}

package agent

import (
	"noused/internal/model"
)

// Judge says what the rules make of a call. What the agent has not asked about happens in
// any case, and is judged by nobody.
func (s *Session) Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	c := t.byID(inv.ID)
	if c == nil || c.ask == nil {
		return model.Verdict{}
	}
	return model.Verdict{Decision: model.Ask, Rule: "ask: " + s.name + " asks"}
}

package actions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Hosted reports whether another agent makes a session's turns.
func Hosted(s protocol.State) bool { return s.Agent != "" && s.Agent != protocol.OwnAgent }

// AgentOptions returns the state of a session with what its agent lets people choose, and
// starts the agent where it does not run. It refuses a session of noused's own, and an agent
// that has no options.
func AgentOptions(ctx context.Context, c client.Sender, scope protocol.Scope) (s protocol.State, err error) {
	s, err = client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Scope: scope})
	switch {
	case err != nil:
		return s, err
	case !Hosted(s):
		return s, errors.New("noused makes the turns of this session itself: only a hosted agent has options")
	case len(s.AgentOptions) > 0:
		return s, nil
	}
	_, err = client.Call(ctx, c, protocol.ListModels, protocol.ListModelsParams{SessionID: s.SessionID})
	if err == nil { // the agent has started, and said what it has
		s, err = client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Scope: scope})
	}
	if err == nil && len(s.AgentOptions) == 0 {
		err = fmt.Errorf("%s has no options", s.Agent)
	}
	return s, err
}

// OptionNamed is the option of a session's agent that people call so, by its id or its name.
func OptionNamed(s protocol.State, word string) (protocol.AgentOption, error) {
	ids := make([]string, len(s.AgentOptions))
	for i, o := range s.AgentOptions {
		if o.ID == word {
			return o, nil
		}
		ids[i] = o.ID
	}
	for _, o := range s.AgentOptions {
		if strings.EqualFold(o.ID, word) || strings.EqualFold(o.Name, word) {
			return o, nil
		}
	}
	return protocol.AgentOption{}, fmt.Errorf("%s has no option %.80q, only %s", s.Agent, word, strings.Join(ids, ", "))
}

// OptionChoice is the choice of a value of an option, by what the agent calls it or by its
// name. What the option cannot be the daemon refuses.
func OptionChoice(scope protocol.Scope, o protocol.AgentOption, word string) protocol.SetAgentOptionParams {
	p := protocol.SetAgentOptionParams{Scope: scope, ID: o.ID, Value: word}
	for _, v := range o.Values {
		if v.Value == word {
			p.Value = word
			break
		}
		if strings.EqualFold(v.Value, word) || strings.EqualFold(v.Name, word) {
			p.Value = v.Value
		}
	}
	return p
}

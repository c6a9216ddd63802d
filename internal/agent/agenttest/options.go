package agenttest

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// choices are the values that a session's options have.
type choices struct {
	model, effort, mode string
	fast                bool
}

// offers adds to the answer of a request that opens a session what can be chosen in it:
// with options as they are now, with modes as older agents tell it.
func (a *agent) offers(s *session, answer object) object {
	if slices.Contains(a.can, "options") {
		answer["configOptions"] = s.options()
	}
	if slices.Contains(a.can, "modes") {
		answer["modes"] = object{"currentModeId": s.mode, "availableModes": []object{
			{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code", "description": "writes"},
		}}
		answer["models"] = object{"currentModelId": s.model, "availableModels": []object{
			{"modelId": "small", "name": "Small"}, {"modelId": "large", "name": "Large"},
		}}
	}
	return answer
}

func (s *session) options() []object {
	return []object{
		{
			"id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": s.model,
			"options": []object{
				{"group": "a", "name": "A", "options": []object{{"value": "small", "name": "Small", "description": "quick"}}},
				{"group": "b", "name": "B", "options": []object{{"value": "large", "name": "Large"}}},
			},
		},
		{
			"id": "thinking", "name": "Thinking", "category": "thought_level", "type": "select", "currentValue": s.effort,
			"options": []object{{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}},
		},
		{"id": "fast", "name": "Fast", "type": "boolean", "currentValue": s.fast},
		{"id": "new", "name": "Of a kind that nobody knows", "type": "slider", "currentValue": 7},
	}
}

// sayCommands tells the commands, as some agents do right after the session is open.
func (a *agent) sayCommands(s *session) {
	if slices.Contains(a.can, "commands") {
		a.update(s.id, object{"sessionUpdate": "available_commands_update", "availableCommands": []object{
			{"name": "init", "description": "writes AGENTS.md"},
			{"name": "review", "description": "reviews", "input": object{"hint": "what"}},
			{"name": 3},
		}})
	}
}

// choose takes a choice, and answers with what came of it.
func (a *agent) choose(method string, params jsontext.Value, s *session, reply func(any), refuse func(string)) {
	var p struct {
		ID    string         `json:"configId"`
		Type  string         `json:"type"`
		Value jsontext.Value `json:"value"`
		Mode  string         `json:"modeId"`
		Model string         `json:"modelId"`
	}
	if err := json.Unmarshal(params, &p); err != nil || s == nil {
		a.wrong("%s: %s", method, params)
	}
	a.log("choose %s", params)
	var value string
	if p.Value != nil && p.Value.Kind() == '"' {
		_ = json.Unmarshal(p.Value, &value)
	}
	switch {
	case method == "session/set_mode" && slices.Contains([]string{"ask", "code"}, p.Mode):
		s.mode = p.Mode
	case method == "session/set_model" && slices.Contains([]string{"small", "large"}, p.Model):
		s.model = p.Model
	case method != "session/set_config_option":
		a.wrong("%s: %s", method, params)
	case p.ID == "fast" && p.Type == "boolean" && (p.Value.Kind() == 't' || p.Value.Kind() == 'f'):
		s.fast = p.Value.Kind() == 't'
	case p.ID == "model" && p.Type == "" && value == "large" && slices.Contains(a.can, "poor"):
		refuse("large costs more than is left")
		return
	case p.ID == "model" && p.Type == "" && slices.Contains([]string{"small", "large"}, value):
		s.model = value
	case p.ID == "thinking" && p.Type == "" && slices.Contains([]string{"low", "high"}, value):
		s.effort = value
	default:
		a.wrong("%s: %s", method, params)
	}
	if method == "session/set_config_option" {
		reply(object{"configOptions": s.options()})
		return
	}
	reply(object{})
}

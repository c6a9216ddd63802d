package model

// NamedAgent is a way to make a run: what its file said when the run was asked for. It takes from
// what the session may do, and adds nothing.
type NamedAgent struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`               // instructions, after all others
	AllTools bool     `json:"all_tools,omitzero"` // that the session has; else Tools alone
	Tools    []string `json:"tools,omitzero"`
	Model    Choice   `json:"model,omitzero"`  // without a Provider: the session's
	Effort   string   `json:"effort,omitzero"` // "": the model's
	Agent    string   `json:"agent,omitzero"`  // of another maker that makes the turns, "" for our own
}

// May reports that the named agent calls a tool at all. Nil calls all.
func (a *NamedAgent) May(tool string) bool {
	if a == nil || a.AllTools {
		return true
	}
	for _, name := range a.Tools {
		if Means(tool, name) {
			return true
		}
	}
	return false
}

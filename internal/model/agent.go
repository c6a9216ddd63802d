package model

import "encoding/json"

// AgentTurn is what a hosted agent is to go on with.
type AgentTurn struct {
	RunID string
	Turn  int // within the run
	// Texts is how many user messages the conversation has, and Fresh how many of the last the
	// agent may not have.
	Texts, Fresh int
	// Again says that the agent may have been sent them in this turn: a crash has cut it.
	Again bool
	// Session is the id by which the agent knows the session, "" for none yet.
	Session string
	// Cut are the names of calls that were under way when the turn was cut: nobody knows
	// what they did.
	Cut []string
	// Choices are what people have chosen of the agent's options, the oldest first.
	Choices []AgentChoice
}

// AgentChoice is the value that an option of a hosted agent has.
type AgentChoice struct {
	ID    string `json:"id"`
	Value string `json:"value"`
}

// AgentOffer is what can be chosen in a session of a hosted agent. Of two the one with the
// larger Version holds.
type AgentOffer struct {
	Version  int
	Settled  bool // the agent has taken what people have chosen before
	Commands []AgentCommand
	Options  []AgentOption
}

// AgentCommand is what a prompt may begin with, behind a slash. Hint says what may stand
// behind it.
type AgentCommand struct{ Name, Description, Hint string }

// AgentOption is something to choose. Truncated: the agent has more values than these.
type AgentOption struct {
	ID, Name, Description, Category, Value string

	Values    []AgentValue
	Truncated bool
}

// AgentValue is one value of an option.
type AgentValue struct{ Value, Name, Description string }

// Of returns the option of that category, unless it is "", or else that id, and whether
// there is one.
func (o *AgentOffer) Of(category, id string) (AgentOption, bool) {
	var found AgentOption
	has := false
	if o == nil {
		return found, false
	}
	for _, option := range o.Options {
		if category != "" && option.Category == category {
			return option, true
		}
		if option.ID == id && !has {
			found, has = option, true
		}
	}
	return found, has
}

// AgentNews is what a hosted agent says beside its messages and its calls, or what the
// daemon did about it. Fields that are not set say nothing.
type AgentNews struct {
	Session  string          // the agent knows the session by this id from here on
	Took     int             // it has the first of the user messages, so many; 0 says nothing
	Prompted string          // it was sent this text of the daemon's own, to go on with
	Patch    json.RawMessage // of the session's state
	Title    string
	Offer    *AgentOffer // what can be chosen now
	Code     string      // of the warning that Warning is
	Warning  string      // for people
}

// AgentOptionError refuses a choice, and lists the ones to choose from. Field is what is
// wrong: id or value.
type AgentOptionError struct{ Field, Message string }

func (e *AgentOptionError) Error() string { return e.Message }

// AgentError ends a run whose hosted agent cannot go on. Code is the wire's.
type AgentError struct {
	Code    string
	Message string
}

func (e *AgentError) Error() string { return e.Message }

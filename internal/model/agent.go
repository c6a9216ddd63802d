package model

import (
	"encoding/json"
	"errors"
)

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
}

// AgentNews is what a hosted agent says beside its messages and its calls, or what the
// daemon did about it. Fields that are not set say nothing.
type AgentNews struct {
	Session  string          // the agent knows the session by this id from here on
	Took     int             // it has the first of the user messages, so many; 0 says nothing
	Prompted string          // it was sent this text of the daemon's own, to go on with
	Patch    json.RawMessage // of the session's state
	Title    string
	Code     string // of the warning that Warning is
	Warning  string // for people
	Paused   bool   // nothing follows: the next program goes on with the agent
}

// ErrPaused is why a hosted agent's stream breaks off where the next program goes on with it.
var ErrPaused = errors.New("the daemon starts anew")

// AgentError ends a run whose hosted agent cannot go on. Code is the wire's.
type AgentError struct {
	Code    string
	Message string
}

func (e *AgentError) Error() string { return e.Message }

package slash

import (
	"fmt"

	"noused/internal/protocol"
)

// Outcome is what a job comes to. Both faces know how to show one.
type Outcome struct {
	Name  string // of the command, where the screen shows that it is at work
	Info  string // a line or more for the user
	Stays bool   // info stands in the conversation of this screen, and stays
	Shell string // the OutputID of the line for the shell that has ended
	Err   error

	Text   string   // goes back into the input: what was not accepted
	Back   []string // goes into the input before what is written: what the daemon handed back
	Edit   *Edit    // the message that Text is written anew for
	Sent   string   // id of the input that was accepted
	Follow *string  // the session to show from now on
	Site   *Site    // of that session; nil is the one that is shown
	Show   any      // a list to choose from: a SessionList or another of this package's, a protocol.Tree
	Images []Image  // for the next text; empty and not nil: none of them
	Help   bool
	Mouse  bool // switch the mouse on or off
	Theme  string

	Find     *string // a text to find in the conversation; "" asks for one
	Board    bool    // show the board
	Changes  bool    // show what the session has changed
	LastLine string  // what the last line of the screen says until the next run
	Copy     bool    // copy the block in focus, or the last answer
	Palette  bool    // show all commands
	Plan     *string // a text to be planned; "" turns plan mode on or off
	DoPlan   bool    // have the plan carried out
	Start    bool    // start a daemon
	SetUp    bool    // ask for a model and its key
	Quit     bool
}

// SessionList asks for a choice among sessions; query is the filter to begin
// with.
type SessionList struct {
	Sessions []protocol.SessionInfo
	Matches  []protocol.SearchMatch
	Query    string
}

type ToolList struct {
	Tools   []protocol.ToolInfo
	Servers []protocol.ServerInfo
}

type ModelList struct{ Models []protocol.ListedModel }

func informed(format string, args ...any) Outcome { return Outcome{Info: fmt.Sprintf(format, args...)} }

func Failed(err error) Outcome { return Outcome{Err: err} }

func following(id, format string, args ...any) Outcome {
	return Outcome{Follow: &id, Info: fmt.Sprintf(format, args...)}
}

// Of names the command that came to the outcome.
func (o Outcome) Of(name string) Outcome {
	o.Name = name
	return o
}

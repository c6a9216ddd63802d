// Package approval is what clients know of approvals: which of the options is the yes
// and which the no, what waits, who has answered.
//
// It is pure, and safe for concurrent use. It refuses to draw anything.
package approval

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// IsForm reports that an MCP server wants a form filled in.
func IsForm(a protocol.Approval) bool { return a.Kind == protocol.ApprovalQuestion }

// Yes is the id of the option that allows no more than what is asked.
func Yes(a protocol.Approval) string {
	switch a.Kind {
	case protocol.ApprovalBudget:
		return protocol.OptionContinue
	case protocol.ApprovalQuestion:
		return protocol.OptionAccept
	}
	return protocol.OptionOnce
}

// Outside reports that the call is to run outside the sandbox, which clients show as a
// warning.
func Outside(a protocol.Approval) bool {
	arguments, _ := Arguments(a.Arguments)
	leaves := func(m Argument) bool { return m.Name == "outside_sandbox" && m.Value.Kind() == 't' }
	return a.Kind == protocol.ApprovalTool && builtin(a) && slices.ContainsFunc(arguments, leaves)
}

// builtin reports that it is one of the daemon's own tools that know outside_sandbox.
func builtin(a protocol.Approval) bool {
	return slices.Contains([]string{"bash", "edit", "write"}, a.ToolName)
}

// No is the option that denies, nil where there is none.
func No(a protocol.Approval) *protocol.ApprovalOption {
	i := slices.IndexFunc(a.Options, func(o protocol.ApprovalOption) bool { return o.Decision == protocol.DecisionDeny })
	if i < 0 {
		return nil
	}
	return &a.Options[i]
}

// Pending is what waits after a status: the list, which is left as it is, with what was
// requested and without what was resolved.
func Pending(list []protocol.Approval, e protocol.Status) []protocol.Approval {
	without := func(id string) []protocol.Approval {
		return slices.DeleteFunc(slices.Clone(list), func(a protocol.Approval) bool { return a.ApprovalID == id })
	}
	switch {
	case e.Code == protocol.StatusApprovalResolved:
		return without(e.ApprovalID)
	case e.Code == protocol.StatusApprovalRequested && e.Approval != nil:
		a := *e.Approval
		a.SessionID, a.RunID = cmp.Or(a.SessionID, e.SessionID), cmp.Or(a.RunID, e.RunID)
		return append(without(a.ApprovalID), a)
	}
	return list
}

// Program is the client that has answered.
type Program struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
}

// ResolvedBy reads who or what has resolved an approval: a program, whose PID is not 0,
// or one of the words of the protocol.
func ResolvedBy(by jsontext.Value) (program Program, word string) {
	switch by.Kind() {
	case '{':
		if json.Unmarshal(by, &program) != nil {
			program = Program{}
		}
	case '"':
		_ = json.Unmarshal(by, &word)
	}
	return program, word
}

package approval

import (
	"cmp"
	"fmt"
	"slices"

	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// Of is what a session waits for, nil if it is nothing.
func Of(s protocol.State, session string) *protocol.Approval {
	i := slices.IndexFunc(s.PendingApprovals, func(a protocol.Approval) bool { return a.SessionID == session })
	if i < 0 {
		return nil
	}
	return &s.PendingApprovals[i]
}

// Elsewhere are the approvals that sessions other than the one of a state wait for.
func Elsewhere(s protocol.State) []protocol.Approval {
	return slices.DeleteFunc(slices.Clone(s.PendingApprovals), func(a protocol.Approval) bool {
		return a.SessionID == s.SessionID
	})
}

// Resolution says how an approval ended, and who or what ended it, in one line.
func Resolution(e protocol.Status) string {
	if _, word := ResolvedBy(e.By); word == protocol.BySteer {
		return Outcome(e)
	}
	return "approval: " + Outcome(e)
}

// Outcome is Resolution for a line that says what it is about.
func Outcome(e protocol.Status) string {
	text := string(e.Outcome)
	if e.Option != "" && e.Option != protocol.OptionDeny {
		text += " (" + e.Option + ")"
	}
	who, word := ResolvedBy(e.By)
	switch {
	case word == protocol.BySteer:
		return "not run: your message was sent to the model instead"
	case who.PID > 0:
		text += fmt.Sprintf(" by %s, process %d", cmp.Or(who.Comm, "another client"), who.PID)
	case word == protocol.ByTimeout:
		text += ": nobody answered in time"
	case word == protocol.ByAbort:
		text += ": the run was aborted"
	case word == protocol.ByDelete:
		text += ": the session was deleted"
	case word != "":
		text += ": " + word
	}
	return plaintext.RevealLine(text)
}

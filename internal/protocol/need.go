package protocol

import (
	"cmp"
	"strings"
)

// Need is what a session wants of people. The lower it is, the sooner somebody
// should look.
type Need int

// The needs, the most urgent first.
const (
	NeedAnswer   Need = iota // its run waits until somebody answers
	NeedLook                 // its last run failed, and nobody has seen that
	NeedPatience             // it works
	NeedReading              // its last run is done, and nobody has seen that
	NeedNothing              // it is idle
)

// Need tells what the session wants.
func (s SessionInfo) Need() Need {
	switch {
	case s.WaitingFor != "":
		return NeedAnswer
	case s.RunState != StateIdle && s.RunState != "":
		return NeedPatience
	case s.Unread && s.LastStopReason == StopError:
		return NeedLook
	case s.Unread:
		return NeedReading
	}
	return NeedNothing
}

// ByNeed orders sessions in every list of them: by what they need, then what was
// changed last before what was changed earlier. It is a total order.
func ByNeed(x, y SessionInfo) int {
	return cmp.Or(
		cmp.Compare(x.Need(), y.Need()),
		y.UpdatedAt.Compare(x.UpdatedAt),
		strings.Compare(y.SessionID, x.SessionID),
	)
}

// Blank reports of a session that list_sessions told that nothing was said in it and nobody has
// named it: lists for people leave it out.
func (s SessionInfo) Blank() bool {
	return !s.CreatedAt.IsZero() && s.Title == "" && s.Messages == 0 && (s.RunState == "" || s.RunState == StateIdle)
}

package conversation

import (
	"regexp"
	"strconv"
	"strings"
	"sync"

	"noused/internal/protocol"
)

// Reported is which child session a Report is of.
type Reported struct {
	Child  string // its id
	Title  string
	Reason protocol.StopReason // how its run ended; "" where that is not known
}

// The message that has what a child in the background has come to begins with its id and its
// title, and ends with how its run ended and what it has changed.
var (
	reportHead = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\[(ses-[0-9a-f-]+)@run-[0-9a-f-]+: the child session ("(?:[^"\\\n]|\\.)*"), ` +
			`which works in the background, has ended\]\n\n`)
	})
	reportFoot = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\n\n\[session_id ses-[0-9a-f-]+, folder .*?, (completed|aborted|error)(?:[:;] (.*))?\]$`)
	})
)

// reportOf tells a message that has what a child has come to from one of a person: of is nil for
// the latter. said is the child's answer, and what else there is to say of it.
func reportOf(text string) (of *Reported, said string) {
	head := reportHead().FindStringSubmatch(text)
	if head == nil {
		return nil, text
	}
	of, said = &Reported{Child: head[1]}, text[len(head[0]):]
	of.Title, _ = strconv.Unquote(head[2])
	if i := strings.LastIndex(said, "\n\n[session_id "); i >= 0 {
		if foot := reportFoot().FindStringSubmatch(said[i:]); foot != nil {
			of.Reason, said = protocol.StopReason(foot[1]), said[:i]
			if foot[2] != "" {
				said += "\n\n" + foot[2]
			}
		}
	}
	return of, said
}

// userSaid is the entry of a message to the model.
func (c *Conversation) userSaid(id, text string, kind protocol.Kind) *Entry {
	of, said := reportOf(text)
	as := User
	if of != nil {
		as = Report
	}
	e := c.messageEntry(as, id)
	e.TurnKind, e.Reported = kind, of
	e.Text.set(said)
	return e
}

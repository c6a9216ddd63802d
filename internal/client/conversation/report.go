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

// The message that has what a child in the background has come to names its child. It begins with the
// child's id and title, and ends with how its run ended and what it has changed.
var (
	reportHead = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\[[^ ]+: the background child session ("(?:[^"\\\n]|\\.)*") ` +
			`(?:has ended|was aborted|has failed)\]\n\n`)
	})
	reportFoot = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\n\n\[session_id ses-[0-9a-f-]+, folder .*?, (completed|aborted|error)(?:[:;] (.*))?\]$`)
	})
)

// reportOf reads the message that has what a child has come to: said is the child's answer, and what else there
// is to say of it.
func reportOf(child *protocol.ChildRun, text string) (of *Reported, said string) {
	of = &Reported{Child: child.SessionID}
	head := reportHead().FindStringSubmatch(text)
	if head == nil {
		return of, text
	}
	said = text[len(head[0]):]
	of.Title, _ = strconv.Unquote(head[1])
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

// userSaid is the entry of a message to the model. Of one that nobody has sent, child is whose end it tells.
func (c *Conversation) userSaid(id, text string, kind protocol.Kind, child *protocol.ChildRun) *Entry {
	as, of := User, (*Reported)(nil)
	if child != nil {
		as = Report
		of, text = reportOf(child, text)
	}
	e := c.messageEntry(as, id)
	e.TurnKind, e.Reported = kind, of
	e.Text.set(text)
	return e
}

// Package follow stays connected to a daemon: it comes back by itself when the
// connection or the daemon went away, says what was missed, and never tells an
// event twice. A Stream has the events of all sessions, one after the other; a
// Session has one session as it is at one moment, and everything that happens
// there from then on.
//
// Concurrency: a Stream belongs to one goroutine at a time, and holds no more
// than one event. Any goroutine may call any method of a Session. A Session owns
// its goroutines; they end, and are waited for, in Close. Nothing waits for the
// reader of its Updates: what it does not take is held up to a limit, then
// dropped and made good with a Snapshot.
//
// It refuses to start a daemon, to draw, and to repeat a command whose answer
// was lost, unless its idempotency key has it done once.
package follow

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

const (
	dialTimeout = 5 * time.Second
	callTimeout = 30 * time.Second // for a reply to what is answered at once
)

// Dialer opens connections to one daemon.
type Dialer = client.Dialer

// Socket is a daemon of this machine, by the path of its command socket.
type Socket string

// Commands connects to the command socket.
func (s Socket) Commands(ctx context.Context) (net.Conn, error) {
	return client.Connect(ctx, string(s))
}

// Events connects to the event socket.
func (s Socket) Events(ctx context.Context) (net.Conn, error) {
	return client.Connect(ctx, protocol.EventSocket(string(s)))
}

// Update is what a follower tells. A Stream tells Connected, Disconnected,
// Line and Gap. A Session tells Snapshot, Events, Gap, Changed, Refused,
// Disconnected and Broken; all but the last three mean that it is connected.
type Update interface{ update() }

// Connected says that events come again, or for the first time.
type Connected struct {
	Epoch     string // of the daemon; "" where it has none
	After     uint64 // the events after this one follow
	Gap       bool   // there were others since what was asked for, and they are gone
	Restarted bool   // it is not the daemon of the last connection, or that started anew
	Lacks     error  // nil, or a *client.OlderError: events may be missed without a word
}

// Disconnected says that there is no connection, and why; the follower keeps
// trying.
type Disconnected struct {
	Err      error
	NoDaemon bool          // nobody listens there
	Since    time.Time     // the end of the last connection, or the beginning of all
	Next     time.Duration // until the next try
}

// Event is one event. At is the daemon's clock, Seq its number.
type Event struct {
	protocol.Event
	At  time.Time
	Seq uint64
}

// Line is an event with what the daemon wrote. Event is nil, and Err says why,
// where it is of a type that v1 does not have or cannot be read.
type Line struct {
	Event
	Type    string
	Payload jsontext.Value
	Raw     []byte // without the LF
	Err     error
	Lost    bool // a part of what its run said was not told
}

// Gap says that events were dropped. Of a Stream it is the daemon's warning, with
// its Line: this reader was too slow (wire-v1 §5). Of a Session it has none, and
// a Snapshot follows.
type Gap struct {
	Line
	Message string
}

// Snapshot replaces everything that was shown: the followed session as it is at
// one moment. The Events behind it go on from there.
type Snapshot struct {
	State    protocol.State
	Messages []jsontext.Value    // as get_messages has them, root first
	Runs     []protocol.EndedRun // of them
	Lacks    error               // nil, or a *client.OlderError: the daemon has the frozen commands only
	New      bool                // the daemon was restarted since the last Snapshot
	// Lost says why the session of the Snapshot before cannot be shown any more: it was deleted, say. Nil: it can.
	Lost error

	asked bool // it answers a Follow
}

// Events happened since the last Snapshot or Events: those of the followed
// session and those of the daemon as a whole, in order, none twice, none
// missing. The first ones behind a Snapshot may be older than it: they say what
// stands in neither its Messages nor its State, the thinking of the message that
// is being said and the output of the tool call that runs.
type Events struct{ List []Event }

// Changed is the session's state after all events told so far. It comes when
// something changed that no event reports, such as a mode, and after a
// connection that was resumed without a loss.
type Changed struct{ State protocol.State }

// Refused answers a Follow of a session that cannot be shown, and what Open's find
// found. The Session goes on with the one it showed before, or with the active one; a
// Snapshot follows.
type Refused struct {
	SessionID string
	Err       error
}

// Broken says that the Session came upon a mistake of its own and tells nothing
// any more.
type Broken struct{ Err error }

func (Connected) update()    {}
func (Disconnected) update() {}
func (Line) update()         {}
func (Gap) update()          {}
func (Snapshot) update()     {}
func (Events) update()       {}
func (Changed) update()      {}
func (Refused) update()      {}
func (Broken) update()       {}

// A daemon that comes back is found within maxPause.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// outage counts the tries of one time without a connection. The zero outage is
// none.
type outage struct {
	since time.Time
	pause time.Duration
}

// failed is a try that was in vain, or the end of a connection.
func (o *outage) failed(err error) Disconnected {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	o.pause = min(max(2*o.pause, firstPause), maxPause)
	var gone *client.NoDaemonError
	return Disconnected{Err: err, NoDaemon: errors.As(err, &gone), Since: o.since, Next: o.pause}
}

// wait waits for the next try, or for ctx.
func (o *outage) wait(ctx context.Context) error {
	t := time.NewTimer(o.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Package link keeps a terminal interface connected to a daemon: it follows one
// session, says everything that happens there in order, and comes back by
// itself when the daemon went away.
//
// Concurrency: any goroutine may call any method. A Link owns its goroutines;
// they end, and are waited for, in Close. Nothing waits for the reader of
// Updates: what it does not take is held up to a limit, then dropped and made
// good with a Snapshot.
//
// It refuses to start a daemon, to draw, and to repeat a command whose answer
// was lost.
package link

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// ErrOffline is what Do answers while there is no connection. The command has
// not been sent.
var ErrOffline = errors.New("not connected to the daemon")

// ErrUnsupported is what Do answers when the daemon does not know the command:
// it is an older one.
var ErrUnsupported = client.ErrUnsupported

// Update is what a Link tells. Every update but Offline and Refused means that
// the link is connected.
type Update interface{ update() }

// Snapshot replaces everything that was shown: the followed session as it is at
// one moment. The Events behind it go on from there.
type Snapshot struct {
	State    protocol.State
	Messages []jsontext.Value // as get_messages has them, root first
	Missing  []string         // what this daemon does not know of the added commands
	New      bool             // the daemon was restarted since the last Snapshot
}

// Events happened since the last Snapshot or Events: those of the followed
// session and those of the daemon as a whole, in order, none twice, none
// missing. The first ones behind a Snapshot may be older than it: they say what
// stands in neither its Messages nor its State, the thinking of the message that
// is being said and the output of the tool call that runs. Dropped: there were more than the reader took; List is empty and a
// Snapshot follows.
type Events struct {
	List    []Event
	Dropped bool
}

// Event is one event. At is the daemon's clock, Seq 0 where an old daemon does
// not number.
type Event struct {
	protocol.Event
	At  time.Time
	Seq uint64
}

// Changed is the session's state after all events told so far. It comes when
// something changed of which no event tells, such as a mode, and after a
// connection that was resumed without a loss.
type Changed struct{ State protocol.State }

// Offline says that there is no connection, and why; the link keeps trying.
type Offline struct {
	Err      error
	NoDaemon bool // nobody listens at the socket
	Since    time.Time
}

// Refused answers a Follow of a session that cannot be shown. The link goes on
// with the one it showed before, or with the active one; a Snapshot follows.
type Refused struct {
	SessionID string
	Err       error
}

// Broken says that the link came upon a mistake of its own and tells nothing any
// more.
type Broken struct{ Err error }

func (Snapshot) update() {}
func (Events) update()   {}
func (Changed) update()  {}
func (Offline) update()  {}
func (Refused) update()  {}
func (Broken) update()   {}

// A daemon that comes back is found within maxPause.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// Link is a connection that outlives its daemon.
type Link struct {
	socket string
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	out    *outbox
	asked  chan struct{} // cap 1: want has changed

	// touched: a command may have changed the state, or told it to its caller.
	touched atomic.Bool
	older   atomic.Bool    // the daemon is one without what was added
	fill    *client.Filler // of an older one: what its events leave out

	mu       sync.Mutex
	commands *client.Client // nil while offline
	want     *string        // the session that Follow asked for, until it is taken up

	// Of the run goroutine.
	session string // the one that is followed; "" before the first Snapshot: the active one
	epoch   string // of the last Snapshot; "" also for an old daemon
	last    uint64 // the newest event that was told, or is in the Snapshot
	synced  bool   // what was told is whole up to last
	known   bool   // there was a Snapshot
	doing   doing
	since   time.Time
}

// Open starts to connect to the daemon at socket, and to follow a session as
// Follow does. It does not block; the first Update says how it went.
func Open(socket, sessionID string) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{
		socket: socket, ctx: ctx, cancel: cancel,
		out: newOutbox(), asked: make(chan struct{}, 1), doing: doing{}, since: time.Now(), fill: &client.Filler{},
	}
	if sessionID != "" {
		l.want = &sessionID
	}
	l.wg.Go(l.guarded(l.run))
	l.wg.Go(func() { l.out.deliver(ctx) })
	return l
}

// guarded tells a panic of f instead of ending the program, whose terminal
// nobody would put in order then.
func (l *Link) guarded(f func()) func() {
	return func() {
		defer func() {
			if r := recover(); r != nil {
				l.out.put(Broken{fmt.Errorf("panic: %v\n%s", r, debug.Stack())})
			}
		}()
		f()
	}
}

// Close ends the connection and Updates, and waits for the link's goroutines.
// What the daemon has accepted goes on.
func (l *Link) Close() {
	l.cancel()
	l.wg.Wait()
}

// Updates is closed by Close.
func (l *Link) Updates() <-chan Update { return l.out.updates }

// Follow shows another session, "" the active one; a Snapshot or a Refused
// answers. It does not block. The session stays until the next Follow, whatever
// other clients make the active one. To follow the same session again asks for
// a new Snapshot: after set_leaf, say. A daemon that knows no session_id in
// get_state can show the active session only: there Follow makes it the active
// one.
func (l *Link) Follow(sessionID string) {
	l.mu.Lock()
	l.want = &sessionID
	l.mu.Unlock()
	select {
	case l.asked <- struct{}{}:
	default:
	}
}

func (l *Link) takeWant() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.want == nil {
		return "", false
	}
	id := *l.want
	l.want = nil
	return id, true
}

// wantAgain puts back what takeWant took, unless there was a Follow since.
func (l *Link) wantAgain(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.want == nil {
		l.want = &id
	}
}

// Do sends a command and waits for its reply until ctx ends, and half a minute
// where the command is one that is answered at once. Errors are those of
// client.Call, ErrOffline and *client.SilentError. With the last, and with
// client.ErrLost, the daemon may have executed the command.
func Do[P protocol.Params, R protocol.Reply](ctx context.Context, l *Link, def protocol.Def[P, R], p P) (R, error) {
	l.mu.Lock()
	c := l.commands
	l.mu.Unlock()
	if c == nil {
		var none R
		return none, fmt.Errorf("%s: %w", def.Name(), ErrOffline)
	}
	defer l.touched.Store(true)
	command, text := sends(p)
	if l.older.Load() && command != "" {
		l.fill.Sent(command, text)
	}
	ctx, cancel := client.Bounded(ctx, p, callTimeout)
	defer cancel()
	r, err := client.Call(ctx, c, def, p)
	var refused *protocol.Error
	if l.older.Load() && command != "" && errors.As(err, &refused) {
		l.fill.Unsent(command)
	}
	return r, err
}

// sends returns the text that a command sends, and the command's name.
func sends(params protocol.Params) (command, text string) {
	switch p := params.(type) {
	case protocol.PromptParams:
		return "prompt", p.Text
	case protocol.SteerParams:
		return "steer", p.Text
	case protocol.FollowUpParams:
		return "follow_up", p.Text
	default:
		return "", ""
	}
}

func (l *Link) use(c *client.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commands = c
}

// run connects again and again until Close.
func (l *Link) run() {
	pause := firstPause
	for {
		began, err := l.connect()
		if l.ctx.Err() != nil {
			return
		}
		if began {
			pause, l.since = firstPause, time.Now()
		}
		var gone *client.NoDaemonError
		l.out.put(Offline{Err: err, NoDaemon: errors.As(err, &gone), Since: l.since})
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-l.ctx.Done():
			return
		}
	}
}

// added are the names of the commands that an old daemon does not know.
func added() []string {
	names := []string{"subscribe"}
	for _, row := range protocol.Table() {
		if row.Since == protocol.Added {
			names = append(names, row.Name)
		}
	}
	return names
}

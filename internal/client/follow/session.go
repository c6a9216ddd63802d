package follow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// ErrOffline is what Do answers while there is no connection. The command has
// not been sent.
var ErrOffline = errors.New("not connected to the daemon")

// Session follows one session, and has a connection for commands beside.
type Session struct {
	daemon Dialer
	find   func(context.Context) (string, error)
	other  Instead
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	out    *outbox
	asked  chan struct{} // cap 1: want has changed

	// touched: a command may have changed the state, or told it to its caller.
	touched  atomic.Bool
	touching chan struct{} // cap 1: touched was set

	mu       sync.Mutex
	commands *client.Client // nil while offline
	changed  chan struct{}  // closed when commands is another one
	want     *string        // the session that Follow asked for, until it is taken up

	// Of the run goroutine, and of one that reads events while it waits for them.
	events *Stream

	// Of the run goroutine.
	session string         // the one that is followed; "" before the first Snapshot: the active one
	shown   protocol.State // of the last Snapshot: id, folder and parent
	epoch   string         // of the last Snapshot
	last    uint64         // the newest event that was told, or is in the Snapshot
	synced  bool           // what was told is whole up to last
	known   bool           // there was a Snapshot
	lost    error          // why the session of the last Snapshot cannot be shown any more
	tail    liveTail
	trouble outage
}

// Instead says which session is followed where one was deleted: its id, or an error where there is none.
type Instead func(ctx context.Context, c client.Sender, deleted protocol.State) (sessionID string, err error)

// Open starts to connect to a daemon, and to follow a session as Follow does. It
// does not block; the first Update says how it went. With an empty sessionID,
// find, if it is not nil, is asked for one when a daemon answers, again on each
// connection until it has no error; Refused tells one that the daemon answered. Where the session that is followed was
// deleted, other says what is followed then; nil: the active one.
func Open(daemon Dialer, sessionID string, find func(context.Context) (string, error), other Instead) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	daemon = client.Adapt(daemon)
	s := &Session{
		daemon: daemon, find: find, other: other, ctx: ctx, cancel: cancel, events: NewStream(daemon, Options{}),
		out: newOutbox(), asked: make(chan struct{}, 1), touching: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	if sessionID != "" {
		s.want = &sessionID
	}
	s.wg.Go(s.guarded(s.run))
	s.wg.Go(func() { s.out.deliver(ctx) })
	return s
}

// guarded tells a panic of f instead of ending the program, whose terminal
// nobody would put in order then.
func (s *Session) guarded(f func()) func() {
	return func() {
		defer func() {
			if r := recover(); r != nil {
				s.out.put(Broken{fmt.Errorf("panic: %v\n%s", r, debug.Stack())})
			}
		}()
		f()
	}
}

// Close ends the connection and Updates, and waits for the goroutines. What
// the daemon has accepted goes on.
func (s *Session) Close() {
	s.cancel()
	s.wg.Wait()
}

// Updates is closed by Close.
func (s *Session) Updates() <-chan Update { return s.out.updates }

// Follow shows another session, "" the active one; a Snapshot or a Refused
// answers. It does not block. The session stays until the next Follow, whatever
// other clients make the active one. To follow the same session again asks for
// a new Snapshot: after set_leaf, say. Where the daemon works in its active
// session only, Follow makes it that.
func (s *Session) Follow(sessionID string) {
	s.mu.Lock()
	s.want = &sessionID
	s.mu.Unlock()
	signal(s.asked)
}

// wanted is the session that is to be shown, "" while only the active one is.
func (s *Session) wanted() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want != nil {
		return *s.want
	}
	return s.session
}

func (s *Session) takeWant() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want == nil {
		return "", false
	}
	id := *s.want
	s.want = nil
	return id, true
}

// wantAgain puts back what takeWant took, unless there was a Follow since.
func (s *Session) wantAgain(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want == nil {
		s.want = &id
	}
}

// Do sends a command and waits for its reply until ctx ends, and half a minute
// where the command is one that is answered at once. Errors are those of
// client.Call, ErrOffline and *client.SilentError. With the last, and with
// client.ErrLost, the daemon may have executed the command. What Resend sends again
// is, if there is another connection in time.
func Do[P protocol.Params, R protocol.Reply](ctx context.Context, s *Session, def protocol.Def[P, R], p P) (R, error) {
	return client.Call(ctx, s, def, p)
}

// Send is client.Sender, and does what Do does.
func (s *Session) Send(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	c, changed := s.connection()
	if c == nil {
		return nil, fmt.Errorf("%s: %w", command, ErrOffline)
	}
	defer s.touch()
	ctx, cancel := client.Bounded(ctx, p, callTimeout)
	defer cancel()
	return Resend(p, c, func(c *client.Client) (jsontext.Value, error) { return c.Send(ctx, command, p) },
		func(before *client.Client, _ error) (next *client.Client) {
			if before.KeepsKeys(ctx) != nil {
				return nil
			}
			if next, changed = s.another(ctx, before, changed); next == nil || next.KeepsKeys(ctx) != nil {
				return nil
			}
			return next
		})
}

// Refusal is client.Refusal of the daemon that is connected.
func Refusal[P protocol.Params, R protocol.Reply](s *Session, def protocol.Def[P, R], p P) error {
	if c, _ := s.connection(); c != nil {
		return client.Refusal(c, def, p)
	}
	return nil
}

// touch has the state looked at after a command.
func (s *Session) touch() {
	s.touched.Store(true)
	signal(s.touching)
}

// sends returns the text that a command sends, and its idempotency key.
func sends(params protocol.Params) (text, key string) {
	switch p := params.(type) {
	case protocol.PromptParams:
		return p.Text, p.IdempotencyKey
	case protocol.SteerParams:
		return p.Text, p.IdempotencyKey
	case protocol.FollowUpParams:
		return p.Text, p.IdempotencyKey
	default:
		return "", ""
	}
}

func (s *Session) use(c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = c
	close(s.changed)
	s.changed = make(chan struct{})
}

// connection is the one for commands, nil while there is none. changed is closed when that
// is so no more.
func (s *Session) connection() (c *client.Client, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands, s.changed
}

// another waits for a connection after c, which is lost. It is nil where there is none in time.
func (s *Session) another(ctx context.Context, c *client.Client, changed <-chan struct{}) (*client.Client,
	<-chan struct{},
) {
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		case <-s.ctx.Done():
			return nil, nil
		}
		var next *client.Client
		if next, changed = s.connection(); next != nil && next != c {
			return next, changed
		}
	}
}

// run connects again and again until Close.
func (s *Session) run() {
	for {
		began, err := s.connect()
		if s.ctx.Err() != nil {
			return
		}
		if began {
			s.trouble = outage{}
		}
		s.out.put(s.trouble.failed(err))
		if s.trouble.wait(s.ctx) != nil {
			return
		}
	}
}

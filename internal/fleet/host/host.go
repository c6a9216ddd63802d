// Package host is the daemon's side of a fleet (remote.md §2): it takes commands that
// come over NATS, sends the events of the daemon's log to a stream, and says that the
// daemon is there.
//
// It only dials out. While NATS is away events wait in the log, as for any reader that
// is slow, and the daemon is as ever. A name belongs to one daemon of a fleet: one that
// finds its name taken takes no commands and sends no events.
//
// Concurrency: a Host may be used by any number of goroutines. Each connection has
// goroutines of its own, which end with it; Close ends all.
//
// It refuses to hold anybody up who does not ask it to, to decide what a command may
// do, and to take the sender of one for a person unless the configuration says so.
package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"noused/internal/budget"
	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/model"
	"noused/internal/protocol"
)

// Options is what a Host needs. All of it must be set, except where it says otherwise.
type Options struct {
	fleet.Connect
	Prefix     fleet.Prefix
	Name       string            // the daemon's in the fleet
	Labels     map[string]string // may be nil
	Approve    bool              // the sender of a command is taken for a person
	Slots      int               // jobs at a time
	JobTimeout time.Duration     // a job whose daemon has not been heard of for so long is another's

	Version, Epoch string
	Instance       string // the same for every daemon of one state folder, and no other
	Workdir        string
	Load           func() (running, waiting int, workdirs []string) // must not block

	Jobs Jobs // nil: it takes none

	Mux     *protocol.Mux
	MaxLine int // bytes
	Held    *budget.Budget
	Events  *event.Log
	Audit   func(model.AuditEvent) // must not block
	Log     *zap.Logger
}

// Jobs are what does the fleet's jobs here.
type Jobs interface {
	// Serve takes jobs until the context ends, which it does with the connection. It
	// calls well when it can.
	Serve(ctx context.Context, js jetstream.JetStream, well func()) error
	// Close ends what Serve has left. It waits for it.
	Close()
}

const (
	firstPause = 250 * time.Millisecond // before it dials again
	longPause  = 15 * time.Second
	lastWord   = 3 * time.Second // for what is left when the daemon stops
)

// Host is the daemon in its fleet. A nil Host is that of a daemon without one: its
// methods do nothing.
type Host struct {
	o      Options
	status *status
	out    *outbox
	turns  turns
	nudges chan struct{} // holds one: what the daemon does has changed

	service *service
	rival   atomic.Pointer[rival]

	ctx    context.Context // of the connections
	stop   context.CancelFunc
	closed chan struct{} // closed when nothing of it is left

	work context.Context // of the commands
	end  context.CancelCauseFunc

	current atomic.Pointer[link] // nil while there is none
	ousted  atomic.Bool          // a daemon of the same state has had the name since
	fault   atomic.Pointer[string]

	pending  atomic.Int32 // long commands
	encoding sync.Mutex   // held while a reply is made and has its room, or is refused it

	mu      sync.Mutex
	closing bool
	under   sync.WaitGroup // commands under way
}

var errStopping = errors.New("the daemon stops")

// New makes a Host that is not yet in the fleet.
func New(o Options) *Host {
	h := &Host{o: o, nudges: make(chan struct{}, 1), closed: make(chan struct{})}
	h.status, h.service = newStatus(o), newService(o)
	h.out = newOutbox(h)
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.work, h.end = context.WithCancelCause(context.Background())
	return h
}

// Start connects to the fleet and stays connected until Close, which must follow. It
// does not wait.
func (h *Host) Start() {
	if h == nil {
		return
	}
	go func() { // ended by Close
		defer close(h.closed)
		h.run()
	}()
}

// Close leaves the fleet: it sends the events that are left, for which it waits a
// moment where the server can be reached, and says that the daemon is gone. The event
// log must be closed by then. It blocks for a few seconds at most.
func (h *Host) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.end(errStopping)
	grace, over := context.WithTimeout(context.Background(), lastWord)
	defer over()
	answered := make(chan struct{})
	go func() { // ends with the commands: their context has ended
		defer close(answered)
		h.under.Wait()
	}()
	await(grace, answered)
	if l := h.current.Load(); l != nil {
		if !h.status.has("events") { // else they will not be sent in a moment either
			await(grace, h.out.drained)
		}
		if l.nc.FlushWithContext(grace) != nil {
			l.nc.Close() // it takes nothing, and would not hear that the daemon goes
		}
	}
	h.stop()
	<-h.closed
	<-answered
	if h.o.Jobs != nil {
		h.o.Jobs.Close()
	}
}

// admit counts a command, which must be counted off with h.under. False: none is taken
// any more.
func (h *Host) admit() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closing {
		h.under.Add(1)
	}
	return !h.closing
}

func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// State is how it stands; nil without a fleet. It does not block.
func (h *Host) State() *protocol.FleetState {
	if h == nil {
		return nil
	}
	return h.status.state(h.out.published.Load())
}

// run connects again and again until the host is closed.
func (h *Host) run() {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPause, longPause
	for h.ctx.Err() == nil {
		joined, err := h.connect()
		if h.ctx.Err() != nil {
			return
		}
		if joined {
			pause.Reset()
		}
		h.status.away(err)
		select {
		case <-time.After(pause.NextBackOff()):
		case <-h.ctx.Done():
		}
	}
}

// connect is one connection, from its beginning to its end. joined: the name was the
// daemon's own, and commands were taken. A panic is an error, and not joined.
func (h *Host) connect() (joined bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			joined, err = false, h.panicked("connection", v)
		}
	}()
	l := &link{host: h}
	l.ctx, l.cancel = context.WithCancelCause(h.ctx)
	defer l.cancel(nil)
	h.status.reset()
	l.nc, err = h.o.Dial(l.ctx, "noused "+h.o.Name,
		nats.ClosedHandler(func(nc *nats.Conn) { l.cancel(lost(nc.LastError())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { h.status.heard(err) }))
	if err != nil {
		return false, fmt.Errorf("cannot connect: %w", err)
	}
	defer l.nc.Close()
	if l.js, err = jetstream.New(l.nc.Conn); err != nil {
		return false, err
	}
	if err := l.claim(); err != nil {
		if l.nc.IsClosed() && h.ctx.Err() == nil {
			err = lost(l.nc.LastError())
		}
		return false, err
	}
	defer l.leave()
	h.current.Store(l)
	defer h.current.Store(nil)
	if err := l.listen(); err != nil {
		return false, err
	}
	h.status.joined()
	l.serve()
	return true, context.Cause(l.ctx)
}

func lost(err error) error {
	if err == nil {
		return errors.New("the connection was lost")
	}
	return fmt.Errorf("the connection was lost: %w", err)
}

// survive keeps a panic here from ending the daemon.
func (h *Host) survive(where string) {
	if v := recover(); v != nil {
		_ = h.panicked(where, v)
	}
}

// panicked logs a panic, with the stack where it is another one than the last.
func (h *Host) panicked(where string, v any) error {
	err := fmt.Errorf("a fault of the daemon's: panic: %.200s", fmt.Sprint(v))
	fields := []zap.Field{zap.String("where", where), zap.Error(err)}
	text := where + err.Error()
	if last := h.fault.Swap(&text); last == nil || *last != text {
		fields = append(fields, zap.Stack("stack"))
	}
	h.o.Log.Error("panic in the fleet", fields...)
	return err
}

// nudge has the daemon's presence told anew soon. It does not block.
func (h *Host) nudge() {
	select {
	case h.nudges <- struct{}{}:
	default:
	}
}

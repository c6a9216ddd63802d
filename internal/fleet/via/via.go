// Package via is the client's side of a fleet (remote.md §2): it leads to a daemon over
// NATS as a socket does to one of this machine, and tells which daemons there are.
//
// A Host is a follow.Dialer. The connections that it gives are no sockets: a line that
// is written to one of them is a request, and what is read are the replies, or the
// events of the fleet's stream. When the server, the way there, or the daemon goes away
// they end, and their owner connects again and resumes, as with a socket.
//
// Concurrency: a Fleet and a Host may be used by any number of goroutines. A Fleet has
// one connection to the server, which is made when it is needed, and anew after it was
// lost. Each connection of a Host owns goroutines that end, and are waited for, in its
// Close.
//
// It refuses to send anything again whose answer was lost, to keep events for a reader
// that does not read, to hold more than 256 MiB of replies for all that do not, to take what is
// in the stream for an event of the daemon's without looking, and to log.
package via

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/budget"
	"noused/internal/client"
	"noused/internal/fleet"
)

// askTime is how long an answer of the server's is waited for.
const askTime = 10 * time.Second

// Options say where a fleet is.
type Options struct {
	fleet.Connect
	Prefix fleet.Prefix
	Note   func(string) // is told what was passed over as it cannot be read; may be nil
}

// Fleet is the way to the daemons of a fleet.
type Fleet struct {
	o     Options
	held  *budget.Budget // what has come and nobody has read
	most  int            // bytes of one reply
	notes atomic.Int32
	turn  chan struct{} // holds one while somebody connects, or looks at what follows

	link   *link
	closed bool
}

// Open makes a Fleet. It does not connect.
func Open(o Options) *Fleet {
	return &Fleet{o: o, held: budget.New(maxHeld), most: maxLine, turn: make(chan struct{}, 1)}
}

// Close ends the connection to the server, and all that go over it.
func (f *Fleet) Close() {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	f.closed = true
	if f.link != nil {
		f.link.nc.Close()
	}
}

// Server is where the fleet is, as messages name it.
func (f *Fleet) Server() string { return strings.Join(f.o.URLs, ", ") }

// link is one connection to the server, from when it was made until it is lost.
type link struct {
	server string
	nc     *fleet.Conn
	js     jetstream.JetStream
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	asking map[*ask]struct{}
}

// ask is something that the server may deny.
type ask struct {
	about string // a part of the subject
	deny  context.CancelCauseFunc
}

// AwayError says that the server cannot be reached, or does not answer, or that the
// connection was lost. It is a client.ErrLost: to try again may help.
type AwayError struct {
	Server string
	Err    error
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("the fleet's NATS server at %s: %s", e.Server, reason(e.Err))
}

// Unwrap returns client.ErrLost and the reason.
func (e *AwayError) Unwrap() []error { return []error{client.ErrLost, e.Err} }

// RefusedError says that the server does not let us in, denies something, or does not
// have what a fleet needs. To try again does not help, but for what is Missing.
type RefusedError struct {
	Server, What string
	Next         string // what to do
	Missing      bool   // a stream or bucket is not there; a daemon that joins makes it
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the fleet's NATS server at %s %s", e.Server, e.What)
}

// Denied is the error for a permission that a server does not give.
func Denied(server string, err error) *RefusedError {
	return &RefusedError{
		Server: server, What: "denies it: " + reason(err),
		Next: "your user there needs permission for it; docs/fleet-operator.md lists what a member needs",
	}
}

// Missing is the error for a stream or bucket that does not exist.
func Missing(server, what string) *RefusedError {
	return &RefusedError{
		server, "has no " + what + ": no daemon has joined a fleet there",
		"check url and subject of [fleet] here and on the hosts; nous status says on a host how it stands", true,
	}
}

// Refused is the error that says that the server does not let them
// in, or has not what; nil: it means neither.
func Refused(server, what string, err error) *RefusedError {
	is := func(any ...error) bool {
		return slices.ContainsFunc(any, func(one error) bool { return errors.Is(err, one) })
	}
	switch {
	case is(nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrNkeysNotSupported, nats.ErrMaxAccountConnectionsExceeded):
		return &RefusedError{
			Server: server, What: "does not let you in: " + reason(err),
			Next: "name a file with a key of yours: --creds, or creds or nkey of [fleet] in nous's config.toml",
		}
	case is(jetstream.ErrStreamNotFound, jetstream.ErrBucketNotFound):
		return Missing(server, what)
	case is(nats.ErrNoResponders, jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount):
		return &RefusedError{
			Server: server, What: "has no JetStream for your account",
			Next: "a fleet needs it: docs/fleet-operator.md has a configuration",
		}
	}
	return nil
}

func reason(err error) string {
	var slow net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.As(err, &slow) &&
		slow.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF):
		return "it ended the connection at once"
	}
	return strings.TrimPrefix(err.Error(), "nats: ")
}

// connect returns the connection that there is, or makes one. ctx bounds the connecting
// only.
func (f *Fleet) connect(ctx context.Context) (*link, error) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case f.closed:
		return nil, client.ErrClosed
	case f.link != nil && f.link.ctx.Err() == nil:
		return f.link, nil
	}
	l, err := f.dial(ctx)
	if err != nil {
		return nil, f.why(ctx, err)
	}
	f.link = l
	return l, nil
}

func (f *Fleet) dial(ctx context.Context) (l *link, err error) {
	l = &link{server: f.Server(), asking: map[*ask]struct{}{}}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.nc, err = f.o.Dial(ctx, "nous",
		nats.ClosedHandler(func(nc *nats.Conn) { l.cancel(l.lost(nc.LastError())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.heard(err) }))
	if err == nil {
		l.js, err = jetstream.New(l.nc.Conn)
	}
	if err != nil {
		l.cancel(err)
		return nil, err
	}
	return l, nil
}

// why is the error for a connection that could not be made.
func (f *Fleet) why(ctx context.Context, err error) error {
	if refused := Refused(f.Server(), "", err); refused != nil {
		return refused
	}
	switch {
	case ofKeys(err):
		return err
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return context.Cause(ctx)
	}
	return &AwayError{f.Server(), err}
}

// ofKeys tells whether an error is about a file with a key: nothing was dialled.
func ofKeys(err error) bool {
	return slices.ContainsFunc([]string{"creds: ", "nkey: ", "ca: ", "creds and nkey"}, func(of string) bool {
		return strings.HasPrefix(err.Error(), of)
	})
}

func (l *link) lost(err error) error {
	if err == nil {
		err = errors.New("the connection was lost")
	}
	return &AwayError{l.server, err}
}

// heard ends what the server denies.
func (l *link) heard(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range l.asking {
		if strings.Contains(err.Error(), a.about) {
			a.deny(Denied(l.server, err))
		}
	}
}

// withDenials is a context that ends with ctx, with the connection, and when the server
// denies what has about in its subject.
func (l *link) withDenials(ctx context.Context, about string) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &ask{about, cancel}
	l.mu.Lock()
	l.asking[a] = struct{}{}
	l.mu.Unlock()
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func(err error) {
		stop()
		l.mu.Lock()
		delete(l.asking, a)
		l.mu.Unlock()
		cancel(err)
	}
}

// store asks JetStream for something, for askTime at most.
func (l *link) store(ctx context.Context, what string, do func(ctx context.Context) error) error {
	ctx, done := l.withDenials(ctx, "$JS.")
	defer done(nil)
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err := do(ctx)
	var refused *RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(context.Cause(ctx), &refused):
		return refused
	}
	if refused := Refused(l.server, what, err); refused != nil {
		return refused
	}
	switch {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &AwayError{l.server, context.Cause(ctx)}
	}
	return err
}

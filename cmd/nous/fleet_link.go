package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/fleet/via"
)

// fleetError is that the fleet cannot be reached.
type fleetError struct{ err error }

func (e *fleetError) Error() string {
	if refused := (*via.RefusedError)(nil); errors.As(e.err, &refused) {
		return refused.Error()
	}
	return fmt.Sprintf("the fleet cannot be reached: %v", e.err)
}
func (e *fleetError) Unwrap() error { return e.err }

// fleetLink is a connection to a fleet.
type fleetLink struct {
	*fleet.Conn
	js     jetstream.JetStream
	prefix fleet.Prefix
	jobs   *job.Queue
	denied *atomic.Pointer[via.RefusedError] // the last thing that the server has denied
}

// joinJobs connects to the fleet's jobs. It blocks until the server has answered.
func (a *app) joinJobs(ctx context.Context) (*fleetLink, error) {
	if len(a.via.on) > 0 {
		return nil, cmdline.Errorf("--on: a job goes to any daemon that has its labels; --label says which")
	}
	way, _, err := a.fleetOptions()
	if err != nil {
		return nil, err
	}
	// Who may not hear of an end when it is told looks for it: what is denied counts only
	// where an answer does not come. People may not make what is missing.
	server, denied := strings.Join(way.URLs, ", "), new(atomic.Pointer[via.RefusedError])
	opening, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	conn, err := way.Dial(ctx, "nous", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if !errors.Is(err, nats.ErrPermissionViolation) {
			return
		}
		denied.Store(via.Denied(server, err))
		if _, name, making := strings.Cut(err.Error(), "$JS.API.STREAM.CREATE."); making {
			stop(via.Missing(server, "stream "+strings.TrimRight(name, `"`)))
		}
	}))
	if err != nil {
		return nil, refusedOr(server, err)
	}
	l := &fleetLink{Conn: conn, prefix: way.Prefix, denied: denied}
	if l.js, err = jetstream.New(conn.Conn); err == nil {
		l.jobs, err = job.Open(opening, l.js, way.Prefix, job.DefaultTimeout)
	}
	if err != nil {
		conn.Close()
		if missing := (*via.RefusedError)(nil); errors.As(context.Cause(opening), &missing) {
			return nil, missing
		}
		return nil, l.why(ctx, refusedOr(server, err))
	}
	return l, nil
}

// refusedOr is an error of a way to the fleet, in the words of the others that need it.
func refusedOr(server string, err error) *fleetError {
	if refused := via.Refused(server, "what a fleet needs", err); refused != nil {
		err = errors.Join(refused, err)
	}
	return &fleetError{err}
}

// why is what the server has denied, where an answer did not come for it.
func (l *fleetLink) why(ctx context.Context, err error) error {
	if denied := l.denied.Load(); denied != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return denied
	}
	return err
}

// withJobs does something with the fleet's jobs. Where the connection is lost
// meanwhile, it says so and connects again, if that goes within a while: do must be
// something that may be done again.
func (a *app) withJobs(ctx context.Context, do func(*fleetLink) error) error {
	for {
		l, err := a.joinJobs(ctx)
		if err != nil {
			return err
		}
		err = l.why(ctx, do(l))
		lost := l.IsClosed()
		l.Close()
		if err == nil || !lost || ctx.Err() != nil {
			return err
		}
		a.notef("the connection to the fleet was lost; trying again")
		if err := a.untilFleet(ctx); err != nil {
			return err
		}
	}
}

const fleetPause = 500 * time.Millisecond

// untilFleet waits until the fleet can be reached.
func (a *app) untilFleet(ctx context.Context) error {
	for until := time.Now().Add(a.answer); ; {
		l, err := a.joinJobs(ctx)
		if err == nil {
			l.Close()
			return nil
		}
		var away *fleetError
		if !errors.As(err, &away) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(fleetPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client/plain"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/fleet/via"
	"noused/internal/protocol"
)

const (
	// cancelPatience is how long a host may take to end the run of a cancelled job.
	cancelPatience = 10 * time.Second
	retryPause     = 500 * time.Millisecond

	// MaxListed is how many jobs that wait, and how many ends, are listed.
	MaxListed = 1000
)

// Fleet is a fleet whose jobs are meant. Each function connects for itself; where the connection
// is lost meanwhile it says so, and connects again if that goes within Patience.
type Fleet struct {
	*via.Fleet             // tells which daemons are there
	Options    via.Options // of the fleet
	Patience   time.Duration
	Note       func(format string, args ...any)
}

// UnreachableError is that the fleet cannot be reached, or refuses what a job needs.
type UnreachableError struct{ err error }

func (e *UnreachableError) Error() string {
	if refused := (*via.RefusedError)(nil); errors.As(e.err, &refused) {
		return refused.Error()
	}
	return fmt.Sprintf("the fleet cannot be reached: %v", e.err)
}

func (e *UnreachableError) Unwrap() error { return e.err }

// Submit submits a job, and notes what else is not seen until somebody looks: that it was there
// already, or that nobody can take it.
func (f *Fleet) Submit(ctx context.Context, j job.Job) error {
	return f.with(ctx, func(l *link) error {
		again, err := l.jobs.Submit(ctx, j)
		if err != nil {
			return err
		}
		f.noteSubmitted(ctx, l, j, again)
		return nil
	})
}

func (f *Fleet) noteSubmitted(ctx context.Context, l *link, j job.Job, again bool) {
	if again {
		how := ""
		if e, over, err := l.jobs.End(ctx, j.ID); err == nil && over {
			how = fmt.Sprintf("; it is over (%s), and is not done again under this id", plain.OneLine(string(e.StopReason), 20))
		} else if m, ok, err := l.jobs.Get(ctx, j.ID); err == nil && ok && Differs(j, m) {
			how = " that says something else; yours is not done"
		}
		f.Note("there is a job %s already%s", j.ID, how)
		return
	}
	hosts, err := f.presences(ctx)
	if err != nil { // it is submitted all the same
		return
	}
	if why := WhyNobody(j, hosts); why != "" {
		f.Note("the job %s waits: %s", j.ID, why)
	}
}

// Wait blocks until a job has ended.
func (f *Fleet) Wait(ctx context.Context, id string) (end job.End, err error) {
	err = f.with(ctx, func(l *link) (err error) {
		end, err = l.jobs.Wait(ctx, id)
		return err
	})
	return end, err
}

// Cancel cancels a job, and says in words what that did.
func (f *Fleet) Cancel(ctx context.Context, id string) (said string, err error) {
	err = f.with(ctx, func(l *link) error {
		did, host, err := l.jobs.Cancel(ctx, id, cancelPatience)
		if err != nil {
			return err
		}
		switch did {
		case job.Unknown:
			return fmt.Errorf("there is no job %s", id)
		case job.Over:
			said = fmt.Sprintf("%s was not cancelled: it is over", id)
			if e, over, err := l.jobs.End(ctx, id); err == nil && over {
				said += fmt.Sprintf(" (%s)", plain.OneLine(string(e.StopReason), MaxWord))
			}
		case job.Removed:
			said = fmt.Sprintf("%s is cancelled; it had not begun", id)
		case job.Away:
			said = fmt.Sprintf("%s is cancelled; %s, where it ran, does not answer, and aborts the run when it is back", id,
				host)
		default:
			said = fmt.Sprintf("%s is cancelled on %s", id, host)
			if e, over, err := l.jobs.End(ctx, id); err == nil && over && e.StopReason != protocol.StopAborted {
				said = fmt.Sprintf("%s was not cancelled: it ended on %s meanwhile (%s)", id, host,
					plain.OneLine(string(e.StopReason), MaxWord))
			}
		}
		return nil
	})
	return said, err
}

// Listing are the jobs of a fleet: those that are over first.
type Listing struct {
	Jobs   []Listed
	Older  int    // that have ended, and are not among them
	More   bool   // wait or run, and are not among them
	Unread uint64 // claims that were not looked at
}

// List lists the jobs, MaxListed of those that wait or run and of those that are over.
func (f *Fleet) List(ctx context.Context) (all Listing, err error) {
	err = f.with(ctx, func(l *link) error {
		all, err = f.list(ctx, l)
		return err
	})
	return all, err
}

func (f *Fleet) list(ctx context.Context, l *link) (all Listing, err error) {
	claims, left, err := l.jobs.Claims(ctx)
	if err != nil {
		return all, err
	}
	hosts, err := f.presences(ctx)
	if err != nil {
		return all, err
	}
	ends, older, err := l.jobs.Ends(ctx, MaxListed)
	if err != nil {
		return all, err
	}
	all.Older, all.Unread = int(older), left
	for _, e := range ends {
		all.Jobs = append(all.Jobs, Ended(e))
	}
	waiting, more, err := l.waiting(ctx, NewView(claims, hosts, l.jobs.Timeout))
	all.Jobs, all.More = append(all.Jobs, waiting...), more
	return all, err
}

// waiting are the oldest jobs of the queue; more: there are others.
func (l *link) waiting(ctx context.Context, v *View) (all []Listed, more bool, err error) {
	for after := uint64(0); ; {
		m, ok, err := l.jobs.Next(ctx, after)
		if err != nil || !ok || len(all) == MaxListed {
			return all, ok, err
		}
		after = m.Seq
		all = append(all, v.Standing(m))
	}
}

// presences are the daemons that are there.
func (f *Fleet) presences(ctx context.Context) (map[string]fleet.Presence, error) {
	all, err := f.Hosts(ctx)
	var refused *via.RefusedError
	if errors.As(err, &refused) && refused.Missing {
		return nil, nil // nobody has joined yet
	}
	hosts := map[string]fleet.Presence{}
	for _, h := range all {
		hosts[h.Name] = h.Presence
	}
	return hosts, err
}

// link is a connection to a fleet's jobs.
type link struct {
	*fleet.Conn
	jobs   *job.Queue
	denied *atomic.Pointer[via.RefusedError] // the last thing that the server has denied
}

// join connects to the fleet's jobs. It blocks until the server has answered.
func (f *Fleet) join(ctx context.Context) (*link, error) {
	// Who may not hear of an end when it is told looks for it: what is denied counts only
	// where an answer does not come. People may not make what is missing.
	server, denied := f.Server(), new(atomic.Pointer[via.RefusedError])
	opening, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	conn, err := f.Options.Dial(ctx, "nous", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
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
	l := &link{Conn: conn, denied: denied}
	js, err := jetstream.New(conn.Conn)
	if err == nil {
		l.jobs, err = job.Open(opening, js, f.Options.Prefix, job.DefaultTimeout)
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

// refusedOr is an error of a connection to the fleet, in the words of the others that need it.
func refusedOr(server string, err error) *UnreachableError {
	if refused := via.Refused(server, "what a fleet needs", err); refused != nil {
		err = errors.Join(refused, err)
	}
	return &UnreachableError{err}
}

// why is what the server has denied, where an answer did not come for it.
func (l *link) why(ctx context.Context, err error) error {
	if denied := l.denied.Load(); denied != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return denied
	}
	return err
}

// with does something with the fleet's jobs. Where the connection is lost meanwhile, it says so
// and connects again, if that goes within a while: do must be something that may be done again.
func (f *Fleet) with(ctx context.Context, do func(*link) error) error {
	for {
		l, err := f.join(ctx)
		if err != nil {
			return err
		}
		err = l.why(ctx, do(l))
		lost := l.IsClosed()
		l.Close()
		if err == nil || !lost || ctx.Err() != nil {
			return err
		}
		f.Note("the connection to the fleet was lost; trying again")
		if err := f.untilReached(ctx); err != nil {
			return err
		}
	}
}

// untilReached waits until the fleet can be reached.
func (f *Fleet) untilReached(ctx context.Context) error {
	for until := time.Now().Add(f.Patience); ; {
		l, err := f.join(ctx)
		if err == nil {
			l.Close()
			return nil
		}
		var away *UnreachableError
		if !errors.As(err, &away) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

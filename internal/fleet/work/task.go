package work

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"noused/internal/fleet/job"
	"noused/internal/protocol"
)

// retryPause is between two tries of what the daemon or the server cannot do now.
const retryPause = time.Second

var (
	errLost      = errors.New("the job is another daemon's now")
	errCancelled = errors.New("the job was cancelled")
)

// task is a job that this daemon has begun with. Its record belongs to its goroutine,
// which has the lock when it writes the end there.
type task struct {
	w *Worker
	record
	ctx   context.Context
	quit  context.CancelCauseFunc // with errLost, errCancelled, or nil
	hold  chan struct{}           // closed when the claim is known to be its own
	ended chan struct{}           // holds one: the run may have ended

	mu       sync.Mutex
	revision uint64 // of the claim; 0: not known
	told     job.Claim
}

func (t *task) wake() {
	select {
	case t.ended <- struct{}{}:
	default:
	}
}

func (t *task) cancel() { t.quit(errCancelled) }

// isIn tells whether one of the lines is about the task's run.
func (t *task) isIn(lines [][]byte) bool {
	t.mu.Lock()
	run := []byte(t.told.RunID)
	t.mu.Unlock()
	return len(run) > 0 && slices.ContainsFunc(lines, func(part []byte) bool { return bytes.Contains(part, run) })
}

// claimed is the claim as it is to be. The caller has the lock.
func (t *task) claimed() job.Claim {
	c := t.w.claim()
	c.SessionID, c.RunID = t.told.SessionID, t.told.RunID
	if t.told.At.IsZero() {
		t.told.At = c.At
	}
	c.At = t.told.At
	return c
}

// renew keeps the claim alive. Where it has changed, what is heard says how.
func (t *task) renew(ctx context.Context, q *job.Queue) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.revision == 0 || context.Cause(t.ctx) == errLost {
		return nil
	}
	next, ok, err := q.Renew(ctx, t.ID, t.claimed(), t.revision)
	if err != nil {
		return err
	}
	if ok {
		t.revision = next
		return nil
	}
	return t.settle(ctx, q)
}

// reclaim makes the claim the task's own, if it is that, or nobody's.
func (t *task) reclaim(ctx context.Context, q *job.Queue) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settle(ctx, q)
}

// settle finds out whose the claim is. The caller has the lock.
func (t *task) settle(ctx context.Context, q *job.Queue) error {
	for ctx.Err() == nil {
		if _, over, err := q.End(ctx, t.ID); err != nil {
			return err
		} else if over && t.End == nil {
			t.quit(errLost)
			return nil
		}
		c, revision, ok, err := q.Claimed(ctx, t.ID)
		if err != nil {
			return err
		}
		switch {
		case !ok:
			revision, ok, err = q.Take(ctx, t.ID, t.claimed())
		case c.Instance != t.w.o.Instance || c.Ended && t.End == nil:
			t.quit(errLost)
			return nil
		default:
			if c.Cancel {
				t.cancel()
			}
			revision, ok, err = q.Renew(ctx, t.ID, t.claimed(), revision)
		}
		if err != nil {
			return err
		}
		if ok {
			t.have(revision)
			return nil
		}
	}
	return ctx.Err()
}

// have takes note of the claim. The caller has the lock.
func (t *task) have(revision uint64) {
	if t.revision = revision; revision != 0 {
		select {
		case <-t.hold:
		default:
			close(t.hold)
		}
	}
}

// changed takes note of a claim that was written.
func (t *task) changed(ctx context.Context, q *job.Queue, c job.Claim, revision uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if revision <= t.revision || t.revision == 0 {
		return nil
	}
	if c.Cancel || c.Instance != t.w.o.Instance {
		return t.settle(ctx, q)
	}
	return nil
}

// announce writes into the claim where the job runs. The next renewal does, if this
// cannot.
func (t *task) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told.SessionID, t.told.RunID = t.SessionID, t.RunID
	t.w.mu.Lock()
	q := t.w.queue
	t.w.mu.Unlock()
	if q == nil || t.revision == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, retryPause)
	defer cancel()
	if next, ok, err := q.Renew(ctx, t.ID, t.claimed(), t.revision); err == nil && ok {
		t.revision = next
	}
}

// work does the job, from where it is.
func (t *task) work() {
	if t.End == nil {
		end, err := t.run()
		if err != nil {
			t.giveUp(err)
			return
		}
		end = end.Bounded()
		t.mu.Lock()
		t.End = &end
		t.mu.Unlock()
		if !t.save() {
			return
		}
	}
	t.finish()
}

// save keeps the record, for which there must be room some day. False: the worker stops.
func (t *task) save() bool {
	for said := ""; t.w.ctx.Err() == nil; pause(t.w.ctx, retryPause) {
		err := t.w.keep(t.record)
		if err == nil {
			return true
		}
		if err.Error() != said {
			said = err.Error()
			t.w.o.Log.Error("a job waits, as it cannot be kept in mind; trying again", zap.String("job", t.ID), zap.Error(err))
		}
	}
	return false
}

// giveUp ends a task that has no end to be told here.
func (t *task) giveUp(err error) {
	if !errors.Is(err, errLost) {
		return // the daemon stops; the record stays
	}
	t.w.o.Log.Info("a job is not this daemon's any more: another has it, or its end was told; its run is aborted",
		zap.String("job", t.ID), zap.String("session_id", t.SessionID))
	if err := t.w.drop(t.ID); err != nil {
		t.w.o.Log.Error("what is known of a job cannot be removed", zap.String("job", t.ID), zap.Error(err))
	}
}

// finish tells the end until it is told.
func (t *task) finish() {
	for said := ""; t.w.ctx.Err() == nil; {
		q, err := t.w.connection(t.w.ctx)
		if err != nil {
			return
		}
		if err = t.reportEnd(q); err == nil {
			if err = t.w.drop(t.ID); err == nil {
				return
			}
		}
		if t.w.ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			t.w.o.Log.Warn("the end of a job waits; trying again", zap.String("job", t.ID), zap.Error(err))
		}
		pause(t.w.ctx, retryPause)
	}
}

func (t *task) reportEnd(q *job.Queue) error {
	ctx, cancel := context.WithTimeout(t.w.ctx, 10*retryPause)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if context.Cause(t.ctx) == errLost { // its new owner reports it
		return nil
	}
	told, err := q.Finish(ctx, *t.End)
	if err != nil {
		return err
	}
	why := ""
	if t.End.Error != nil {
		why = t.End.Error.Message
	}
	t.w.o.Log.Info("job ended", zap.String("job", t.ID), zap.String("session_id", t.SessionID),
		zap.String("stop_reason", string(t.End.StopReason)), zap.Bool("told", told), zap.String("error", why))
	if t.revision == 0 {
		return nil
	}
	c := t.claimed()
	c.Ended = true
	_, _, err = q.Renew(ctx, t.ID, c, t.revision)
	return err
}

// run has the daemon do the job. An error is why there is no end of it here: the daemon
// stops, or the job is another's.
func (t *task) run() (end job.End, err error) {
	if t.RunID != "" {
		return t.follow()
	}
	select {
	case <-t.hold:
	case <-t.ctx.Done():
		return t.failed(context.Cause(t.ctx))
	}
	if err := t.open(); err != nil {
		return t.failed(err)
	}
	return t.follow()
}

// failed is the end of a job that has come to no run.
func (t *task) failed(err error) (job.End, error) {
	switch cause := context.Cause(t.ctx); {
	case cause == errLost:
		return job.End{}, t.abandon()
	case t.w.ctx.Err() != nil:
		return job.End{}, err
	case cause == errCancelled:
		e := job.Cancelled(t.ID)
		e.Host, e.SessionID = t.w.o.Name, t.SessionID
		return e, nil
	}
	wire := protocol.AsError(err)
	e := job.Failed(t.ID, t.w.o.Name, wire.Code, wire.Message)
	e.SessionID = t.SessionID
	return e, nil
}

// abandon aborts the run of a job that is another's; otherwise the daemon stops.
func (t *task) abandon() error {
	if cause := context.Cause(t.ctx); cause != errLost {
		return cause
	}
	if t.RunID != "" {
		t.abort()
	}
	return errLost
}

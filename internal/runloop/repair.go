package runloop

import (
	"context"
	"errors"
	"time"

	"noused/internal/protocol"
)

// repair is the plan for a session whose loop has failed.
type repair struct {
	at   time.Time     // when it is opened next
	wait time.Duration // after the next failure
	disk bool          // it was the journal, not the daemon
}

// broken plans to open a session again whose loop has failed, as a run may be
// in its middle.
func (h *Hub) broken(l *loop) {
	var wire *protocol.Error
	disk := errors.As(l.failure, &wire) && wire.Code == protocol.SessionError
	h.update(func(s *lifecycle) { s.retry(l.id, disk, h.env.Now()) })
}

// retry sets the time of the next attempt to open a session.
func (s *lifecycle) retry(id string, disk bool, now time.Time) {
	r := s.repairs[id]
	if r == nil {
		r = &repair{wait: mendTime}
		s.repairs[id] = r
	}
	r.at, r.wait, r.disk = now.Add(r.wait), min(2*r.wait, maxRepair), disk
}

// mend opens the sessions whose time has come.
func (h *Hub) mend(ctx context.Context) {
	var due []string
	h.update(func(s *lifecycle) { due = s.due(h.env.Now()) })
	for _, id := range due {
		h.resumeSoon(ctx, id, true)
	}
}

// due returns the failed sessions whose time has come, and forgets those that
// have been well since.
func (s *lifecycle) due(now time.Time) (ids []string) {
	for id, r := range s.repairs {
		switch {
		case now.Before(r.at):
		case s.open(id) == nil:
			ids = append(ids, id)
			s.retry(id, r.disk, now)
		case now.Sub(r.at) > maxRepair:
			delete(s.repairs, id)
		}
	}
	return ids
}

// resumeSoon opens a session, so that its loop takes its run up, beside others:
// one that takes long holds up none of them. Where it is not sure that there is a
// run, it looks before. It waits while many are opened.
func (h *Hub) resumeSoon(ctx context.Context, id string, sure bool) {
	select {
	case h.resumes <- struct{}{}:
	case <-ctx.Done():
		return
	}
	h.resuming.Go(func() { // ends with the opening, or with ctx
		defer func() { <-h.resumes }()
		if !sure {
			if sum, err := h.env.Store.Summary(ctx, id); err == nil && !sum.Running {
				return
			}
		}
		h.resume(ctx, id)
	})
}

func (h *Hub) resume(ctx context.Context, id string) {
	_, release, err := h.acquire(ctx, id)
	switch {
	case err == nil:
		release()
	case gone(err):
		h.update(func(s *lifecycle) { delete(s.repairs, id) })
	case ctx.Err() == nil:
		h.env.Fault(id, err)
	}
}

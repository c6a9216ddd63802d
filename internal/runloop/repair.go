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
	h.mu.Lock()
	defer h.mu.Unlock()
	h.postpone(l.id, disk)
}

// postpone sets the time of the next attempt. The hub is locked.
func (h *Hub) postpone(id string, disk bool) {
	r := h.repairs[id]
	if r == nil {
		r = &repair{wait: mendTime}
		h.repairs[id] = r
	}
	r.at, r.wait, r.disk = h.env.Now().Add(r.wait), min(2*r.wait, maxRepair), disk
	signal(h.failed)
}

// mend opens the sessions whose time has come, and forgets those that have been
// well since.
func (h *Hub) mend(ctx context.Context) {
	now := h.env.Now()
	h.mu.Lock()
	var due []string
	for id, r := range h.repairs {
		l := h.loops[id]
		well := l != nil && !l.hasEnded()
		switch {
		case now.Before(r.at):
		case !well:
			due = append(due, id)
			h.postpone(id, r.disk)
		case now.Sub(r.at) > maxRepair:
			delete(h.repairs, id)
		}
	}
	if len(h.repairs) > 0 {
		signal(h.failed)
	}
	h.mu.Unlock()
	for _, id := range due {
		h.resumeSoon(ctx, id, true)
	}
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
		h.mu.Lock()
		delete(h.repairs, id)
		h.mu.Unlock()
	case ctx.Err() == nil:
		h.env.Fault(id, err)
	}
}

package runloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
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
	if h.rootsMissing.Load() {
		h.findRoots(ctx)
	}
	var due, well []string
	h.update(func(s *lifecycle) { due, well = s.due(h.env.Now()) })
	for _, id := range well {
		h.env.forest.release(id)
	}
	for _, id := range due {
		h.resumeSoon(ctx, id, true, func() {
			h.endUnwanted(ctx, id)
			h.findRoots(ctx)
		})
	}
}

// due returns the failed sessions whose time has come, and those that have been well
// since, which it forgets.
func (s *lifecycle) due(now time.Time) (ids, well []string) {
	for id, r := range s.repairs {
		switch {
		case now.Before(r.at):
		case s.open(id) == nil:
			ids = append(ids, id)
			s.retry(id, r.disk, now)
		case now.Sub(r.at) > maxRepair:
			delete(s.repairs, id)
			well = append(well, id)
		}
	}
	return ids, well
}

// resumeSoon opens a session, so that its loop takes its run up, beside others:
// one that takes long holds up none of them. Where it is not sure that there is a
// run, it looks before. It waits while many are opened. done is called in the end.
func (h *Hub) resumeSoon(ctx context.Context, id string, sure bool, done func()) {
	select {
	case h.resumes <- struct{}{}:
	case <-ctx.Done():
		done()
		return
	}
	h.resuming.Go(func() { // ends with the opening, or with ctx
		defer done()
		defer func() { <-h.resumes }()
		if !sure {
			if sum, err := h.env.Store.Summary(ctx, id); err == nil && !sum.Running {
				return
			}
		}
		h.resume(ctx, id)
	})
}

// resume opens a session and waits until its loop has taken its run up.
func (h *Hub) resume(ctx context.Context, id string) {
	l, release, err := h.acquire(ctx, id)
	switch {
	case err == nil:
		select {
		case <-l.begun:
			l.awaitSeen(ctx)
		case <-l.done:
		case <-ctx.Done():
		}
		release()
	case gone(err):
		h.update(func(s *lifecycle) { delete(s.repairs, id) })
		h.env.forest.release(id)
	case ctx.Err() == nil:
		h.env.Fault(id, err)
		if errors.As(err, new(syscall.Errno)) { // the disk may be well later; a damaged journal is not
			h.update(func(s *lifecycle) {
				if s.repairs[id] == nil {
					s.retry(id, true, h.env.Now())
				}
			})
		}
	}
}

// awaitSeen blocks until the children that a former daemon has left have been looked at.
func (l *loop) awaitSeen(ctx context.Context) {
	for _, seen := range l.unseen {
		select {
		case <-seen:
		case <-l.done:
		case <-ctx.Done():
		}
	}
}

// takeUp goes on with the runs that a former daemon has left unfinished.
func (h *Hub) takeUp(ctx context.Context) {
	defer close(h.takenUp)
	var each sync.WaitGroup
	if err := h.env.Store.Unfinished(ctx, func(id string, sure bool) {
		each.Add(1)
		h.resumeSoon(ctx, id, sure, each.Done)
	}); err != nil && ctx.Err() == nil {
		h.env.Fault("", err)
	}
	each.Wait()
	h.findRoots(ctx)
	h.endUnwanted(ctx, "")
}

// childRun is a run of a child session.
type childRun struct {
	loop *loop
	id   string
}

// endUnwanted ends the runs of a session's children, "" for all sessions, that no call waits for: a parent's journal
// may have lost the line that said so, and nobody is told what such a run comes to.
func (h *Hub) endUnwanted(ctx context.Context, of string) {
	children := map[string][]childRun{} // by parent
	h.readLifecycle(func(s *lifecycle) {
		for _, l := range s.all() {
			parent, run := l.shown.Load().Parent, l.run.Load()
			if parent != nil && run != nil && !l.hasEnded() && (of == "" || of == parent.SessionID) {
				children[parent.SessionID] = append(children[parent.SessionID], childRun{l, run.RunID})
			}
		}
	})
	for parent, runs := range children {
		h.endUnwantedOf(ctx, parent, runs)
	}
}

func (h *Hub) endUnwantedOf(ctx context.Context, parent string, runs []childRun) {
	unwanted, err := readSession(ctx, h, parent, func(m *machine) ([]childRun, error) {
		return slices.DeleteFunc(slices.Clone(runs), func(r childRun) bool { return m.waitsFor(r.id) }), nil
	})
	switch {
	case lost(err):
		unwanted = runs
	case err != nil: // it may be known later
		return
	}
	for _, r := range unwanted {
		works, err := readSession(ctx, h, r.loop.id, func(m *machine) (bool, error) { // and not for a person
			return m.s.Run != nil && m.s.Run.ID == r.id && m.s.Run.IsChild(), nil
		})
		if err != nil || !works {
			continue
		}
		h.env.Fault(r.loop.id, fmt.Errorf("the run %s is ended: its parent, session %s, does not know of it", r.id, parent))
		_ = r.loop.post(ctx, abortIn{nil, r.id})
	}
}

// takeUpWait is how long a state waits for the questions of runs that a former
// daemon has left.
const takeUpWait = 5 * time.Second

// haveTakenUp reports that the questions of a former daemon are all known.
func (h *Hub) haveTakenUp() bool {
	return isClosed(h.takenUp)
}

// awaitTakenUp blocks until they are, or it has taken too long.
func (h *Hub) awaitTakenUp(ctx context.Context) {
	if h.haveTakenUp() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, takeUpWait)
	defer cancel()
	_ = waited(ctx, h.takenUp)
}

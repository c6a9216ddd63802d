package runloop

import (
	"context"
	"errors"
	"slices"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// Keep says how much of the sessions is kept: those that were used in the time
// Older, and Larger bytes together of those that may be removed. Zero is no limit.
type Keep struct {
	Older  time.Duration
	Larger int64
}

// ByPerson refuses a command that only a person may give to whatever the daemon has
// started.
func ByPerson(ctx context.Context, command string) error {
	_, err := personOf(ctx, command)
	return err
}

// PruneSessions removes the sessions that need not be kept, the one that was used
// longest ago first, and tells of each. One that runs, waits, is owed an answer or
// is used just now, one that has a job, one that cannot be read, and the active one
// are kept; one that nobody has looked at since its last run is not. With dry it
// removes nothing. It blocks for the disk, until ctx ends; the error is the disk's,
// and what was told of is gone nevertheless.
func (h *Hub) PruneSessions(ctx context.Context, keep Keep, dry bool, removed func(protocol.PrunedSession)) error {
	if keep == (Keep{}) {
		return nil
	}
	all, err := h.env.Store.Footprints(ctx)
	if err != nil {
		return err
	}
	surplus, err := h.surplus(ctx, all, keep.Larger)
	if err != nil {
		return err
	}
	now := h.env.Now()
	old := func(used time.Time) bool { return keep.Older > 0 && now.Sub(used) > keep.Older }
	for _, f := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		large := surplus > 0
		if !large && !old(f.Used) {
			return nil // all others were used later
		}
		gone, err := h.retire(ctx, f.ID, dry, func(s session.Summary) bool { return large || old(s.UpdatedAt) })
		if err != nil {
			return err
		}
		if gone != nil {
			removed(protocol.PrunedSession{SessionID: f.ID, Title: gone.Title, UsedAt: f.Used.UTC(), Size: f.Bytes})
			surplus -= f.Bytes
		}
	}
	return nil
}

// surplus is how many bytes the sessions that could be removed have more than
// larger; with a larger of zero, none. What stays in any case takes nothing from the
// others: a journal that cannot be read would otherwise cost all of them.
func (h *Hub) surplus(ctx context.Context, all []session.Footprint, larger int64) (int64, error) {
	if larger == 0 {
		return 0, nil
	}
	surplus := -larger
	for _, f := range all {
		surplus += f.Bytes
	}
	for i := 0; i < len(all) && surplus > 0; i++ {
		was, err := h.retire(ctx, all[i].ID, true, func(session.Summary) bool { return true })
		if err != nil {
			return 0, err
		}
		if was == nil {
			surplus -= all[i].Bytes
		}
	}
	return surplus, nil
}

// retire removes a session unless something is going on in it, or may says no, and
// returns what it was; nil where it is kept. With dry it only says what it would do.
// Nobody opens the session meanwhile; whoever wants to waits.
func (h *Hub) retire(ctx context.Context, id string, dry bool, may func(session.Summary) bool) (*session.Summary, error) {
	var l *loop
	resting := false
	h.update(func(s *lifecycle) {
		if resting = s.retirable(id); resting && !dry {
			l = s.loops[id]
			delete(s.loops, id)
			s.take(id)
		}
	})
	if !resting {
		return nil, nil
	}
	if !dry {
		defer h.update(func(s *lifecycle) { s.give(id) })
	}
	if l != nil {
		close(l.stop)
		<-l.done // an idle loop ends at once
	}
	was, err := h.env.Store.Summary(ctx, id)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil, was.Running, was.Waiting, !may(was), h.hasJob(id): // what cannot be read is for people to look at
		return nil, nil
	}
	if active, err := h.active(); err != nil || active == id {
		return nil, err
	}
	if dry {
		return &was, nil
	}
	switch err := h.erase(ctx, id, false); {
	case errors.Is(err, session.ErrNotFound), errors.Is(err, errActive):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &was, nil
}

// retirable reports that nobody uses a session, and nothing is under way in it as
// far as is known without its journal.
func (s *lifecycle) retirable(id string) bool {
	l := s.loops[id]
	return s.stage == serving && s.taken[id] == nil && s.repairs[id] == nil &&
		(l == nil || l.users == 0 && l.evictable() && !l.hasEnded())
}

func (h *Hub) hasJob(id string) bool {
	return slices.ContainsFunc(h.env.Tools.Jobs(id), func(j model.Job) bool { return j.Status == model.JobRunning })
}

// errActive says that a session is the active one, and is not to be deleted then.
var errActive = errors.New("it is the active session")

// erase ends what is there for a session that nobody has open, and removes it from
// the disk; the active one only if it may.
func (h *Hub) erase(ctx context.Context, id string, active bool) error {
	h.env.Tools.EndSession(context.WithoutCancel(ctx), id)
	err := h.eraseFiles(id, active)
	ended := model.AuditEvent{Event: "session:end", Component: "session", SessionID: id}
	if err == nil {
		ended.Data = []byte(`{"deleted":true}`)
	}
	h.env.Audit(ended)
	return err
}

func (h *Hub) eraseFiles(id string, active bool) error {
	h.choosing.Lock()
	defer h.choosing.Unlock()
	if !active {
		switch is, err := h.env.Store.Active(); {
		case err != nil:
			return err
		case is == id:
			return errActive
		}
	}
	return h.env.Store.Delete(id, h.env.Now())
}

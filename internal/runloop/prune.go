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

// PruneSessions removes old sessions, the one that was used
// longest ago first, and reports each. One that runs, waits, is owed an answer or
// is used just now, one that has a job, one that cannot be read, and the active one
// are kept; one that nobody has looked at since its last run is not. With dry it
// removes nothing. It blocks for the disk, until ctx ends; the error is the disk's,
// and what was reported is gone nevertheless.
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
	batch := retired{h: h}
	defer batch.give()
	for _, f := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		large := surplus > 0
		if !large && !old(f.Used) {
			break // all others were used later
		}
		was, err := h.retire(ctx, f.ID, dry, func(s session.Summary) bool { return large || old(s.UpdatedAt) })
		if err != nil {
			return err
		}
		if was == nil {
			continue
		}
		surplus -= f.Bytes
		one := protocol.PrunedSession{SessionID: f.ID, Title: was.Title, UsedAt: f.Used.UTC(), Size: f.Bytes}
		if dry {
			removed(one)
			continue
		}
		if batch.list = append(batch.list, one); len(batch.list) == pruneBatch {
			kept, err := batch.erase(ctx, removed)
			if surplus += kept; err != nil {
				return err
			}
		}
	}
	_, err = batch.erase(ctx, removed)
	return err
}

// pruneBatch is how many sessions are removed at once: the folder is read once for them,
// and made durable twice.
const pruneBatch = 128

// retired are sessions that are to be removed, and that nobody opens meanwhile.
type retired struct {
	h    *Hub
	list []protocol.PrunedSession
}

// erase removes them from the disk, and reports each. It returns the bytes of those that
// are there still, as one has become the active one.
func (r *retired) erase(ctx context.Context, removed func(protocol.PrunedSession)) (kept int64, err error) {
	if len(r.list) == 0 {
		return 0, nil
	}
	defer r.give()
	ids := make([]string, len(r.list))
	for i, s := range r.list {
		ids[i] = s.SessionID
	}
	gone, err := r.h.eraseAll(ctx, ids)
	for _, s := range r.list {
		if slices.Contains(gone, s.SessionID) {
			removed(s)
		} else {
			kept += s.Size
		}
	}
	return kept, err
}

// give lets those go on who wait for one of them.
func (r *retired) give() {
	r.h.update(func(s *lifecycle) {
		for _, one := range r.list {
			s.release(one.SessionID)
		}
	})
	r.list = r.list[:0]
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

// retire sees to it that nobody opens a session that may be removed, and returns what it
// was; nil where it is kept, as something is going on in it, or may says no. With dry it only
// says so. Anyone who wants to open it waits until it is given.
func (h *Hub) retire(ctx context.Context, id string, dry bool, may func(session.Summary) bool) (
	retired *session.Summary, err error,
) {
	var l *loop
	resting := false
	h.update(func(s *lifecycle) {
		if resting = s.retirable(id); resting && !dry {
			l = s.loops[id]
			delete(s.loops, id)
			s.claim(id)
		}
	})
	if !resting {
		return nil, nil
	}
	defer func() {
		if !dry && retired == nil {
			h.update(func(s *lifecycle) { s.release(id) })
		}
	}()
	if l != nil {
		close(l.stop)
		<-l.done // an idle loop ends at once
	}
	was, err := h.env.Store.Summary(ctx, id)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	// what cannot be read is for people to look at
	case err != nil, was.Running, was.Waiting, was.ReadOnly, !may(was), h.hasJob(id):
		return nil, nil
	}
	if active, err := h.active(); err != nil || active == id {
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

// erase ends what is there for a session that nobody has open, and removes it from
// the disk.
func (h *Hub) erase(ctx context.Context, id string) error {
	h.env.Tools.EndSession(context.WithoutCancel(ctx), id)
	if h.env.Changes != nil {
		ctx, cancel := context.WithTimeoutCause(ctx, holdTime, errRecording)
		defer cancel()
		release, err := h.env.Changes.Hold(ctx, id)
		if err != nil {
			return err
		}
		defer release()
	}
	h.choosing.Lock()
	err := h.env.Store.Delete(id, h.env.Now())
	h.choosing.Unlock()
	h.erased(id, err == nil)
	return err
}

// holdTime is how long a deletion waits for what still records the session's folder.
const holdTime = 10 * time.Second

var errRecording = errors.New("its folder is still being recorded; try again")

// eraseAll is erase for many, without the active one; it returns which are gone.
func (h *Hub) eraseAll(ctx context.Context, ids []string) ([]string, error) {
	for _, id := range ids {
		h.env.Tools.EndSession(context.WithoutCancel(ctx), id)
	}
	h.choosing.Lock()
	gone, err := h.env.Store.DeleteAll(ids)
	h.choosing.Unlock()
	for _, id := range ids {
		h.erased(id, slices.Contains(gone, id))
	}
	return gone, err
}

func (h *Hub) erased(id string, gone bool) {
	ended := model.AuditEvent{Event: "session:end", Component: "session", SessionID: id}
	if gone {
		ended.Data = []byte(`{"deleted":true}`)
		h.env.Events.Append(protocol.Status{
			Ref: protocol.Ref{SessionID: id}, Code: protocol.StatusSessionDeleted,
			Message: "the session was deleted",
		})
	}
	h.env.Audit(ended)
}

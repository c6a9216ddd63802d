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
// are kept; one that nobody has looked at since its last run is not. A session and its child sessions are kept or
// removed together. With dry it
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
	now := h.env.Now()
	old := func(used time.Time) bool { return keep.Older > 0 && now.Sub(used) > keep.Older }
	total := -keep.Larger
	for _, f := range all {
		total += f.Bytes
	}
	trees, err := h.trees(ctx, all, func(f session.Footprint) bool {
		return keep.Larger > 0 && total > 0 || old(f.Used)
	})
	if err != nil {
		return err
	}
	surplus, err := h.surplus(ctx, trees, keep.Larger)
	if err != nil {
		return err
	}
	batch := retired{h: h}
	defer batch.give()
	for _, t := range trees {
		large := surplus > 0
		if !large && !old(t.used) {
			break // all others were used later
		}
		list, err := h.retireTree(ctx, t, dry, func(s session.Summary) bool { return large || old(s.UpdatedAt) })
		if err != nil {
			return err
		}
		if list == nil {
			continue
		}
		surplus -= t.bytes
		if dry {
			for _, one := range list {
				removed(one)
			}
			continue
		}
		if batch.list = append(batch.list, list...); len(batch.list) >= pruneBatch {
			kept, err := batch.erase(ctx, removed)
			if surplus += kept; err != nil {
				return err
			}
		}
	}
	_, err = batch.erase(ctx, removed)
	return err
}

// prunedTree is a session without a parent that is there, and those below it.
type prunedTree struct {
	all   []session.Footprint // children before their parents
	bytes int64
	used  time.Time // when one of it was, last
}

// trees are those of sessions that may be removed, the one that was used longest ago first. It reads
// the sessions of these trees alone.
func (h *Hub) trees(ctx context.Context, all []session.Footprint, may func(session.Footprint) bool) (
	trees []*prunedTree, err error,
) {
	there := make(map[string]session.Footprint, len(all))
	for _, f := range all {
		there[f.ID] = f
	}
	done := make(map[string]bool, len(all))
	for _, f := range all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if done[f.ID] || !may(f) {
			continue
		}
		root := f.ID
		for range maxAbove {
			was, err := h.env.Store.Summary(ctx, root)
			if err != nil || was.Parent == nil || there[was.Parent.SessionID].ID == "" {
				break
			}
			root = was.Parent.SessionID
		}
		t := &prunedTree{}
		h.gather(ctx, t, root, there, done)
		trees = append(trees, t)
	}
	slices.SortStableFunc(trees, func(x, y *prunedTree) int { return x.used.Compare(y.used) })
	return trees, nil
}

// maxAbove is how many sessions are looked for above one: a journal that somebody has written may lead in a
// circle.
const maxAbove = 100

// gather adds a session to a tree, behind those below it.
func (h *Hub) gather(ctx context.Context, t *prunedTree, id string, there map[string]session.Footprint,
	done map[string]bool,
) {
	f := there[id]
	if done[id] || f.ID == "" {
		return
	}
	done[id] = true
	if was, err := h.env.Store.Summary(ctx, id); err == nil { // one that cannot be read is kept, and its tree
		for _, child := range was.Children {
			h.gather(ctx, t, child, there, done)
		}
	}
	t.all, t.bytes = append(t.all, f), t.bytes+f.Bytes
	if f.Used.After(t.used) {
		t.used = f.Used
	}
}

// retireTree is retire for all of a tree, or for none of it.
func (h *Hub) retireTree(ctx context.Context, t *prunedTree, dry bool, may func(session.Summary) bool) (
	list []protocol.PrunedSession, err error,
) {
	for _, f := range t.all {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		var was *session.Summary
		if err == nil {
			was, err = h.retire(ctx, f.ID, dry, may)
		}
		if err != nil || was == nil {
			if !dry {
				(&retired{h: h, list: list}).give()
			}
			return nil, err
		}
		list = append(list, protocol.PrunedSession{
			SessionID: f.ID, Title: was.Title, UsedAt: f.Used.UTC(), Size: f.Bytes,
		})
	}
	return list, nil
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

// surplus is how many bytes the trees that could be removed have more than
// larger; with a larger of zero, none. What stays in any case takes nothing from the
// others: a journal that cannot be read would otherwise cost all of them.
func (h *Hub) surplus(ctx context.Context, trees []*prunedTree, larger int64) (int64, error) {
	if larger == 0 {
		return 0, nil
	}
	surplus := -larger
	for _, t := range trees {
		surplus += t.bytes
	}
	for i := 0; i < len(trees) && surplus > 0; i++ {
		list, err := h.retireTree(ctx, trees[i], true, func(session.Summary) bool { return true })
		if err != nil {
			return 0, err
		}
		if list == nil {
			surplus -= trees[i].bytes
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

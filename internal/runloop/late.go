package runloop

import (
	"context"
	"maps"
	"slices"
	"time"

	"noused/internal/session"
)

// A run above another counts what that has used. A child in the background may end when the run of its call is over:
// no run counts it then. What is left of its tree keeps it, each session in its journal, before the end is told, so
// that no later daemon forgets it. The run that its end begins is of the tree, too, and no run counts it either: it is
// kept where it ran as it ends, and elsewhere soon after. A child that begins later has what its parent keeps.

type (
	// tellTree answers a childReportIn.
	tellTree struct{}
	// treeLateIn has a session keep what a run of a tree has used that no run above it counts.
	treeLateIn struct {
		ticket ticket
		fact   session.ChildEnded
	}
)

// late is fact for a child whose call's run is over.
func (end childEnd) late(c session.Child) session.ChildEnded {
	f := end.fact(c)
	f.Root, f.Counted = c.Tree(), max(f.Counted, c.Nth)
	return f
}

func (in treeLateIn) step(m *machine) {
	switch {
	case m.draining: // the next daemon has it told again
		m.refuse(in.ticket, shuttingDown())
		return
	case m.s.Keeps(in.fact.Root):
		m.record(in.fact)
	}
	m.reply(in.ticket, nil)
}

// report has the machine take in what a child in the background has come to.
func (l *loop) report(in childReportIn) {
	for {
		c := newCall()
		in.ticket = c
		if l.post(l.life, in) != nil {
			return
		}
		r, err := l.await(l.life, c.reply)
		if _, tells := r.value.(tellTree); err != nil || !tells {
			return
		}
		if !l.env.hub.tellLate(l.life, l.id, in.end.late(in.child)) {
			return
		}
		in.told = true
	}
}

// tellLate has the other sessions that there is something of a tree in keep what a run of it has used. Those whose
// journals fail for long are left out. False: ctx has ended.
func (h *Hub) tellLate(ctx context.Context, from string, fact session.ChildEnded) bool {
	h.awaitTakenUp(ctx) // or not all of them are known
	for tries, ids := 0, h.env.forest.keepers(fact.Root); len(ids) > 0 && tries < maxVain; tries++ {
		if tries > 0 {
			select {
			case <-time.After(childRetry):
			case <-ctx.Done():
				return false
			}
		}
		ids = slices.DeleteFunc(ids, func(id string) bool {
			if id == from {
				return true
			}
			_, err := h.request(ctx, id, func(t ticket) input { return treeLateIn{t, fact} })
			return err == nil || lost(err)
		})
	}
	return ctx.Err() == nil
}

// lateOf is what a session keeps of a tree. A child that begins has it, too: it may be all that is left of the tree.
func (h *Hub) lateOf(ctx context.Context, id, root string) ([]session.Late, error) {
	return readSession(ctx, h, id, func(m *machine) ([]session.Late, error) {
		return slices.DeleteFunc(slices.Clone(m.s.Late), func(l session.Late) bool { return l.Root != root }), nil
	})
}

// keepers are the sessions that there is something of a tree in.
func (f *forest) keepers(root string) []string {
	ids := map[string]bool{}
	f.use(root, func(t *tree) {
		for id := range t.wanted {
			ids[id] = true
		}
		for _, u := range t.uses {
			if u.live && u.session != "" {
				ids[u.session] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(ids))
}

// learn counts what a session has kept of a tree, and the run at its root where that was the session's.
func (t *tree) learn(root string, s *session.State) {
	if t.uses[root] == nil {
		if ended, ok := s.Ended(root); ok {
			t.ended(root, childEndOf(ended.RunEnded, ended.Usage))
		}
	}
	for _, l := range s.Late {
		if l.Root != root {
			continue
		}
		t.given = max(t.given, l.Counted)
		if t.uses[l.Run] == nil {
			t.uses[l.Run] = &treeUse{used: l.Spent, children: l.Children}
		}
	}
}

// rootless are trees of which the run at the root is not counted.
func (f *forest) rootless() (roots []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for root, t := range f.trees {
		if t.uses[root] == nil {
			roots = append(roots, root)
		}
	}
	slices.Sort(roots)
	return roots
}

// findRoots counts what the runs at the roots of trees have used that ended under a former daemon, while something of
// their trees goes on. Where a journal cannot be read just now, mend looks again.
func (h *Hub) findRoots(ctx context.Context) {
	h.rootsMissing.Store(false)
	for _, root := range h.env.forest.rootless() {
		looked := map[string]bool{}
		for _, id := range h.env.forest.keepers(root) {
			for id != "" && !looked[id] {
				looked[id] = true
				above, err := h.findRoot(ctx, root, id)
				if err != nil && !lost(err) {
					h.rootsMissing.Store(true)
					signal(h.failed)
				}
				id = above
			}
		}
	}
}

// findRoot counts the run at the root of a tree if it is the session's, and names the session above if not.
func (h *Hub) findRoot(ctx context.Context, root, id string) (above string, err error) {
	end, err := readSession(ctx, h, id, func(m *machine) (end *childEnd, err error) {
		if ended, ok := m.s.Ended(root); ok {
			was := childEndOf(ended.RunEnded, ended.Usage)
			return &was, nil
		}
		if m.s.Parent != nil {
			above = m.s.Parent.SessionID
		}
		return nil, nil
	})
	if end != nil {
		h.env.forest.ended(root, root, *end)
	}
	return above, err
}

// countUnopened counts what the journal of a child's session says that its run has used, where the session cannot be
// opened just now, and returns it. Nobody may have looked at it yet: its parent asks its model meanwhile.
func (h *Hub) countUnopened(ctx context.Context, d *delegate) (end childEnd) {
	s, err := h.env.Store.Peek(ctx, d.child.ChildID)
	if err != nil || d.child.Ended { // or its parent's run counts it
		return end
	}
	ended, is := s.Ended(d.child.ChildRunID)
	switch run := s.Run; {
	case is:
		end = childEndOf(ended.RunEnded, ended.Usage)
	case run != nil && run.ID == d.child.ChildRunID:
		end.usage, end.counted = run.Usage, run.Counted()
		end.below, end.children = run.Below()
	default:
		return end
	}
	h.env.forest.ended(d.birth.root, d.child.ChildRunID, end)
	return end
}

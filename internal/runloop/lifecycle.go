package runloop

import (
	"slices"
	"time"
)

// stage says how far a hub is with stopping.
type stage int

const (
	serving  stage = iota
	draining       // runs are led to a boundary and left there
	closed         // no session is opened any more
)

// lifecycle is a Hub's state: how far it is with stopping, which sessions are
// open, who opens or closes one, and which have failed. It changes in Hub.update
// only.
type lifecycle struct {
	stage   stage
	loops   map[string]*loop         // of open sessions; one may have ended by itself
	taken   map[string]chan struct{} // sessions that somebody opens, closes or deletes; closed when that is done
	repairs map[string]*repair       // sessions that failed and are opened again
	keeping bool                     // sessions whose agents live on are not led to a boundary yet
}

// update makes a change of the hub's state, and sees to what follows from the new
// one: Drain goes on once no loop is held up by anything, and Run looks at the
// sessions that have failed. change must not block.
func (h *Hub) update(change func(s *lifecycle)) {
	h.mu.Lock()
	change(&h.state)
	drained := h.state.stage == draining && h.state.resting()
	failed := len(h.state.repairs) > 0
	h.mu.Unlock()
	if drained {
		signal(h.drained)
	}
	if failed {
		signal(h.failed)
	}
}

// readLifecycle reads the hub's state. read must not block.
func (h *Hub) readLifecycle(read func(s *lifecycle)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	read(&h.state)
}

// open returns the loop of a session, nil where none is running.
func (s *lifecycle) open(id string) *loop {
	if l := s.loops[id]; l != nil && !l.hasEnded() {
		return l
	}
	return nil
}

// all returns the loops, those that have ended by themselves included.
func (s *lifecycle) all() []*loop {
	all := make([]*loop, 0, len(s.loops))
	for _, l := range s.loops {
		all = append(all, l)
	}
	return all
}

// use keeps a loop open until leave.
func (s *lifecycle) use(l *loop) { l.users++ }

func (s *lifecycle) leave(l *loop, now time.Time) {
	l.users--
	l.lastUsed = now
}

// claim claims a session until give. If another owner has it, take returns a channel
// that is closed on release.
func (s *lifecycle) claim(id string) (others chan struct{}) {
	if others = s.taken[id]; others == nil {
		s.taken[id] = make(chan struct{})
	}
	return others
}

// release lets those go on who wait for a session.
func (s *lifecycle) release(id string) {
	close(s.taken[id])
	delete(s.taken, id)
}

// resting reports that every loop may be closed: nothing is under way in it, and
// nobody uses it.
func (s *lifecycle) resting() bool {
	for _, l := range s.loops {
		if s.keeping && l.keeps != nil {
			continue
		}
		if !l.hasEnded() && (!l.resting.Load() || l.users > 0) {
			return false
		}
	}
	return true
}

// stop ends the hub's service, and returns the loops to be closed.
func (s *lifecycle) stop() []*loop {
	left := s.all()
	clear(s.loops)
	s.stage = closed
	return left
}

// dismiss takes out the idle loops that were last used before then, and of the
// others the oldest that are too many. Their sessions are the caller's to give.
func (s *lifecycle) dismiss(before time.Time) (leaving []*loop) {
	var rest []*loop
	for _, l := range s.loops {
		switch {
		case l.users > 0 || !l.evictable() || s.taken[l.id] != nil:
		case l.lastUsed.Before(before):
			leaving = append(leaving, l)
		default:
			rest = append(rest, l)
		}
	}
	slices.SortFunc(rest, func(a, b *loop) int { return b.lastUsed.Compare(a.lastUsed) })
	bytes := int64(0)
	for n, l := range rest { // the latest first
		if bytes += l.idle.Load(); n >= maxIdle || n >= fewIdle && bytes > idleBytes {
			leaving = append(leaving, l)
		}
	}
	for _, l := range leaving {
		delete(s.loops, l.id)
		s.claim(l.id)
	}
	return leaving
}

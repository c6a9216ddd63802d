package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"noused/internal/tool"
)

// ProcessLimit bounds the living processes of many pools together: one for each module,
// and so many more. Where there is no room for another one, the process that has
// been idle for longest is ended first; while none is idle, a caller who wants one
// waits (folders.md §1). It may be used from any goroutine.
type ProcessLimit struct {
	most int

	mu      sync.Mutex
	living  map[string]int // by module
	total   int
	idle    []*Slot
	ending  int           // those that were told to end to make room
	waiting int           // those who want room
	changed chan struct{} // closed when somebody who waits should look again
}

// Slot is the place of one living process in a ProcessLimit.
type Slot struct {
	module string
	since  time.Time
	end    func() bool // ends the process unless somebody has taken it; does not wait
	ended  bool        // it was told to
	left   bool        // nothing is left of it
}

// NewProcessLimit makes a ProcessLimit with room for so many processes beyond one of each
// module.
func NewProcessLimit(most int) *ProcessLimit {
	return &ProcessLimit{most: most, living: map[string]int{}, changed: make(chan struct{})}
}

// Enter waits, as long as ctx, until there is room for one more process of a
// module. Its slot must be left.
func (c *ProcessLimit) Enter(ctx context.Context, module string) (*Slot, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	defer func() { c.waiting-- }()
	for c.living[module] > 0 && c.room() <= 0 {
		changed := c.changed // before makeRoom, in which the mutex is free for moments
		c.makeRoom()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			c.mu.Lock()
			return nil, tool.Interrupted(ctx)
		}
		c.mu.Lock()
	}
	c.living[module]++
	c.total++
	return &Slot{module: module}, nil
}

// room is for how many more processes there is room beyond one of each module.
func (c *ProcessLimit) room() int { return c.most - (c.total - len(c.living)) }

// makeRoom ends processes that are idle, the longest first, as many as others
// wait for. The mutex is held, but while a process is told to end: one may have
// left by then.
func (c *ProcessLimit) makeRoom() {
	for c.ending+c.room() < c.waiting {
		i := c.longest()
		if i < 0 {
			return
		}
		s := c.idle[i]
		c.idle = slices.Delete(c.idle, i, i+1)
		s.ended = true
		c.ending++
		c.mu.Unlock()
		done := s.end()
		c.mu.Lock()
		if !done && s.ended { // somebody has taken it just now
			s.ended = false
			c.ending--
		}
	}
}

// longest is the slot of the process that is idle for longest among those whose
// end makes room, -1 if there is none. One that is being told to end already may
// have been taken and given back meanwhile; it is not told again.
func (c *ProcessLimit) longest() int {
	at := -1
	for i, s := range c.idle {
		if c.living[s.module] > 1 && !s.ended && (at < 0 || s.since.Before(c.idle[at].since)) {
			at = i
		}
	}
	return at
}

// Rest says that a process is idle since then, and how it is ended.
func (c *ProcessLimit) Rest(s *Slot, since time.Time, end func() bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.since, s.end = since, end; !s.left {
		c.idle = append(c.idle, s)
		c.notifyChange()
	}
}

// Wake says that a process is not idle any more.
func (c *ProcessLimit) Wake(s *Slot) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = slices.DeleteFunc(c.idle, func(o *Slot) bool { return o == s })
}

// Leave says that nothing is left of a process.
func (c *ProcessLimit) Leave(s *Slot) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = slices.DeleteFunc(c.idle, func(o *Slot) bool { return o == s })
	if c.living[s.module]--; c.living[s.module] == 0 {
		delete(c.living, s.module)
	}
	c.total--
	s.left = true
	if s.ended {
		s.ended = false
		c.ending--
	}
	c.notifyChange()
}

func (c *ProcessLimit) notifyChange() {
	if c.waiting > 0 {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

package follow

import (
	"context"
	"slices"
	"sync"
)

// What a reader may leave untaken before its events are dropped.
const (
	maxEvents = 4096
	maxBytes  = 8 << 20
)

// outbox holds what happened until its reader takes it. It never blocks those
// who put something in.
type outbox struct {
	updates chan Update
	filled  chan struct{} // cap 1
	emptied chan struct{} // cap 1: the reader has taken all, after it was told that events were dropped

	mu      sync.Mutex
	queue   []Update
	events  int // in the queue
	bytes   int // of their lines
	dropped bool
}

func newOutbox() *outbox {
	return &outbox{updates: make(chan Update), filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// deliver hands it out until ctx ends.
func (o *outbox) deliver(ctx context.Context) {
	defer close(o.updates)
	for {
		next, ok := o.takeUpdate()
		if !ok {
			select {
			case <-o.filled:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case o.updates <- next:
			o.delivered()
		case <-ctx.Done():
			return
		}
	}
}

func (o *outbox) takeUpdate() (Update, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil, false
	}
	next := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	if batch, ok := next.(Events); ok {
		o.events -= len(batch.List)
		if o.events == 0 {
			o.bytes = 0
		}
	}
	return next, true
}

// delivered reports the moment when a reader that was too slow has caught up.
func (o *outbox) delivered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped && len(o.queue) == 0 {
		signal(o.emptied)
	}
}

// snapshot replaces all that waits: it says the same and more. A refusal is an
// answer and stays, and so does the link's end. Of a snapshot that the reader has not seen, it
// takes over why the one before that was lost; if it was itself an answer, and is lost, it becomes a refusal.
func (o *outbox) snapshot(s Snapshot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var unseen *Snapshot
	o.retain(func(u Update) bool {
		switch u := u.(type) {
		case Refused, Broken:
			return true
		case Snapshot:
			unseen = &u
		}
		return false
	})
	if unseen != nil {
		id := unseen.State.SessionID
		switch {
		case s.Lost != nil && unseen.asked:
			o.add(Refused{id, s.Lost})
			s.Lost = unseen.Lost
		case unseen.Lost != nil:
			s.Lost = unseen.Lost
		}
		s.asked = s.asked || unseen.asked && id == s.State.SessionID
	}
	o.queue, o.dropped = append(o.queue, s), false
	signal(o.filled)
}

// put adds what replaces the earlier ones of its type, and those that it makes
// obsolete.
func (o *outbox) put(next Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(next)
	signal(o.filled)
}

// add is put with o.mu held.
func (o *outbox) add(next Update) {
	o.retain(func(u Update) bool {
		switch u.(type) {
		case Disconnected:
			_, again := next.(Disconnected)
			return !again
		case Changed:
			_, refused := next.(Refused)
			return refused
		case Refused:
			_, refused := next.(Refused)
			return !refused
		default:
			return true
		}
	})
	o.queue = append(o.queue, next)
}

// retain throws out of the queue what is not wanted any more.
func (o *outbox) retain(wanted func(Update) bool) {
	o.queue = slices.DeleteFunc(o.queue, func(u Update) bool {
		if wanted(u) {
			return false
		}
		if batch, ok := u.(Events); ok {
			o.events -= len(batch.List)
		}
		return true
	})
	if o.events == 0 {
		o.bytes = 0
	}
}

// event adds one event whose line has so many bytes. False: events had to be
// dropped, this one with them; none are taken until a snapshot.
func (o *outbox) event(ev Event, size int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return false
	}
	if o.events >= maxEvents || o.events > 0 && o.bytes+size > maxBytes {
		o.drop()
		return false
	}
	o.events++
	o.bytes += size
	if n := len(o.queue); n > 0 {
		if batch, ok := o.queue[n-1].(Events); ok {
			batch.List = append(batch.List, ev)
			o.queue[n-1] = batch
			return true
		}
	}
	o.queue = append(o.queue, Events{List: []Event{ev}})
	signal(o.filled)
	return true
}

// drop throws the waiting events away, and the states that follow from them.
func (o *outbox) drop() {
	o.retain(func(u Update) bool {
		switch u.(type) {
		case Events, Gap, Changed:
			return false
		default:
			return true
		}
	})
	o.queue, o.dropped = append(o.queue, Gap{}), true
	signal(o.filled)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

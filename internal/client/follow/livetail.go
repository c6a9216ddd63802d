package follow

import (
	"slices"

	"noused/internal/protocol"
)

// Bounds of what is kept of one session's doing, and of that of all of them, in
// bytes of event lines.
const (
	maxDeed  = 512 << 10
	maxDoing = 16 << 20
)

// liveTail keeps, for every session, the events of what is going on there and
// stands in neither its messages nor its state: the thinking of the message that
// is being said, the start and the output of the tool call that runs. So a
// session that is turned to in the middle shows the same to all. Where it is too
// much of one the oldest is left out, and where it is too much of all that of the
// session that has most. The zero liveTail is empty.
type liveTail struct {
	tails map[string]*sessionTail
	size  int
}

type sessionTail struct {
	parts []incoming
	size  int
	kept  int // of parts: the start of the tool call
}

func (d *liveTail) see(next incoming) {
	if next.Event.Event == nil {
		return
	}
	id := next.Where().SessionID
	switch ev := next.Event.Event.(type) {
	case protocol.MessageStart, protocol.MessageEnd, protocol.ToolEnd, protocol.AgentEnd:
		d.forget(id)
	case protocol.ToolStart:
		d.forget(id)
		d.add(id, next)
		d.tails[id].kept = 1
	case protocol.ToolUpdate:
		d.add(id, next)
	case protocol.MessageUpdate:
		if ev.ThinkingDelta != "" {
			d.add(id, next)
		}
	}
}

func (d *liveTail) clear() { *d = liveTail{} }

func (d *liveTail) forget(id string) {
	if what := d.tails[id]; what != nil {
		d.size -= what.size
		delete(d.tails, id)
	}
}

func (d *liveTail) add(id string, next incoming) {
	if d.tails == nil {
		d.tails = map[string]*sessionTail{}
	}
	what := d.tails[id]
	if what == nil {
		what = &sessionTail{}
		d.tails[id] = what
	}
	was := what.size
	what.add(next)
	d.size += what.size - was
	for d.size > maxDoing && len(d.tails) > 1 {
		d.forget(d.largest(id))
	}
}

// largest returns the session with most, but for the one that has just grown.
func (d *liveTail) largest(but string) (id string) {
	most := -1
	for at, what := range d.tails {
		if at != but && what.size > most {
			id, most = at, what.size
		}
	}
	return id
}

func (w *sessionTail) add(next incoming) {
	w.parts = append(w.parts, next)
	w.size += next.size
	if w.size <= maxDeed {
		return
	}
	cut := w.kept
	for w.size > maxDeed*3/4 && cut < len(w.parts)-1 { // more than is needed, or it would be moved for every event
		w.size -= w.parts[cut].size
		cut++
	}
	w.parts = slices.Delete(w.parts, w.kept, cut)
}

// of returns a session's events, in order.
func (d *liveTail) of(id string) []incoming {
	if what := d.tails[id]; what != nil {
		return what.parts
	}
	return nil
}

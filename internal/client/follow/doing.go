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

// doing keeps, for every session, the events of what is going on there and
// stands in neither its messages nor its state: the thinking of the message that
// is being said, the start and the output of the tool call that runs. So a
// session that is turned to in the middle shows the same to all. Where it is too
// much of one the oldest is left out, and where it is too much of all that of the
// session that has most. The zero doing is empty.
type doing struct {
	deeds map[string]*deed
	size  int
}

type deed struct {
	parts []incoming
	size  int
	kept  int // of parts: the start of the tool call
}

func (d *doing) see(next incoming) {
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
		d.deeds[id].kept = 1
	case protocol.ToolUpdate:
		d.add(id, next)
	case protocol.MessageUpdate:
		if ev.ThinkingDelta != "" {
			d.add(id, next)
		}
	}
}

func (d *doing) clear() { *d = doing{} }

func (d *doing) forget(id string) {
	if what := d.deeds[id]; what != nil {
		d.size -= what.size
		delete(d.deeds, id)
	}
}

func (d *doing) add(id string, next incoming) {
	if d.deeds == nil {
		d.deeds = map[string]*deed{}
	}
	what := d.deeds[id]
	if what == nil {
		what = &deed{}
		d.deeds[id] = what
	}
	was := what.size
	what.add(next)
	d.size += what.size - was
	for d.size > maxDoing && len(d.deeds) > 1 {
		d.forget(d.largest(id))
	}
}

// largest returns the session with most, but for the one that has just grown.
func (d *doing) largest(but string) (id string) {
	most := -1
	for at, what := range d.deeds {
		if at != but && what.size > most {
			id, most = at, what.size
		}
	}
	return id
}

func (w *deed) add(next incoming) {
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
func (d *doing) of(id string) []incoming {
	if what := d.deeds[id]; what != nil {
		return what.parts
	}
	return nil
}

package link

import "noused/internal/protocol"

// maxDoing bounds what is kept of one session's doing, in bytes of event lines.
const maxDoing = 512 << 10

// doing keeps, for every session, the events of what is going on there and
// stands in neither its messages nor its state: the thinking of the message that
// is being said, the start and the output of the tool call that runs. So a
// session that is turned to in the middle shows the same to all. Where it is too
// much the oldest is left out.
type doing map[string]*deed

type deed struct {
	start *Event // of the tool call
	parts []incoming
	size  int
}

func (d doing) see(next incoming) {
	if next.Event.Event == nil {
		return
	}
	id := next.Where().SessionID
	switch ev := next.Event.Event.(type) {
	case protocol.MessageStart, protocol.MessageEnd, protocol.ToolEnd, protocol.AgentEnd:
		delete(d, id)
	case protocol.ToolStart:
		d[id] = &deed{start: &next.Event}
	case protocol.ToolUpdate:
		d.add(id, next)
	case protocol.MessageUpdate:
		if ev.ThinkingDelta != "" {
			d.add(id, next)
		}
	}
}

func (d doing) add(id string, next incoming) {
	what := d[id]
	if what == nil {
		what = &deed{}
		d[id] = what
	}
	what.parts = append(what.parts, next)
	for what.size += next.size; what.size > maxDoing && len(what.parts) > 1; {
		what.size -= what.parts[0].size
		what.parts[0] = incoming{}
		what.parts = what.parts[1:]
	}
}

// of returns a session's events, in order.
func (d doing) of(id string) []incoming {
	what := d[id]
	if what == nil {
		return nil
	}
	var all []incoming
	if what.start != nil {
		all = append(all, incoming{Event: *what.start})
	}
	return append(all, what.parts...)
}

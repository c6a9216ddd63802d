package host

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/protocol"
)

// message is what the stream gets for one event, or for several: count entries of the
// log, numbers from to to.
type message struct {
	from, to uint64
	typ      string
	session  string
	data     []byte // an envelope without the end of its line
	count    int
}

func messageID(h *Host, s span) string { return fleet.MessageID(h.o.Epoch, s.to) }

// update is what the joining of deltas looks at.
type update struct {
	TS      time.Time              `json:"ts"`
	Payload protocol.MessageUpdate `json:"payload"`
}

// first makes the message for the first of the entries, and for those behind it that
// go along with it: deltas of the same message within 20 ms, with nothing between them.
func (h *Host) first(entries []event.Entry) message {
	e := entries[0]
	m := message{
		from: e.Seq, to: e.Seq, typ: e.Type, session: e.Session, data: bytes.TrimSuffix(e.Line, []byte("\n")),
		count: 1,
	}
	if !joinable(entries) {
		return m
	}
	var all update
	if json.Unmarshal(e.Line, &all) != nil {
		return m
	}
	begun, last, parts := all.TS, all.TS, []int{all.size()}
	for n := 1; n < len(entries) && joinable(entries[n-1:]); n++ {
		var next update
		if json.Unmarshal(entries[n].Line, &next) != nil || !all.join(next, begun) {
			break
		}
		m.count, m.to, last, parts = n+1, entries[n].Seq, next.TS, append(parts, next.size())
	}
	if m.count == 1 {
		return m
	}
	payload, err := protocol.EncodePayload(all.Payload)
	if err != nil { // it was decoded just now
		m.count, m.to = 1, m.from
		return m
	}
	m.data = bytes.TrimSuffix(protocol.AppendJoined(nil, m.typ, payload, last,
		protocol.Span{From: m.from, To: m.to, Parts: parts}), []byte("\n"))
	return m
}

// joinable: the first two entries are deltas of one session, one behind the other.
func joinable(entries []event.Entry) bool {
	if len(entries) < 2 {
		return false
	}
	a, b := entries[0], entries[1]
	return a.Type == protocol.MessageUpdate{}.Type() && b.Type == a.Type && a.Session == b.Session && b.Seq == a.Seq+1
}

// size is how many bytes of text it has; one of the two has none.
func (u *update) size() int { return len(u.Payload.Delta) + len(u.Payload.ThinkingDelta) }

// join appends the next delta, if it is of the same kind and message, and near.
func (u *update) join(next update, begun time.Time) bool {
	a, b := &u.Payload, next.Payload
	if a.Ref != b.Ref || a.MessageID != b.MessageID || (a.Delta == "") != (b.Delta == "") ||
		(a.ThinkingDelta == "") != (b.ThinkingDelta == "") ||
		next.TS.Sub(begun) > joinTime || len(a.Delta)+len(a.ThinkingDelta) > joinSize {
		return false
	}
	a.Delta += b.Delta
	a.ThinkingDelta += b.ThinkingDelta
	return true
}

// read makes the message of a span anew. What the log has no longer is told instead.
func (h *Host) read(s span) message {
	after := s.from - 1
	cursor, _, gap := h.o.Events.Begin("", &after, event.Filter{})
	var entries []event.Entry
	for !gap && uint64(len(entries)) < s.to-s.from+1 {
		more, batch := h.o.Events.Entries(&cursor, int(s.to-s.from+1)-len(entries), nil)
		if batch.To > 0 || len(more) == 0 {
			gap = true
		}
		entries = append(entries, more...)
	}
	if gap {
		return missed(s.from, s.to)
	}
	m := h.first(entries)
	if m.to != s.to { // it was reported as missing then
		return missed(s.from, s.to)
	}
	return m
}

// missed reports events that the log no longer had when they were to be sent.
func missed(from, to uint64) message {
	return warning(from, to, fmt.Sprintf("the fleet was away for too long: the events %d to %d are no longer kept", from,
		to), "")
}

// tooLarge reports an event that the server does not carry, or the stream does not take.
func tooLarge(m message, most int) message {
	return warning(m.from, m.to, fmt.Sprintf(
		"an event, %s, has %d bytes, and the NATS server takes at most %d (max_payload, or max_msg_size of the stream)",
		m.typ, len(m.data), most),
		m.session)
}

func warning(from, to uint64, text, session string) message {
	ev := protocol.Warning{
		Ref: protocol.Ref{SessionID: session}, Code: protocol.WarningEventsDropped, FromSeq: from,
		ToSeq: to, Message: text,
	}
	payload, err := protocol.EncodePayload(ev)
	if err != nil { // numbers and words of ours
		payload = jsontext.Value(`{}`)
	}
	line := protocol.AppendJoined(nil, ev.Type(), payload, time.Now(), protocol.Span{From: from, To: to})
	return message{
		from: from, to: to, typ: ev.Type(), session: session, data: bytes.TrimSuffix(line, []byte("\n")),
		count: 0,
	}
}

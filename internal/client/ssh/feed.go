package ssh

import (
	"bytes"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
)

// Nobody is a session that does not exist: to subscribe to its events is to get none.
const Nobody = "-"

// feed shares the far end's one subscription among connections. The far end is asked
// each one's own question, so that the answer is the daemon's; where others are there, it
// is asked once more then, for everything that comes after what the one who is furthest
// behind has got. Each gets what it has not got yet, and what it wants.
//
// The trunk's lock guards it.
type feed struct {
	readers []*reader
	waiting []request
	asking  bool // a question is not answered
	loud    bool // the far end was asked for events
	// flowing: what comes is what the readers want. Else it is what one of them has
	// asked for, and is thrown away until the far end was asked once more.
	flowing bool
}

// reader is a connection that has subscribed.
type reader struct {
	conn *conn
	want protocol.SubscribeParams
	got  uint64 // the number up to which it has events, or does not want any
}

// request is a subscribe line of a connection's.
type request struct {
	conn *conn
	id   []byte
	p    protocol.SubscribeParams
}

// quiet has a daemon that knows subscribe tell nothing yet.
func (f *feed) quiet(t *trunk) {
	if t.hello.Epoch == "" {
		f.flowing = true
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.loud = true // as any connection that says nothing
	f.goOn(t)
}

// subscribe takes an owner's line on a connection for events.
func (c *conn) subscribe(line []byte) error {
	t := c.t
	if t.hello.Epoch == "" {
		return c.pass(line)
	}
	start, end, _ := idOf(line)
	id, p, err := protocol.DecodeSubscribe(bytes.TrimRight(line, "\r\n"))
	if err != nil {
		c.put(protocol.AppendError(nil, id, protocol.AsError(err)))
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	if len(t.feed.waiting) >= maxAsked {
		return &Error{Host: t.o.Host, What: "too many subscriptions wait"}
	}
	t.feed.waiting = append(t.feed.waiting, request{c, bytes.Clone(line[start:end]), p})
	t.feed.goOn(t)
	return nil
}

// pass sends a line to an older core, whose events all get.
func (c *conn) pass(line []byte) error {
	start, end, ok := idOf(line)
	if !ok {
		return c.hand(line)
	}
	id := c.t.ask(asked{from: c, id: bytes.Clone(line[start:end])})
	return c.hand(bytes.Join([][]byte{line[:start], []byte(id), line[end:]}, []byte{'"'}))
}

// ask asks the far end. then is called with the answer.
func (f *feed) ask(t *trunk, p protocol.SubscribeParams, id []byte, then func(line []byte)) {
	payload, err := json.Marshal(p)
	if err != nil {
		return // it has strings and a number
	}
	f.asking = true
	wire := t.askLocked(asked{id: id, answer: func(line []byte) {
		f.asking = false
		then(line)
		f.goOn(t)
	}})
	t.say([]byte(`{"v":"1","id":"` + wire + `","type":"subscribe","payload":` + string(payload) + "}\n"))
}

// goOn sends the next request.
func (f *feed) goOn(t *trunk) {
	for !f.asking && len(f.waiting) > 0 {
		next := f.waiting[0]
		f.waiting = f.waiting[1:]
		if !next.conn.ended() {
			f.ask(t, next.p, next.id, func(line []byte) { f.beginRequest(next, line) })
		}
	}
	switch {
	case f.asking || t.err != nil:
	case len(f.readers) == 0 && f.loud:
		f.ask(t, protocol.SubscribeParams{SessionID: Nobody}, nil, func([]byte) { f.loud, f.flowing = false, false })
	case len(f.readers) > 0 && !f.flowing:
		p := f.all()
		p.Epoch = t.hello.Epoch
		f.ask(t, p, nil, f.resume)
	}
}

// beginRequest takes the answer to a request.
func (f *feed) beginRequest(q request, line []byte) {
	at, ok := subscribed(line)
	if ok {
		f.readers = slices.DeleteFunc(f.readers, func(r *reader) bool { return r.conn == q.conn })
		f.loud, f.flowing = true, len(f.readers) == 0
		if !q.conn.ended() {
			f.readers = append(f.readers, &reader{q.conn, q.p, at.NextSeq - 1})
		}
	}
	q.conn.put(line)
}

// resume takes the answer to what all readers want. A hole is told as the daemon tells one.
func (f *feed) resume(line []byte) {
	at, ok := subscribed(line)
	if !ok {
		return
	}
	f.flowing = true
	for _, r := range f.readers {
		if at.Gap && r.got+1 < at.NextSeq {
			r.drop(r.got+1, at.NextSeq-1)
		}
	}
}

func subscribed(line []byte) (at protocol.Subscribed, ok bool) {
	var e envelope
	ok = json.Unmarshal(line, &e) == nil && e.OK != nil && *e.OK && json.Unmarshal(e.Payload, &at) == nil
	return at, ok && at.NextSeq > 0
}

// all is what the readers want together, from where the one who is furthest behind is.
func (f *feed) all() protocol.SubscribeParams {
	first := f.readers[0]
	p, after := protocol.SubscribeParams{SessionID: first.want.SessionID, Types: first.want.Types}, first.got
	for _, r := range f.readers[1:] {
		after = min(after, r.got)
		if r.want.SessionID != p.SessionID || !slices.Equal(r.want.Types, p.Types) {
			p = protocol.SubscribeParams{}
		}
	}
	p.After = &after
	return p
}

// leave is a reader's end.
func (f *feed) leave(t *trunk, c *conn) {
	f.readers = slices.DeleteFunc(f.readers, func(r *reader) bool { return r.conn == c })
	f.waiting = slices.DeleteFunc(f.waiting, func(q request) bool { return q.conn == c })
	f.goOn(t)
}

// event gives an event to those who want it.
func (f *feed) event(t *trunk, e envelope, line []byte) {
	if t.hello.Epoch == "" {
		for c := range t.conns {
			if c.number == 0 {
				c.put(append(bytes.Clone(line), '\n'))
			}
		}
		return
	}
	if !f.flowing {
		return
	}
	from, to, dropped := droppedIn(e)
	session := sessionOf(e, f.readers)
	for _, r := range f.readers {
		switch {
		case e.Seq <= r.got:
		case dropped:
			r.drop(max(from, r.got+1), to)
		default:
			r.got = e.Seq
			if (r.want.SessionID == "" || r.want.SessionID == session) && (len(r.want.Types) == 0 || slices.Contains(r.want.Types, e.Type)) {
				r.conn.put(append(bytes.Clone(line), '\n'))
			}
		}
	}
	f.readers = slices.DeleteFunc(f.readers, func(r *reader) bool { return r.conn.ended() })
}

// drop tells a reader what it has missed (wire-v1 §5).
func (r *reader) drop(from, to uint64) {
	r.got = to
	ev := protocol.Warning{
		Code: protocol.WarningEventsDropped, FromSeq: from, ToSeq: to,
		Message: "this reader was too slow: some events are no longer kept",
	}
	if payload, err := protocol.EncodePayload(ev); err == nil {
		r.conn.put(protocol.AppendEvent(nil, ev.Type(), payload, time.Now(), to))
	}
}

// droppedIn tells whether an event says that others were dropped.
func droppedIn(e envelope) (from, to uint64, ok bool) {
	if e.Type != (protocol.Warning{}).Type() {
		return 0, 0, false
	}
	var w protocol.Warning
	ok = json.Unmarshal(e.Payload, &w) == nil && w.Code == protocol.WarningEventsDropped && w.ToSeq == e.Seq
	return w.FromSeq, w.ToSeq, ok
}

// sessionOf is an event's session, if anybody wants to know.
func sessionOf(e envelope, readers []*reader) string {
	if !slices.ContainsFunc(readers, func(r *reader) bool { return r.want.SessionID != "" }) {
		return ""
	}
	var ref protocol.Ref
	if json.Unmarshal(e.Payload, &ref) != nil {
		return ""
	}
	return ref.SessionID
}

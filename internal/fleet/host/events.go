package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/protocol"
)

const (
	window     = 128              // messages that the server has not acknowledged
	windowSize = 4 << 20          // their bytes
	ackTime    = 10 * time.Second // for the server to acknowledge one
	readAhead  = 64               // events looked at together
	joinTime   = 20 * time.Millisecond
	joinSize   = 16 << 10 // bytes of joined deltas
)

// span is a message in the stream: it stands for the events from number from to number
// to. A span is the same however often it is sent, as its id must be.
type span struct {
	from, to uint64
	size     int
	stored   bool
}

// outbox sends the events of the log to the stream, in order, each once. It belongs to
// one goroutine at a time, and lives longer than a connection: no line is kept in it,
// only which ones are under way.
type outbox struct {
	host    *Host
	cursor  event.Cursor // behind the last span
	sent    []span       // not known to be stored, the oldest first
	bytes   int          // of sent
	careful bool         // the server has refused something: one at a time, so that nothing overtakes it
	last    uint64       // in the stream's own count: the newest message that is known to be stored
	entries []event.Entry

	published atomic.Uint64 // the newest event that is known to be stored, with all before it
	drained   chan struct{} // closed when the log is at its end and all is stored
	finish    func()        // closes it
}

func newOutbox(h *Host) *outbox {
	b := &outbox{host: h, drained: make(chan struct{})}
	b.finish = sync.OnceFunc(func() { close(b.drained) })
	zero := uint64(0)
	b.cursor, _, _ = h.o.Events.Begin("", &zero, event.Filter{})
	return b
}

// publisher publishes an outbox to the stream over one connection.
type publisher struct {
	*outbox
	link   *link
	stream jetstream.Stream
	acks   chan *nats.Msg
	inbox  string
	base   uint64 // number of sent[0] among all that were sent by it
	next   int    // in sent: what has not been sent by it yet
	oldest time.Time
	full   bool // the log was read to its end: nothing is ready
	wait   <-chan struct{}
	end    bool
}

// send sends events until the link ends, an error, or the end of the log.
func (b *outbox) send(l *link, well func()) (err error) {
	w := &publisher{outbox: b, link: l, acks: make(chan *nats.Msg, 2*window), inbox: l.nc.NewInbox() + "."}
	if w.stream, err = l.host.o.Prefix.OpenEvents(l.ctx, l.js); err != nil {
		return err
	}
	w.rewind()
	w.findEnd()
	if err := w.recall(); err != nil {
		return err
	}
	sub, err := l.nc.ChanSubscribe(w.inbox+"*", w.acks)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if !b.careful {
		well()
	}
	clean := false
	defer func() { b.careful = !clean }() // also after a panic
	err = w.work(well)
	clean = err == nil
	return err
}

// rewind sets the cursor behind the last span, where a panic may have left it elsewhere.
func (b *outbox) rewind() {
	at := b.published.Load()
	if n := len(b.sent); n > 0 {
		at = b.sent[n-1].to
	}
	b.cursor.Rewind(at)
}

// findEnd looks where the stream ends. It may be another one than before.
func (w *publisher) findEnd() {
	end := w.stream.CachedInfo().State.LastSeq
	switch {
	case len(w.sent) == 0:
		w.last = end
	case end < w.last:
		w.last = 0
	}
}

// recall finds out which of the messages that were not acknowledged are stored
// nevertheless: after a while the server does not know a message any more that is sent
// again.
func (w *publisher) recall() error {
	filter := w.link.host.o.Prefix.Events(w.link.host.o.Name)
	for at := w.last; len(w.sent) > 0; {
		msg, err := w.stream.GetMsg(w.link.ctx, at+1, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return fmt.Errorf("what the stream has already cannot be read: %w", err)
		}
		at = msg.Sequence
		w.isStored(msg.Header.Get(jetstream.MsgIDHeader), at)
	}
	w.settle()
	return nil
}

// isStored takes note of a message of the stream.
func (w *publisher) isStored(id string, at uint64) {
	for i := range w.sent {
		if w.id(w.sent[i]) == id {
			w.sent[i].stored, w.last = true, max(w.last, at)
		}
	}
}

func (w *publisher) id(s span) string { return messageID(w.host, s) }

// settle forgets what is stored, as far as all before it is.
func (w *publisher) settle() {
	n := 0
	for n < len(w.sent) && w.sent[n].stored {
		w.bytes -= w.sent[n].size
		w.published.Store(w.sent[n].to)
		n++
	}
	w.sent = append(w.sent[:0], w.sent[n:]...)
	w.base += uint64(n)
	w.next = max(0, w.next-n)
	w.oldest = time.Now()
}

func (w *publisher) work(well func()) error {
	late := time.NewTicker(ackTime / 4)
	defer late.Stop()
	for {
		if err := w.fill(); err != nil {
			return err
		}
		if w.end && len(w.sent) == 0 {
			w.finish()
			return nil
		}
		wait := w.wait
		if !w.full {
			wait = nil // the window is
		}
		select {
		case <-w.link.ctx.Done():
			return w.link.ctx.Err()
		case <-wait:
		case msg := <-w.acks:
			if err := w.acknowledged(msg); err != nil {
				return err
			}
			if w.careful {
				w.careful = false
				well()
			}
		case <-late.C:
			if len(w.sent) > 0 && time.Since(w.oldest) > ackTime {
				return fmt.Errorf("the server has not acknowledged an event for %s", ackTime)
			}
		}
	}
}

// fill sends as much as there is room for: first what must be sent again, then new events.
func (w *publisher) fill() (err error) {
	most := window
	if w.careful {
		most = 1
	}
	w.full, w.wait = false, nil
	for w.next < min(len(w.sent), most) {
		if !w.sent[w.next].stored {
			if err := w.again(w.sent[w.next]); err != nil {
				return err
			}
		}
		w.next++
	}
	for len(w.sent) < most && w.bytes < windowSize && !w.end {
		entries, batch := w.host.o.Events.Entries(&w.cursor, min(readAhead, most-len(w.sent)), w.entries)
		w.entries = entries
		if batch.To > 0 {
			err = w.put(missed(batch.From, batch.To))
		}
		for len(entries) > 0 && err == nil {
			m := w.host.first(entries)
			entries = entries[m.count:]
			err = w.put(m)
		}
		if err != nil {
			if len(entries) > 0 { // they have not been looked at
				w.cursor.Rewind(entries[0].Seq - 1)
			}
			return err
		}
		clear(w.entries)
		if w.end = batch.End; batch.Wait != nil {
			w.full, w.wait = true, batch.Wait
			break
		}
	}
	return nil
}

// put sends a new message.
func (w *publisher) put(m message) error {
	s := span{from: m.from, to: m.to, size: len(m.data)}
	w.sent = append(w.sent, s)
	w.bytes += s.size
	err := w.publish(m)
	w.next = len(w.sent)
	return err
}

// again sends a message that may not have arrived.
func (w *publisher) again(s span) error { return w.publish(w.host.read(s)) }

func (w *publisher) publish(m message) error {
	if len(w.sent) == 1 {
		w.oldest = time.Now()
	}
	if most := fleet.Room(w.link.js.Conn(), w.stream); len(m.data) > most {
		m = tooLarge(m, most)
	}
	number := w.base + uint64(w.next)
	out := nats.NewMsg(w.host.o.Prefix.Event(w.host.o.Name, m.session))
	out.Reply = w.inbox + strconv.FormatUint(number, 10)
	out.Header.Set(jetstream.MsgIDHeader, messageID(w.host, span{from: m.from, to: m.to}))
	out.Header.Set(jetstream.ExpectedStreamHeader, w.host.o.Prefix.EventStream())
	out.Data = m.data
	w.host.noticed(m)
	return w.link.nc.PublishMsg(out)
}

// acknowledged takes the server's answer to a message.
func (w *publisher) acknowledged(msg *nats.Msg) error {
	number, err := strconv.ParseUint(strings.TrimPrefix(msg.Subject, w.inbox), 10, 64)
	if err != nil || number < w.base || number >= w.base+uint64(len(w.sent)) {
		return nil
	}
	if msg.Header.Get("Status") == "503" {
		return errors.New("the server has no stream for the events: JetStream may be off")
	}
	var ack struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil || ack.Error == nil && ack.Seq == 0 {
		return fmt.Errorf("the server's acknowledgement cannot be read: %.80q", msg.Data)
	}
	if ack.Error != nil {
		return fmt.Errorf("the server refuses an event: %s", ack.Error.Description)
	}
	w.sent[number-w.base].stored = true
	w.last = max(w.last, ack.Seq)
	w.settle()
	return nil
}

// noticed has the presence told anew where an event says that more or less runs.
func (h *Host) noticed(m message) {
	switch m.typ {
	case protocol.AgentStart{}.Type(), protocol.AgentEnd{}.Type(), protocol.Status{}.Type():
		h.nudge()
	}
}

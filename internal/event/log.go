// Package event is the daemon's one numbered event log: every event is encoded
// once, kept for a while, and read by any number of cursors.
//
// Concurrency: a Log may be used by any number of goroutines. One lock guards
// it, is held for a moment, and nothing blocks under it: events are encoded
// before it is taken and searched after it is given back. A Cursor belongs to
// one reader. What a reader gets is never changed afterwards.
//
// It refuses to wait for readers, to keep a channel for each, and to lose
// silently: a reader that falls off the end of what is kept is told which
// numbers it missed.
package event

import (
	"sort"
	"sync"
	"time"

	"noused/internal/protocol"
)

const (
	// ChunkSize is how many bytes lie in one piece of memory, unless a single line is
	// longer, which then has one of its own.
	ChunkSize = 64 << 10
	// envelopeSize is more than an envelope takes around type and payload.
	envelopeSize = 160
)

// Log keeps the newest events. Make it with New.
type Log struct {
	epoch string
	max   int
	now   func() time.Time

	mu     sync.Mutex
	chunks []*chunk      // in order; what stands before first in chunks[0] is no longer kept
	first  uint64        // the oldest kept event
	next   uint64        // the event to come
	size   int           // bytes of the kept lines
	wait   chan struct{} // nil while nobody waits
	closed bool
}

// chunk is a run of lines that lie one after the other in memory. It only ever
// grows at its end, so a copy of it, taken under the lock, is a snapshot that
// can be read without.
type chunk struct {
	first uint64
	buf   []byte
	lines []line // line number first+i ends at lines[i].end
}

type line struct {
	end               int
	session, run, typ string
}

func (c *chunk) start(i int) int {
	if i == 0 {
		return 0
	}
	return c.lines[i-1].end
}

// text is the line at i, cut so that appending to it cannot reach the next.
func (c *chunk) text(i int) []byte {
	end := c.lines[i].end
	return c.buf[c.start(i):end:end]
}

// New returns an empty log whose first event will have number 1. It keeps the
// newest events of at most maxBytes of encoded lines, and always the last one.
// The memory it holds is that and up to two chunks of 64 KiB.
func New(epoch string, maxBytes int, now func() time.Time) *Log {
	return &Log{epoch: epoch, max: maxBytes, now: now, first: 1, next: 1}
}

// Epoch is the id within which the numbers count (wire-v1 §2).
func (l *Log) Epoch() string { return l.epoch }

// LastSeq is the number of the newest event, 0 before the first.
func (l *Log) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Kept says how many bytes of lines are kept, how many may be, and the numbers of
// the oldest event that is kept and of the newest there was.
func (l *Log) Kept() (size, most int, first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.max, l.first, l.next - 1
}

// encoded is an event on its way into the log.
type encoded struct {
	typ     string
	ref     protocol.Ref
	payload []byte
}

// encode never fails: an event that cannot be encoded becomes an error event
// that says so, because its number must not be a hole.
func encode(ev protocol.Event) encoded {
	payload, err := protocol.EncodePayload(ev)
	if err != nil {
		ev = protocol.ErrorEvent{
			Ref: ev.Where(), Code: protocol.InternalError,
			Message: "a " + ev.Type() + " event could not be encoded", Cause: err.Error(),
		}
		payload, _ = protocol.EncodePayload(ev) // strings alone: nothing in it can fail
	}
	return encoded{ev.Type(), ev.Where(), payload}
}

// Append publishes the events in order, numbered without a gap between them,
// and returns their lines, which must not be changed. It does not block;
// anyone who waits is woken, which costs a tenth of a microsecond for each.
func (l *Log) Append(events ...protocol.Event) [][]byte {
	if len(events) == 0 {
		return nil
	}
	var few [8]encoded
	ready := few[:0]
	for _, ev := range events {
		ready = append(ready, encode(ev))
	}
	lines := make([][]byte, len(events))
	l.mu.Lock()
	now := l.now()
	for i, e := range ready {
		lines[i] = l.add(e, now)
	}
	l.trim()
	wait := l.wait
	l.wait = nil
	l.mu.Unlock()
	if wait != nil {
		close(wait)
	}
	return lines
}

func (l *Log) add(e encoded, now time.Time) []byte {
	var c *chunk
	if n := len(l.chunks); n > 0 {
		c = l.chunks[n-1]
	}
	if need := envelopeSize + len(e.typ) + len(e.payload); c == nil || cap(c.buf)-len(c.buf) < need {
		c = &chunk{first: l.next, buf: make([]byte, 0, max(ChunkSize, need))}
		l.chunks = append(l.chunks, c)
	}
	start := len(c.buf)
	c.buf = protocol.AppendEvent(c.buf, e.typ, e.payload, now, l.next)
	c.lines = append(c.lines, line{len(c.buf), e.ref.SessionID, e.ref.RunID, e.typ})
	l.next++
	l.size += len(c.buf) - start
	return c.text(len(c.lines) - 1)
}

// trim forgets the oldest lines that are over the limit, never the last one.
func (l *Log) trim() {
	drop := 0
	for l.size > l.max && l.first+1 < l.next {
		c := l.chunks[drop]
		i := int(l.first - c.first)
		l.size -= c.lines[i].end - c.start(i)
		l.first++
		if i+1 == len(c.lines) {
			drop++
		}
	}
	if drop > 0 {
		n := copy(l.chunks, l.chunks[drop:])
		clear(l.chunks[n:])
		l.chunks = l.chunks[:n]
	}
}

// Run returns the kept lines of a run, in order, and whether they begin with
// its agent_start. They must not be changed.
func (l *Log) Run(runID string) (lines [][]byte, whole bool) {
	l.mu.Lock()
	first := l.first
	kept := make([]chunk, len(l.chunks))
	for i, c := range l.chunks {
		kept[i] = *c
	}
	l.mu.Unlock()
	start := protocol.AgentStart{}.Type()
	for _, c := range kept {
		for i := range c.lines {
			if c.lines[i].run != runID || c.first+uint64(i) < first {
				continue
			}
			whole = whole || c.lines[i].typ == start
			lines = append(lines, c.text(i))
		}
	}
	return lines, whole
}

// Close tells readers that nothing will follow. They still get what is kept.
// What is appended afterwards is numbered and kept as ever, but a reader that
// has seen the end does not come back for it.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	wait := l.wait
	l.wait = nil
	l.mu.Unlock()
	if wait != nil {
		close(wait)
	}
}

// chunkOf returns a snapshot of the chunk that holds event seq, which is kept.
// The log is locked.
func (l *Log) chunkOf(seq uint64) chunk {
	i := len(l.chunks) - 1 // where most readers are
	if l.chunks[i].first > seq {
		i = sort.Search(i, func(i int) bool { return l.chunks[i].first > seq }) - 1
	}
	return *l.chunks[i]
}

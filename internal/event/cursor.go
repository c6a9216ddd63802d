package event

import (
	"slices"
	"sort"
)

// Filter says which events a reader wants: of one session, of some types. Empty
// fields ask for all. The match is exact: the daemon's own events carry no
// session, so a reader of one session does not get them.
type Filter struct {
	SessionID string
	Types     []string
	Shared    bool // with SessionID also those of no session
}

func (f Filter) all() bool { return f.SessionID == "" && len(f.Types) == 0 }

func (f Filter) matches(l line) bool {
	return (f.SessionID == "" || f.SessionID == l.session || f.Shared && l.session == "") && (len(f.Types) == 0 || slices.Contains(f.Types, l.typ))
}

// Cursor is a reader's place in a log, and what it wants. Begin makes it.
type Cursor struct {
	after  uint64 // what has this number or less is behind it
	filter Filter
}

// Begin returns a cursor behind event number after, or with a nil after behind
// the newest; next is the number of the event it will look at first. With gap
// it is before the oldest kept event instead, since epoch is another one than
// the log's ("" is any), or events that should follow are no longer kept, or
// after has not been reached: a number from before a restart (wire-v1 §5).
func (l *Log) Begin(epoch string, after *uint64, f Filter) (c Cursor, next uint64, gap bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c = Cursor{after: l.next - 1, filter: f}
	switch {
	case epoch != "" && epoch != l.epoch, after != nil && (*after >= l.next || *after+1 < l.first):
		c.after, gap = l.first-1, true
	case after != nil:
		c.after = *after
	}
	return c, c.after + 1, gap
}

// After is the number of the event that the cursor is behind.
func (c *Cursor) After() uint64 { return c.after }

// Rewind sets the cursor back behind event seq, one that it has passed.
func (c *Cursor) Rewind(seq uint64) { c.after = seq }

// Batch is what a reader gets at a time: missed events, then lines; or neither
// and then Wait or End.
type Batch struct {
	// From and To are the first and the last number of what was missed before
	// Lines, whatever the filter; 0 where nothing was.
	From, To uint64
	// Lines are slices of one or many whole lines, to be written as they are and
	// not to be changed.
	Lines [][]byte
	// Wait is set when there is nothing to read yet. It is closed when there is, or
	// when nothing will follow. Readers that woke each other in turn would save the
	// one who publishes 0.1 ms with 1000 of them waiting, which nobody feels.
	Wait <-chan struct{}
	// End is set when nothing will ever follow.
	End bool
}

// Read takes the next events after the cursor and moves it behind them: at most
// limit bytes of lines, but at least one line. It does not block. Lines is built
// in the memory of into.
func (l *Log) Read(c *Cursor, limit int, into [][]byte) Batch {
	b := Batch{Lines: into[:0]}
	for limit = max(limit, 1); limit > 0; {
		part, ok := l.snapshot(c, &b)
		if !ok {
			break
		}
		limit = part.advance(c, limit, &b)
	}
	return b
}

// Entry is one event of a log. Line is not to be changed.
type Entry struct {
	Seq           uint64
	Type, Session string
	Line          []byte
}

// Entries is Read for a reader that wants to know what each event is, whatever its
// filter: it takes at most so many, in the memory of into, and Lines is empty.
func (l *Log) Entries(c *Cursor, most int, into []Entry) ([]Entry, Batch) {
	var b Batch
	into = into[:0]
	part, ok := l.snapshot(c, &b)
	if !ok {
		return into, b
	}
	for i := int(c.after + 1 - part.first); i < len(part.lines) && len(into) < max(most, 1); i++ {
		c.after++
		into = append(into, Entry{c.after, part.lines[i].typ, part.lines[i].session, part.text(i)})
	}
	return into, b
}

// snapshot returns a snapshot of the chunk that the cursor is in. Otherwise it says
// in an empty batch why there is none.
func (l *Log) snapshot(c *Cursor, b *Batch) (chunk, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.after+1 < l.first {
		if len(b.Lines) > 0 || b.To > 0 { // for the next batch: what was missed comes first
			return chunk{}, false
		}
		b.From, b.To = c.after+1, l.first-1
		c.after = b.To
	}
	switch {
	case c.after+1 < l.next:
		return l.chunkOf(c.after + 1), true
	case len(b.Lines) > 0 || b.To > 0:
	case l.closed:
		b.End = true
	default:
		if l.wait == nil {
			l.wait = make(chan struct{})
		}
		b.Wait = l.wait
	}
	return chunk{}, false
}

// advance moves the cursor through the chunk and returns how many bytes of the
// limit are left, 0 where the next line does not fit any more.
func (c *chunk) advance(cur *Cursor, limit int, b *Batch) int {
	i := int(cur.after + 1 - c.first)
	if cur.filter.all() {
		return c.takeAll(cur, i, limit, b)
	}
	from, end := 0, -1 // the last run of neighbours in the batch
	for ; i < len(c.lines); i++ {
		if cur.filter.matches(c.lines[i]) {
			start := c.start(i)
			size := c.lines[i].end - start
			if size > limit && len(b.Lines) > 0 {
				return 0
			}
			limit -= size
			if start != end {
				b.Lines, from = append(b.Lines, nil), start
			}
			end = c.lines[i].end
			b.Lines[len(b.Lines)-1] = c.buf[from:end:end]
		}
		cur.after++
	}
	return limit
}

// takeAll is take for a reader that wants everything: one slice, found without
// a look at each line.
func (c *chunk) takeAll(cur *Cursor, i, limit int, b *Batch) int {
	start, rest := c.start(i), c.lines[i:]
	n := sort.Search(len(rest), func(k int) bool { return rest[k].end-start > limit })
	if n == 0 && len(b.Lines) > 0 {
		return 0
	}
	n = max(n, 1)
	end := rest[n-1].end
	b.Lines = append(b.Lines, c.buf[start:end:end])
	cur.after += uint64(n)
	if n < len(rest) {
		return 0
	}
	return limit - (end - start)
}

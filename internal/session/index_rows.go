package session

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// errIndex says that an index is not used. Nobody is told: the journal says it all.
var errIndex = errors.New("no index of the journal")

// What a row of an index says of an entry, in one number.
const (
	rowRun     = 1 << iota // it is no entry, but how a run ended
	rowImages              // the rest are an Entry's
	rowBlocks              //
	rowCalls               //
	rowText                //
	rowSays                //
	rowBroken              //
	rowOpens               //
	rowCompact             // it is a compaction
	rowSameRun             // its run is that of the row before it
	rowBelow               // its parent is the row before it
	rowTells               // it tells the end of a child
	rowRole                // the first of two bits
)

// rowRoles are an entry's; a compaction has none.
var rowRoles = [...]model.Role{"", model.User, model.Assistant, model.Tool}

// rowWriter makes the rows of one block of an index.
type rowWriter struct {
	out    []byte
	before *Entry // in the block
	end    int64  // of its line in the journal
}

func (w *rowWriter) num(n uint64)  { w.out = binary.AppendUvarint(w.out, n) }
func (w *rowWriter) int(n int64)   { w.out = binary.AppendVarint(w.out, n) }
func (w *rowWriter) text(s string) { w.out = append(binary.AppendUvarint(w.out, uint64(len(s))), s...) }

// entry adds an entry. What is not in the block is named by its id, so that a block can
// be read without the others.
func (w *rowWriter) entry(e *Entry) {
	flags := uint64(0)
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{e.images, rowImages},
		{e.blocks, rowBlocks},
		{e.calls, rowCalls},
		{e.text, rowText},
		{e.says, rowSays},
		{e.broken, rowBroken},
		{e.opens, rowOpens},
		{e.IsCompaction(), rowCompact},
		{w.before != nil && w.before.RunID == e.RunID, rowSameRun},
		{w.before != nil && w.before == e.parent, rowBelow},
		{e.child != nil, rowTells},
	} {
		if f.set {
			flags |= f.bit
		}
	}
	for i, role := range rowRoles {
		if role == e.Role {
			flags |= uint64(i) * rowRole
		}
	}
	w.num(flags)
	w.text(e.ID)
	if flags&rowSameRun == 0 {
		w.text(e.RunID)
	}
	if flags&rowBelow == 0 {
		w.text(e.Parent())
	}
	if e.IsCompaction() {
		w.text(e.kept.ID)
	}
	if e.child != nil {
		w.text(*e.child)
	}
	w.text(e.Snippet)
	w.num(uint64(e.at - w.end))
	w.num(uint64(e.size))
	w.num(uint64(e.tokens))
	w.num(uint64(e.bytes))
	w.int(e.counted)
	w.before, w.end = e, e.at+int64(e.size)
}

// run adds how a run ended.
func (w *rowWriter) run(r *Ended) {
	w.num(rowRun)
	w.text(r.RunID)
	w.text(string(r.StopReason))
	w.text(string(r.Code))
	w.text(r.Error)
	unread := uint64(0)
	if r.Unread {
		unread = 1
	}
	w.num(unread)
	w.num(uint64(r.after))
	w.int(int64(r.Turns))
	w.int(int64(r.Took))
	w.usage(r.Usage)
	w.int(int64(r.Children))
	w.int(int64(r.Counted))
	if r.Spent == nil {
		w.num(0)
		return
	}
	w.num(1)
	w.usage(*r.Spent)
}

func (w *rowWriter) usage(u model.Usage) {
	for _, n := range []int64{
		u.InputTokens, u.OutputTokens, u.CachedTokens, u.CacheWriteTokens, u.ReasoningTokens, u.Cost,
	} {
		w.int(n)
	}
}

// rowReader reads the rows of a block. Its texts are parts of the block.
type rowReader struct {
	rest   string
	bad    bool   // what was read is not as rowWriter writes it
	before *Entry // in the block
	end    int64
}

func (r *rowReader) num() uint64 {
	n := uint64(0)
	for i := 0; i < len(r.rest) && i < binary.MaxVarintLen64; i++ {
		b := r.rest[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.rest = r.rest[i+1:]
			return n
		}
	}
	r.rest, r.bad = "", true
	return 0
}

// upTo is a number that is no greater than most.
func (r *rowReader) upTo(most int64) int64 {
	n := r.num()
	if n > uint64(most) {
		r.bad = true
		return 0
	}
	return int64(n)
}

func (r *rowReader) int() int64 {
	n := r.num()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *rowReader) text() (s string) {
	n := r.num()
	if n > uint64(len(r.rest)) {
		r.rest, r.bad = "", true
		return ""
	}
	s, r.rest = r.rest[:n], r.rest[n:]
	return s
}

// Bounds of what a row says.
const (
	maxTokens = 1 << 40
	maxBytes  = math.MaxInt32
)

// entry reads an entry, whose flags have been read, into e. find returns an entry that
// is before it, nil where there is none.
func (r *rowReader) entry(flags uint64, e *Entry, find func(id string) *Entry) {
	e.ID = r.text()
	if flags&(rowSameRun|rowBelow) != 0 && r.before == nil {
		r.bad = true
		return
	}
	if flags&rowSameRun != 0 {
		e.RunID = r.before.RunID
	} else {
		e.RunID = r.text()
	}
	if flags&rowBelow != 0 {
		e.parent = r.before
	} else if id := r.text(); id != "" {
		e.parent = find(id)
		r.bad = r.bad || e.parent == nil
	}
	if flags&rowCompact != 0 {
		e.kept = find(r.text())
		r.bad = r.bad || e.kept == nil
	}
	if flags&rowTells != 0 {
		e.child = new(r.text())
	}
	e.Role = rowRoles[flags/rowRole%uint64(len(rowRoles))]
	e.images, e.blocks, e.calls, e.text = flags&rowImages != 0, flags&rowBlocks != 0, flags&rowCalls != 0,
		flags&rowText != 0
	e.says, e.broken, e.opens = flags&rowSays != 0, flags&rowBroken != 0, flags&rowOpens != 0
	e.Snippet = r.text()
	e.at = r.end + r.upTo(math.MaxInt64/2)
	e.size = int(r.upTo(maxRecord))
	e.tokens, e.bytes, e.counted = r.upTo(maxTokens), int(r.upTo(maxBytes)), r.int()
	r.bad = r.bad || e.ID == "" || e.size < 2 || (e.Role == "") != (e.kept != nil) || e.at > math.MaxInt64/4
	r.before, r.end = e, e.at+int64(e.size)
}

// run reads how a run ended, behind its flags, into e.
func (r *rowReader) run(e *Ended) {
	e.RunID, e.StopReason = r.text(), protocol.StopReason(r.text())
	e.Code, e.Error = protocol.Code(r.text()), r.text()
	e.Unread = r.upTo(1) == 1
	e.after = int(r.upTo(maxIndexed))
	e.Turns, e.Took = int(r.int()), time.Duration(r.int())
	e.Usage = r.usage()
	e.Children, e.Counted = int(r.int()), int(r.int())
	if r.upTo(1) == 1 {
		spent := r.usage()
		e.Spent = &spent
	}
}

func (r *rowReader) usage() (u model.Usage) {
	for _, n := range []*int64{
		&u.InputTokens, &u.OutputTokens, &u.CachedTokens, &u.CacheWriteTokens, &u.ReasoningTokens, &u.Cost,
	} {
		*n = r.int()
	}
	return u
}

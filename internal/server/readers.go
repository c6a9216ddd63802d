package server

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"noused/internal/event"
	"noused/internal/protocol"
)

const (
	maxSlowest = 8
	// mostKept is how much is kept of lines that readers have stopped in, in bytes: two as
	// long as they may be by default. A single longer one is kept, too.
	mostKept = 32 << 20
	// longLine is the shortest that readers share with the log; it lies in memory of its own
	// there. Of a shorter one each has a copy.
	longLine = event.ChunkSize
)

// Readers knows the connections to the event socket. The zero value is ready, and
// may be used by any number of goroutines.
type Readers struct {
	mu   sync.Mutex
	all  map[*eventConn]struct{}
	in   map[*eventConn]part // that have stopped in a line
	kept map[part]int        // bytes
}

// part is what is kept of line number seq: all of it for all readers, or the rest for
// one.
type part struct {
	seq uint64
	of  *eventConn
}

// add has a connection known until the function that it returns is called.
func (r *Readers) add(s *eventConn) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*eventConn]struct{}{}
	}
	r.all[s] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, s)
	}
}

// keep returns the rest of a line that a reader has stopped in, which stays as it is
// until done. Those who have taken nothing for longest are let go where too much is kept,
// and never the one that asks.
func (r *Readers) keep(s *eventConn, seq uint64, line, rest []byte) (_ []byte, done func()) {
	p, size := part{seq, nil}, len(line)
	if size < longLine {
		p.of, size = s, len(rest)
		rest = bytes.Clone(rest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in == nil {
		r.in, r.kept = map[*eventConn]part{}, map[part]int{}
	}
	r.in[s], r.kept[p] = p, size
	for r.sum() > mostKept && r.letGo(p) {
	}
	return rest, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.leave(s)
	}
}

// leave forgets where a reader has stopped. r is locked.
func (r *Readers) leave(s *eventConn) {
	p := r.in[s]
	delete(r.in, s)
	for _, other := range r.in {
		if other == p {
			return
		}
	}
	delete(r.kept, p)
}

func (r *Readers) sum() (n int) {
	for _, size := range r.kept {
		n += size
	}
	return n
}

// letGo hangs up on the readers of a part other than that one, from which nobody has taken
// anything for longest. False: there is none. r is locked.
func (r *Readers) letGo(but part) bool {
	took := map[part]int64{}
	for s, p := range r.in {
		took[p] = max(took[p], s.took.Load())
	}
	delete(took, but)
	if len(took) == 0 {
		return false
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(took)), func(a, b part) int { return cmp.Compare(took[a], took[b]) })
	for s, p := range r.in {
		if p == oldest {
			r.leave(s)
			s.zlog.Warn("connection closed: it stands still in a long event, and others need the memory", zap.Int("pid", s.pid),
				zap.Uint64("seq", p.seq))
			s.abort()
		}
	}
	return true
}

// Lag says how far behind event number last the readers are. It asks the kernel for
// the names of a few and does not block.
func (r *Readers) Lag(last uint64) *protocol.Readers {
	out := protocol.Readers{Slowest: []protocol.Reader{}}
	r.mu.Lock()
	out.Count = len(r.all)
	for s := range r.all {
		if at := s.at.Load(); at < last {
			out.Slowest = append(out.Slowest, protocol.Reader{PID: s.pid, Lag: last - at})
		}
	}
	r.mu.Unlock()
	out.Behind = len(out.Slowest)
	slices.SortFunc(out.Slowest, func(a, b protocol.Reader) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(a.PID, b.PID))
	})
	out.Slowest = out.Slowest[:min(len(out.Slowest), maxSlowest)]
	for i := range out.Slowest {
		out.Slowest[i].Program = peer{pid: out.Slowest[i].PID}.comm()
	}
	return &out
}

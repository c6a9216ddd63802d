package server

import (
	"cmp"
	"slices"
	"sync"

	"noused/internal/protocol"
)

const maxSlowest = 8

// Readers knows the connections to the event socket. The zero value is ready, and
// may be used by any number of goroutines.
type Readers struct {
	mu  sync.Mutex
	all map[*eventConn]struct{}
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

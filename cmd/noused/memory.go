package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// softLimit is the memory, in bytes, that the collector keeps a daemon within
	// whose own data is small. It may else take as much again as is in use.
	softLimit = 56 << 20
	// smallHeap is that much data: beyond it, staying within softLimit would take
	// the collector too much time.
	smallHeap = 50 << 20
)

// boundMemory has the collector look at its limit after each of its rounds. A
// limit that the user has set (GOMEMLIMIT) stays.
func boundMemory() {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		afterRound(new(round))
	}
}

// round is dead when a round of the collector is over.
type round struct{ live [1]metrics.Sample }

func afterRound(r *round) {
	r.live[0].Name = "/gc/heap/live:bytes"
	metrics.Read(r.live[:])
	debug.SetMemoryLimit(limitFor(int64(r.live[0].Value.Uint64())))
	runtime.SetFinalizer(r, afterRound)
}

// limitFor is the limit for a daemon with that many bytes of data.
func limitFor(live int64) int64 {
	if live < smallHeap {
		return softLimit
	}
	return live + live/2
}

// Package budget counts the bytes that the daemon holds for others, so that all
// of them together are bounded: lines that clients have not ended, replies that
// they do not read, events kept for prompts that wait.
//
// Concurrency: a Budget may be used by any number of goroutines. It never
// blocks.
//
// It refuses to hold memory itself, and to know what the bytes are for.
package budget

import (
	"math"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// restTime is how long memory of a peak may be used again before it is given
	// back to the system.
	restTime = time.Second
	// peakShare of the limit, in 1/n, is a peak.
	peakShare = 4
)

// Budget is a number of bytes to be taken and given back. A nil *Budget has no
// limit. Make it with New.
type Budget struct {
	limit  int64
	used   atomic.Int64
	peak   atomic.Bool // more than 1/peakShare has been used, or asked for
	ending atomic.Bool // endPeak will be called
	free   func()      // gives free memory back to the system
}

// New returns a budget of limit bytes. Once a peak is over, the memory that is
// free is given back to the operating system, at most once a second.
func New(limit int) *Budget {
	return &Budget{limit: int64(limit), free: debug.FreeOSMemory}
}

// Take takes n bytes. False: that many are not left, and none is taken.
func (b *Budget) Take(n int) bool {
	if b == nil || n == 0 {
		return true
	}
	used := b.used.Add(int64(n))
	if used > b.limit/peakShare && !b.peak.Load() {
		b.peak.Store(true)
	}
	if used > b.limit {
		b.Give(n)
		return false
	}
	return true
}

// Spare is what is left of the first third of the budget: what can be done without
// leaves the rest to what cannot.
func (b *Budget) Spare() int {
	if b == nil {
		return math.MaxInt
	}
	return max(0, int(b.limit/3)-b.Used())
}

// left is what is left of the budget.
func (b *Budget) left() int { return max(0, int(b.limit)-b.Used()) }

// Clip is n, or nearly all of the budget where that is less: what is so long has to be the
// only one, and is not to be refused for ever, as there is always somebody who has a
// little.
func (b *Budget) Clip(n int) int {
	if b == nil {
		return n
	}
	return min(n, int(b.limit-b.limit/8))
}

// Give gives n bytes back.
func (b *Budget) Give(n int) {
	if b == nil || n == 0 {
		return
	}
	if b.used.Add(-int64(n)) <= b.limit/peakShare/2 && b.peak.Load() && b.ending.CompareAndSwap(false, true) {
		time.AfterFunc(restTime, b.endPeak)
	}
}

// Used is how many bytes are taken.
func (b *Budget) Used() int { return int(b.used.Load()) }

// endPeak ends a peak. One that is not over yet comes here again.
func (b *Budget) endPeak() {
	b.ending.Store(false)
	if b.Used() <= int(b.limit/peakShare/2) && b.peak.Swap(false) {
		b.free()
	}
}

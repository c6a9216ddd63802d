package worker

import "time"

// Backoff says how long to leave something alone that keeps failing: not at
// all for the first Free failures in a row, then Base, twice that, and so on
// up to Max. It is a plain value; the caller's lock guards it.
type Backoff struct {
	Free int
	Base time.Duration
	Max  time.Duration

	failures int
	until    time.Time
}

// Fail counts a failure.
func (b *Backoff) Fail(now time.Time) {
	b.failures++
	n := b.failures - b.Free
	if n <= 0 {
		return
	}
	wait := b.Base
	for range n - 1 {
		if wait *= 2; wait >= b.Max {
			wait = b.Max
			break
		}
	}
	b.until = now.Add(wait)
}

// Succeed forgets all failures.
func (b *Backoff) Succeed() { b.failures, b.until = 0, time.Time{} }

// Wait returns how much longer to leave it alone, zero if not at all.
func (b *Backoff) Wait(now time.Time) time.Duration { return max(0, b.until.Sub(now)) }

// Failures returns how many failures came in a row.
func (b *Backoff) Failures() int { return b.failures }

// Package queue decides which of a session's waiting texts go next: steers
// before follow-ups, one at a time or all of them.
//
// Concurrency: pure functions over the caller's slice; no state of its own, so
// there is one truth about what waits, the session's.
//
// It refuses to store, to drop and to reorder: within a kind the order of
// acceptance is the order of delivery.
package queue

import "noused/internal/protocol"

// Next returns what the next turn takes from pending, oldest first: of the
// steers if one waits, else of the follow-ups, as many as the kind's mode
// says. It returns nil when nothing waits.
func Next[T any](pending []T, kindOf func(T) protocol.Kind, steering, followUp protocol.Mode) (protocol.Kind, []T) {
	if batch := nextBatch(pending, kindOf, protocol.KindSteer, steering); batch != nil {
		return protocol.KindSteer, batch
	}
	return protocol.KindFollowUp, nextBatch(pending, kindOf, protocol.KindFollowUp, followUp)
}

// Count returns how many of pending are of a kind.
func Count[T any](pending []T, kindOf func(T) protocol.Kind, kind protocol.Kind) int {
	n := 0
	for _, item := range pending {
		if kindOf(item) == kind {
			n++
		}
	}
	return n
}

func nextBatch[T any](pending []T, kindOf func(T) protocol.Kind, kind protocol.Kind, mode protocol.Mode) []T {
	var batch []T
	for _, item := range pending {
		if kindOf(item) != kind {
			continue
		}
		batch = append(batch, item)
		if mode != protocol.ModeAll {
			break
		}
	}
	return batch
}

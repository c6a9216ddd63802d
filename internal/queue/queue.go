// Package queue decides which of a session's waiting texts go next: steers
// before follow-ups, one at a time or all of them.
//
// Concurrency: pure functions over the caller's slice; no state of its own, so
// there is one truth about what waits, the session's.
//
// It refuses to store, to drop and to reorder: within a kind the order of
// acceptance is the order of delivery.
package queue

// Kind says how a text is to reach the run.
type Kind string

// The kinds of a text. A Prompt starts a run and never waits in a queue.
const (
	Prompt   Kind = "prompt"
	Steer    Kind = "steer"
	FollowUp Kind = "follow_up"
)

// Mode says how many waiting texts of a kind one turn takes.
type Mode string

// OneAtATime takes the oldest, All takes the whole queue.
const (
	OneAtATime Mode = "one-at-a-time"
	All        Mode = "all"
)

// Next returns what the next turn takes from pending, oldest first: of the
// steers if one waits, else of the follow-ups, as many as the kind's mode
// says. It returns nil when nothing waits.
func Next[T any](pending []T, kindOf func(T) Kind, steering, followUp Mode) (Kind, []T) {
	if batch := take(pending, kindOf, Steer, steering); batch != nil {
		return Steer, batch
	}
	return FollowUp, take(pending, kindOf, FollowUp, followUp)
}

// Count returns how many of pending are of a kind.
func Count[T any](pending []T, kindOf func(T) Kind, kind Kind) int {
	n := 0
	for _, item := range pending {
		if kindOf(item) == kind {
			n++
		}
	}
	return n
}

func take[T any](pending []T, kindOf func(T) Kind, kind Kind, mode Mode) []T {
	var batch []T
	for _, item := range pending {
		if kindOf(item) != kind {
			continue
		}
		batch = append(batch, item)
		if mode != All {
			break
		}
	}
	return batch
}

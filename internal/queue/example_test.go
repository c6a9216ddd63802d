package queue_test

import (
	"fmt"

	"noused/internal/queue"
)

// A steer goes before a follow-up that was accepted earlier.
func ExampleNext() {
	type text struct {
		kind  queue.Kind
		words string
	}
	pending := []text{
		{queue.FollowUp, "then run the tests"},
		{queue.Steer, "no, the other file"},
		{queue.Steer, "and shorter, please"},
	}
	kind, next := queue.Next(pending, func(t text) queue.Kind { return t.kind }, queue.OneAtATime, queue.All)
	fmt.Println(kind, next[0].words)
	kind, next = queue.Next(pending, func(t text) queue.Kind { return t.kind }, queue.All, queue.All)
	fmt.Println(kind, len(next))
	// Output:
	// steer no, the other file
	// steer 2
}

package queue_test

import (
	"fmt"

	"noused/internal/protocol"
	"noused/internal/queue"
)

// A steer goes before a follow-up that was accepted earlier.
func ExampleNext() {
	type text struct {
		kind  protocol.Kind
		words string
	}
	pending := []text{
		{protocol.KindFollowUp, "then run the tests"},
		{protocol.KindSteer, "no, the other file"},
		{protocol.KindSteer, "and shorter, please"},
	}
	kind, next := queue.Next(pending, func(t text) protocol.Kind {
		return t.kind
	}, protocol.ModeOneAtATime, protocol.ModeAll)
	fmt.Println(kind, next[0].words)
	kind, next = queue.Next(pending, func(t text) protocol.Kind { return t.kind }, protocol.ModeAll, protocol.ModeAll)
	fmt.Println(kind, len(next))
	// Output:
	// steer no, the other file
	// steer 2
}

package host

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
)

// whole fails unless the envelopes stand for the events 1 to last, in order, each once.
func whole(t *testing.T, all []protocol.EventEnvelope, last uint64) {
	t.Helper()
	next := uint64(1)
	for _, e := range all {
		from := e.FromSeq
		if from == 0 {
			from = e.Seq
		}
		if from != next || e.Seq < from {
			t.Fatalf("after event %d comes one of %d to %d", next-1, from, e.Seq)
		}
		next = e.Seq + 1
	}
	if next != last+1 {
		t.Fatalf("the stream ends with event %d, the log with %d", next-1, last)
	}
}

// text is what the deltas of a stream say together.
func text(t *testing.T, all []protocol.EventEnvelope) string {
	t.Helper()
	var out strings.Builder
	for _, e := range all {
		var p protocol.MessageUpdate
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		out.WriteString(p.Delta)
	}
	return out.String()
}

// What the log says the stream says, over restarts of the server and lost connections.
func TestEventsAreInTheStream(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	var want strings.Builder
	say := func(n int) (last uint64) {
		for range n {
			word := "word "
			want.WriteString(word)
			last = d.say("ses-1", word)
		}
		return last
	}
	d.hasPublished(say(500))
	server.Down()
	last := say(500)
	server.Up()
	d.hasPublished(last)
	for range 5 {
		last = say(300)
		server.Cut()
	}
	d.hasPublished(last)
	all := stored(t, server.URL())
	whole(t, all, last)
	if got := text(t, all); got != want.String() {
		t.Errorf("the stream says %d bytes, the log %d", len(got), want.Len())
	}
}

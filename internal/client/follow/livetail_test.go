package follow

import (
	"fmt"
	"testing"

	"noused/internal/protocol"
)

func update(session string, n int) incoming {
	return incoming{
		Event: Event{Seq: uint64(n), Event: protocol.ToolUpdate{Ref: protocol.Ref{SessionID: session}, Delta: fmt.Sprint(n)}},
		size:  100 << 10,
	}
}

// What is kept of what goes on is bounded for one session, of which the start of
// the tool call and the newest output stay, and for all of them.
func TestDoingIsBounded(t *testing.T) {
	var d liveTail
	d.see(incoming{Event: Event{Event: protocol.ToolStart{Ref: protocol.Ref{SessionID: "s"}}}, size: 10})
	for i := range 100 {
		d.see(update("s", i))
	}
	all := d.of("s")
	if _, ok := all[0].Event.Event.(protocol.ToolStart); !ok || all[len(all)-1].Seq != 99 || d.size > maxDeed {
		t.Errorf("got %d events of %d bytes, from %T to %d", len(all), d.size, all[0].Event.Event, all[len(all)-1].Seq)
	}
	for i := range 1000 {
		d.see(update(fmt.Sprint("s", i), 0))
		d.see(update(fmt.Sprint("s", i), 1))
	}
	size := 0
	for _, what := range d.tails {
		for _, next := range what.parts {
			size += next.size
		}
	}
	if size != d.size || size > maxDoing {
		t.Errorf("got %d bytes, counted as %d, want at most %d", size, d.size, maxDoing)
	}
	if len(d.of("s")) > 0 || len(d.of("s999")) != 2 {
		t.Error("want the session with most forgotten, and the newest kept")
	}
	for id := range d.tails {
		d.see(incoming{Event: Event{Event: protocol.AgentEnd{Ref: protocol.Ref{SessionID: id}}}})
	}
	if d.size != 0 || len(d.tails) != 0 {
		t.Errorf("got %d bytes of %d sessions after all runs have ended", d.size, len(d.tails))
	}
}

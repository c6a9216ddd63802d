package alert

import (
	"fmt"
	"testing"
	"time"

	"noused/internal/protocol"
)

func start() protocol.Event { return protocol.AgentStart{} }
func done() protocol.Event  { return protocol.AgentEnd{StopReason: protocol.StopCompleted} }

// A short run is no alert; a long one is, and one that began before anybody watched.
func TestHowLongRunsTook(t *testing.T) {
	var w Watch
	at, wish := time.Unix(1e9, 0), Wish{On: Kinds, After: 10 * time.Second}
	w.See("short", start(), at, wish)
	w.See("long", start(), at, wish)
	if a, ok := w.See("short", done(), at.Add(9*time.Second), wish); ok {
		t.Errorf("a short run: got %+v", a)
	}
	want := Alert{Kind: RunEnd, Message: "done", Took: time.Minute}
	if a, ok := w.See("long", done(), at.Add(time.Minute), wish); !ok || a != want {
		t.Errorf("a long run: got %+v, %t; want %+v", a, ok, want)
	}
	want.Took = 0
	if a, ok := w.See("earlier", done(), at, wish); !ok || a != want {
		t.Errorf("a run from before: got %+v, %t; want %+v", a, ok, want)
	}
	if len(w.began) != 0 {
		t.Errorf("%d runs are remembered that have ended", len(w.began))
	}
	if a, ok := w.See("long", done(), at, Wish{On: []string{RunError}}); ok {
		t.Errorf("a kind that was not wished for: got %+v", a)
	}
}

// Runs whose ends are never seen do not fill the memory.
func TestRunsAreForgotten(t *testing.T) {
	var w Watch
	for i := range 3 * maxRuns {
		w.See(fmt.Sprint(i), start(), time.Unix(1e9, 0), Wish{})
	}
	if len(w.began) > maxRuns {
		t.Errorf("got %d runs, want at most %d", len(w.began), maxRuns)
	}
}

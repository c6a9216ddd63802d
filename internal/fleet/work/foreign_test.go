package work

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/job"
)

// online is a worker's part over a connection to a server.
func online(t *testing.T) (*serving, jetstream.JetStream) {
	t.Helper()
	js := fleettest.JetStream(t, fleettest.Dial(t, fleettest.Start(t, "").Direct()))
	q, err := job.Open(t.Context(), js, fleet.DefaultPrefix, job.DefaultTimeout)
	must(t, err)
	w, _ := worker(t)
	s := serve(w)
	s.q = q
	return s, js
}

// Claims are renewed on time however many jobs wait: between two turns a daemon asks the
// server for a few of them at most, and goes on where it was.
func TestABacklogIsReadInTurns(t *testing.T) {
	s, _ := online(t)
	for i := range maxTurn { // that fit nobody here, then those of others
		j := job.Job{ID: fmt.Sprint("gpu-", i), Labels: map[string]string{"gpu": "h100"}, Prompt: "x"}
		_, err := s.q.Submit(t.Context(), j)
		must(t, err)
	}
	for i := range maxTurn {
		j := job.Job{ID: fmt.Sprint("other-", i), Prompt: "x"}
		_, err := s.q.Submit(t.Context(), j)
		must(t, err)
		_, _, err = s.q.Take(t.Context(), j.ID, job.Claim{Host: "other"})
		must(t, err)
	}
	s.due = true
	for turn, want := range []struct {
		after  uint64
		places int
	}{{maxTurn, 0}, {2 * maxTurn, maxTurn}} {
		must(t, s.fill(t.Context()))
		if s.after != want.after || len(s.order) != want.places || s.next() != 0 {
			t.Fatalf("after turn %d the queue is read up to %d, %d places, the next in %s; want %+v, and the next at once", turn,
				s.after, len(s.order), s.next(), want)
		}
	}
	must(t, s.fill(t.Context()))
	if s.due || s.next() == 0 {
		t.Errorf("all is read: got due %t, the next in %s; want neither", s.due, s.next())
	}
}

// No claim that somebody has written with a daemon's name has it leave the queue.
func TestForeignClaimsEndNothing(t *testing.T) {
	s, js := online(t)
	s.w.o.Slots = 0
	_, err := s.q.Submit(t.Context(), job.Job{ID: "one", Prompt: "x"})
	must(t, err)
	mine := map[string]any{"host": s.w.o.Name, "instance": s.w.o.Instance}
	claim := func(key string, more map[string]any) {
		t.Helper()
		for name, value := range mine {
			more[name] = value
		}
		text, err := json.Marshal(more)
		must(t, err)
		_, err = js.Publish(t.Context(), fleet.EntrySubject(fleet.DefaultPrefix.ClaimBucket(), key), text)
		must(t, err)
	}
	long := strings.Repeat("x", 4096-len(`{"host":"box","instance":"in-1","run_id":""}`))
	claim("bad!key", map[string]any{})
	claim("a.b", map[string]any{})
	claim(strings.Repeat("k", 200), map[string]any{})
	claim("one", map[string]any{"run_id": long}) // with the time that it lacks it is too long
	claim("two", map[string]any{"run_id": strings.Repeat("\x01", 128), "session_id": strings.Repeat("\x01", 128)})
	claim("three", map[string]any{"at": time.Time{}})
	watcher, err := s.q.Watch(t.Context())
	must(t, err)
	defer func() { must(t, watcher.Stop()) }()
	for seen := 0; ; seen++ {
		entry := <-watcher.Updates()
		if entry == nil {
			if seen != 6 {
				t.Errorf("%d claims were seen, want 6", seen)
			}
			return
		}
		if err := s.changed(t.Context(), entry); err != nil {
			t.Errorf("the claim of %.20q: %v", entry.Key(), err)
		}
	}
}

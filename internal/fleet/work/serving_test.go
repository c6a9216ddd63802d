package work

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/fleet/job"
)

func serve(w *Worker) *serving {
	return &serving{
		w: w, q: &job.Queue{Timeout: job.DefaultTimeout}, places: map[string]*place{},
		hints: make(chan string, 4),
	}
}

// Jobs that could be taken are kept in mind once each, the oldest first, whatever comes and
// goes, and never more than there is room for.
func TestPlacesAreInOrder(t *testing.T) {
	w, _ := worker(t)
	s := serve(w)
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		seq := random.Uint64N(3 * maxPlaces)
		if id := fmt.Sprint("job-", seq); random.IntN(4) == 0 {
			s.forget(id)
		} else {
			s.remember(job.Queued{ID: id, Seq: seq})
		}
	}
	if len(s.order) != len(s.places) || len(s.order) > maxPlaces || len(s.order) == 0 {
		t.Fatalf("%d are in order, and %d are known; want the same, and at most %d", len(s.order), len(s.places), maxPlaces)
	}
	if !slices.IsSortedFunc(s.order, func(x, y *place) int { return int(x.seq) - int(y.seq) }) {
		t.Error("they are not the oldest first")
	}
	for _, p := range s.order {
		if s.places[p.id] != p {
			t.Fatalf("%s is in order, and not known", p.id)
		}
	}
}

// Of many jobs that are heard of at once the last is not lost, and nobody waits.
func TestHintsDoNotBlock(t *testing.T) {
	w, _ := worker(t)
	s := serve(w)
	for i := range 100 {
		s.hint(fmt.Sprint("job-", i))
	}
	last := ""
	for len(s.hints) > 0 {
		last = <-s.hints
	}
	if last != "job-99" {
		t.Errorf("the last one is %q, want job-99", last)
	}
}

// The queue is looked at when the claim of another may have run out, soon where a job was
// heard of, and else now and then.
func TestWhenTheQueueIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{}
		for name, c := range map[string]struct {
			set  func(s *serving)
			want time.Duration
		}{
			"nothing":              {func(*serving) {}, lookEvery},
			"another's":            {func(s *serving) { s.anothers(3 * time.Second) }, 3 * time.Second},
			"two are another's":    {func(s *serving) { s.anothers(3*time.Second, 2*time.Second, time.Hour) }, 2 * time.Second},
			"it has run out":       {func(s *serving) { s.anothers(-time.Hour) }, time.Millisecond},
			"free":                 {func(s *serving) { s.remember(job.Queued{ID: "j", Seq: 1}) }, lookEvery},
			"heard now":            {func(s *serving) { s.awaited, s.since = "j", time.Now() }, firstLook},
			"heard and not found":  {func(s *serving) { s.awaited, s.since = "j", time.Now().Add(-time.Second) }, time.Second},
			"heard and never seen": {func(s *serving) { s.awaited, s.since = "j", time.Now().Add(-lastLook) }, lookEvery},
		} {
			s := serve(w)
			if c.set(s); s.next() != c.want {
				t.Errorf("%s: in %s, want %s", name, s.next(), c.want)
			}
		}
	})
}

// anothers are claims that run out in such a time.
func (s *serving) anothers(in ...time.Duration) {
	for i, d := range in {
		m := job.Queued{ID: fmt.Sprint("job-", i), Seq: uint64(i)}
		s.remember(m)
		s.places[m.ID].again = time.Now().Add(d)
	}
}

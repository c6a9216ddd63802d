package job

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func open(t *testing.T, url string) *Queue {
	t.Helper()
	js := fleettest.JetStream(t, fleettest.Dial(t, url))
	q, err := Open(t.Context(), js, fleet.DefaultPrefix, DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func submit(t *testing.T, q *Queue, id string) {
	t.Helper()
	if again, err := q.Submit(t.Context(), Job{ID: id, Prompt: "hello"}); again || err != nil {
		t.Fatalf("submit %s: got again %t, %v", id, again, err)
	}
}

// Of many that submit, take and end the same job, one does.
func TestOneOfManyDoes(t *testing.T) {
	const jobs, many = 8, 6
	url := fleettest.Start(t, "").Direct()
	var submitted, taken, told [jobs]atomic.Int32
	var all sync.WaitGroup
	for n := range many {
		q := open(t, url)
		all.Go(func() {
			for i := range jobs {
				id := fmt.Sprint("job-", i)
				again, err := q.Submit(t.Context(), Job{ID: id, Prompt: "hello"})
				if err != nil {
					t.Error(err)
					return
				}
				if !again {
					submitted[i].Add(1)
				}
				revision, ok, err := q.Take(t.Context(), id, Claim{Host: fmt.Sprint("host-", n)})
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					taken[i].Add(1)
					if _, kept, err := q.Renew(t.Context(), id, Claim{Host: fmt.Sprint("host-", n), RunID: "run"}, revision); !kept ||
						err != nil {
						t.Errorf("%s cannot be renewed: %v", id, err)
					}
				} else if _, kept, err := q.Renew(t.Context(), id, Claim{Host: "thief"}, revision); kept || err != nil {
					t.Errorf("%s was renewed by another: %v", id, err)
				}
				did, err := q.Finish(t.Context(), End{ID: id, Host: fmt.Sprint("host-", n), StopReason: protocol.StopCompleted})
				if err != nil {
					t.Error(err)
					return
				}
				if did {
					told[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range jobs {
		if submitted[i].Load() != 1 || taken[i].Load() != 1 || told[i].Load() != 1 {
			t.Errorf("job-%d was submitted %d times, taken %d and told %d, want 1 of each", i, submitted[i].Load(),
				taken[i].Load(), told[i].Load())
		}
	}
	q := open(t, url)
	if m, ok, err := q.Next(t.Context(), 0); ok || err != nil {
		t.Errorf("the queue still has %s, %v", m.ID, err)
	}
}

// A claim that nobody renews runs out.
func TestAClaimRunsOut(t *testing.T) {
	url := fleettest.Start(t, "").Direct()
	js := fleettest.JetStream(t, fleettest.Dial(t, url))
	q, err := Open(t.Context(), js, fleet.DefaultPrefix, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	submit(t, q, "one")
	revision, ok, err := q.Take(t.Context(), "one", Claim{Host: "box"})
	if !ok || err != nil {
		t.Fatalf("take: %t, %v", ok, err)
	}
	taken := false
	testenv.Until(t, "another takes it", func() bool {
		if _, taken, err = q.Take(t.Context(), "one", Claim{Host: "other"}); err != nil {
			t.Fatal(err)
		}
		return taken
	})
	if _, kept, err := q.Renew(t.Context(), "one", Claim{Host: "box"}, revision); !taken || kept || err != nil {
		t.Errorf("taken by another %t, kept by the first %t, %v; want true, false", taken, kept, err)
	}
}

func TestCancel(t *testing.T) {
	q := open(t, fleettest.Start(t, "").Direct())
	submit(t, q, "waits")
	submit(t, q, "runs")
	if _, ok, err := q.Take(t.Context(), "runs", Claim{Host: "box", SessionID: "ses-1", RunID: "run-1"}); !ok ||
		err != nil {
		t.Fatalf("take: %t, %v", ok, err)
	}
	for _, c := range []struct {
		id  string
		did Cancelling
	}{{"none", Unknown}, {"waits", Removed}, {"waits", Over}, {"runs", Away}, {"runs", Over}} {
		if did, _, err := q.Cancel(t.Context(), c.id, time.Millisecond); did != c.did || err != nil {
			t.Errorf("%s: got %s, %v; want %s", c.id, did, err, c.did)
		}
	}
	e, ok, err := q.End(t.Context(), "runs")
	if !ok || err != nil || e.StopReason != protocol.StopAborted || e.RunID != "run-1" || e.Host != "box" {
		t.Errorf("got %+v, %t, %v; want the run of its host aborted", e, ok, err)
	}
	c, _, ok, err := q.Claimed(t.Context(), "runs")
	if !ok || err != nil || !c.Cancel {
		t.Errorf("got the claim %+v, %v; want one that tells its host", c, err)
	}
	if again, err := q.Submit(t.Context(), Job{ID: "waits", Prompt: "hello"}); !again || err != nil {
		t.Errorf("a cancelled job was submitted again: %t, %v", again, err)
	}
}

// Streams that could lose a job, or do one twice, are refused.
func TestStreamsThatDoNotFit(t *testing.T) {
	url := fleettest.Start(t, "").Direct()
	js := fleettest.JetStream(t, fleettest.Dial(t, url))
	stream, err := fleet.DefaultPrefix.OpenJobs(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.AllowDirect = true
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), js, fleet.DefaultPrefix, DefaultTimeout); err == nil {
		t.Error("a queue that any server answers for was taken")
	}
}

// The end of a job is told with as much of the output as the stream takes.
func TestAnEndFitsIntoItsStream(t *testing.T) {
	url := fleettest.Start(t, "").Direct()
	fleettest.Limit(t, url, 64<<10, fleet.DefaultPrefix.OpenEvents)
	q := open(t, url)
	for id, out := range map[string]string{
		"long": strings.Repeat("x", MaxOutput), "escaped": strings.Repeat("\x01", MaxOutput),
		"worse": strings.Repeat("\x01", 60<<10) + strings.Repeat("x", 60<<10),
	} {
		submit(t, q, id)
		told, err := q.Finish(t.Context(), End{ID: id, StopReason: protocol.StopCompleted, Output: out})
		if !told || err != nil {
			t.Errorf("%s: told %t, %v", id, told, err)
			continue
		}
		e, _, err := q.End(t.Context(), id)
		if err != nil || !e.OutputTruncated || !strings.HasPrefix(out, e.Output) || len(e.Output) < 10<<10 {
			t.Errorf("%s: got %d bytes, truncated %t, %v", id, len(e.Output), e.OutputTruncated, err)
		}
	}
}

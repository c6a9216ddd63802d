package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// replicated makes what the fleet needs on all three servers, once they have a leader.
func (f *jobFleet) replicated() {
	f.t.Helper()
	p, ctx := fleet.DefaultPrefix, f.t.Context()
	testenv.Until(f.t, "the servers have a leader, and make a stream", func() bool {
		_, err := f.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: p.JobStream(), Subjects: []string{p.JobQueue("*")},
			Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, Duplicates: 24 * time.Hour, Replicas: 3,
		})
		return err == nil
	})
	if _, err := f.js.CreateStream(ctx, jetstream.StreamConfig{
		Name:     p.EventStream(),
		Subjects: []string{p.Events("*"), p.JobDone("*")}, Duplicates: 2 * time.Minute, Replicas: 3,
	}); err != nil {
		f.t.Fatal(err)
	}
	for bucket, ttl := range map[string]time.Duration{
		p.HostBucket():        fleet.PresenceTTL,
		string(p) + "_CLAIMS": time.Minute,
	} {
		if _, err := f.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, TTL: ttl, Replicas: 3}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// Three servers in a cluster: one that goes takes no job with it, and none is done twice.
// It takes a while, and runs with NOUSED_LONG.
func TestJobsOverACluster(t *testing.T) {
	if os.Getenv("NOUSED_LONG") == "" {
		t.Skip("NOUSED_LONG is not set")
	}
	servers := fleettest.Cluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	f := &jobFleet{t: t, at: `["` + strings.Join(urls, `", "`) + `"]`}
	var err error
	nc := fleettest.Dial(t, strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if f.js, err = jetstream.New(nc); err != nil { // asks again soon: there may be no leader
		t.Fatal(err)
	}
	f.replicated()
	if f.Queue, err = job.Open(t.Context(), f.js, fleet.DefaultPrefix, time.Minute); err != nil {
		t.Fatal(err)
	}
	daemons := map[string]*daemon{}
	for _, name := range []string{"one", "two", "three"} {
		daemons[name] = f.daemon(name, "slots = 3\n[model]\nprovider = \"offline\"\ndelay = \"20ms\"\n")
	}
	var ids []string
	for i := range 60 {
		id := fmt.Sprint("job-", i)
		f.submit(job.Job{ID: id, Prompt: "one two three four five six seven eight"})
		ids = append(ids, id)
	}
	f.end("job-5")
	servers[0].Down()
	for _, id := range ids {
		var e job.End
		testenv.Until(t, id+" has ended, as soon as there is a leader again", func() (ok bool) {
			e, ok, err = f.End(t.Context(), id)
			return ok
		})
		if e.StopReason != protocol.StopCompleted {
			t.Errorf("%s: got %+v", id, e)
		}
	}
	f.once(daemons, ids...)
}

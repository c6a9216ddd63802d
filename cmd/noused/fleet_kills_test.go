package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// Jobs are done while daemons are killed at random: each job's prompt is accepted once
// by all of them together, its end is told once, and none is lost.
// NOUSED_FLEET_JOBS=1000/20 is that many jobs over that many daemons.
func TestManyJobsAndKills(t *testing.T) {
	testenv.Long(t)
	jobs, hosts := 40, 4
	if size := os.Getenv("NOUSED_FLEET_JOBS"); size != "" {
		if _, err := fmt.Sscanf(size, "%d/%d", &jobs, &hosts); err != nil {
			t.Fatalf("NOUSED_FLEET_JOBS=%s: want JOBS/DAEMONS", size)
		}
	}
	f := newJobFleet(t, job.DefaultTimeout)
	ends := make(chan *nats.Msg, jobs+1)
	sub, err := f.js.Conn().ChanSubscribe(fleet.DefaultPrefix.JobDone("*"), ends)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	daemons := map[string]*daemon{}
	var names []string
	for i := range hosts {
		name := fmt.Sprint("host-", i)
		names = append(names, name)
		daemons[name] = f.daemon(name,
			fmt.Sprintf("slots = 3\nlabels = { parity = \"%d\" }\n[model]\nprovider = \"offline\"\ndelay = \"3ms\"\n", i%2))
	}
	begun := time.Now()
	var ids []string
	text := func(id string) string { return id + strings.Repeat(" word", 20) }
	for i := range jobs {
		id := fmt.Sprint("job-", i)
		ids = append(ids, id)
		j := job.Job{ID: id, Prompt: text(id)}
		if i%3 != 0 {
			j.Labels = map[string]string{"parity": fmt.Sprint(i % 2)}
		}
		f.submit(j)
	}
	const seed = 7
	random, kills := rand.New(rand.NewPCG(seed, seed)), map[string]int{}
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	for told := 0; len(missing) > 0; told++ {
		select {
		case end := <-ends:
			delete(missing, end.Subject[strings.LastIndexByte(end.Subject, '.')+1:])
		case <-time.After(jobPatience):
			t.Fatalf("no job has ended for %s, and these have not: %v", jobPatience, slices.Sorted(maps.Keys(missing)))
		}
		if told%5 == 0 {
			name := names[random.IntN(hosts)]
			daemons[name].Kill()
			daemons[name].Start()
			kills[name]++
		}
	}
	took := time.Since(begun)
	by := map[string]int{}
	for _, id := range ids {
		e := f.end(id)
		by[e.Host]++
		// A daemon may be killed three times in one run, which ends that run (wire-v1 §7).
		looped := e.Error != nil && e.Error.Code == protocol.CrashLoop && kills[e.Host] >= 3
		if !looped && (e.StopReason != protocol.StopCompleted || e.Output != text(id)) {
			t.Errorf("%s: got %+v, error %+v", id, e, e.Error)
		}
		f.over(id)
	}
	f.once(daemons, ids...)
	t.Logf("%d jobs over %d daemons with kills %v took %s; by host %v", jobs, hosts, kills, took.Round(time.Millisecond),
		by)
}

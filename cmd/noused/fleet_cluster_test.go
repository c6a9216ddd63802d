package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
)

// natsCluster starts three servers that make one, and returns their URLs.
func natsCluster(t *testing.T) (all []*server.Server, urls []string) {
	t.Helper()
	var ports, routes []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, ln.Addr().String())
		routes = append(routes, "nats://"+ln.Addr().String())
		_ = ln.Close()
	}
	for i := range 3 {
		path := filepath.Join(t.TempDir(), "nats.conf")
		config := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nserver_name: s%d\njetstream { store_dir: %q }\ncluster { name: c, listen: %q, routes: [%s] }\n",
			i, t.TempDir(), ports[i], strings.Join(routes, ", "))
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		options, err := server.ProcessConfigFile(path)
		if err != nil {
			t.Fatal(err)
		}
		options.NoSigs, options.NoLog = true, true
		s, err := server.NewServer(options)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		all = append(all, s)
	}
	for _, s := range all {
		if !s.ReadyForConnections(jobPatience) {
			t.Fatal("a server is not ready")
		}
		urls = append(urls, s.ClientURL())
	}
	return all, urls
}

// replicated makes what the fleet needs on all three servers, once they have a leader.
func (f *jobFleet) replicated() {
	f.t.Helper()
	p, ctx := fleet.DefaultPrefix, f.t.Context()
	for deadline := time.Now().Add(jobPatience); ; time.Sleep(50 * time.Millisecond) {
		_, err := f.js.CreateStream(ctx, jetstream.StreamConfig{Name: p.JobStream(), Subjects: []string{p.JobQueue("*")}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, Duplicates: 24 * time.Hour, Replicas: 3})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			f.t.Fatal(err)
		}
	}
	if _, err := f.js.CreateStream(ctx, jetstream.StreamConfig{Name: p.EventStream(), Subjects: []string{p.Events("*"), p.JobDone("*")}, Duplicates: 2 * time.Minute, Replicas: 3}); err != nil {
		f.t.Fatal(err)
	}
	for bucket, ttl := range map[string]time.Duration{p.HostBucket(): fleet.PresenceTTL, string(p) + "_CLAIMS": time.Minute} {
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
	servers, urls := natsCluster(t)
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
	servers[0].Shutdown()
	for _, id := range ids {
		var e job.End
		for ok := false; !ok; {
			if e, ok, err = f.End(t.Context(), id); err != nil || !ok { // there may be no leader right now
				time.Sleep(20 * time.Millisecond)
			}
		}
		if e.StopReason != protocol.StopCompleted {
			t.Errorf("%s: got %+v", id, e)
		}
	}
	f.once(daemons, ids...)
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
	"noused/internal/tool/registry"
)

// It happens at the start and once a day of the wall clock, though the machine
// sleeps in between.
func TestPruningOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var slept atomic.Int64
		p := &pruner{now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }}
		passes, ended := 0, make(chan error)
		go func() { ended <- p.daily(ctx, func() { passes++ }) }()
		for _, step := range []struct {
			awake, asleep time.Duration
			want          int
		}{
			{0, 0, 1},
			{23*time.Hour + time.Minute, 0, 1},
			{time.Hour, 0, 2},
			{2 * time.Hour, 0, 2},
			{time.Hour, 30 * time.Hour, 3},
			{time.Hour, 0, 3},
			// The clock is wrong by ten years, and is then set back.
			{time.Hour, 10 * 365 * 24 * time.Hour, 4},
			{time.Hour, -10 * 365 * 24 * time.Hour, 5},
			{time.Hour, 0, 5},
			{24 * time.Hour, 0, 6},
		} {
			slept.Add(int64(step.asleep))
			time.Sleep(step.awake)
			if synctest.Wait(); passes != step.want {
				t.Errorf("after %+v: %d passes, want %d", step, passes, step.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// However many files go, a reply names some of them and counts all.
func TestPruneNamesSoManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range maxPruned + 2 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("asset-%d", i)), []byte("12"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tools := registry.New(registry.Options{OutputDir: dir})
	defer tools.Close(context.Background())
	p := &pruner{keep: retention{ToolOutputLarger: 1}, tools: tools, now: time.Now}
	var out protocol.Pruned
	if err := p.output(t.Context(), true, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.ToolOutput) != maxPruned || !out.Truncated ||
		out.Sums.ToolOutput != (protocol.PrunedSum{Count: maxPruned + 2, Bytes: 2 * (maxPruned + 2)}) {
		t.Errorf("got %d files, truncated %t, %+v", len(out.ToolOutput), out.Truncated, out.Sums)
	}
}

// A daemon that is killed while it removes sessions has removed each of them, or
// none of it: its images go with it.
func TestKilledWhileItPrunes(t *testing.T) {
	testenv.Long(t)
	d := newDaemon(t)
	d.Stop()
	const sessions = 40
	for i := range sessions {
		id := fmt.Sprintf("ses-old-%03d", i)
		path := filepath.Join("state", "sessions", id)
		d.write(path+".jsonl", fmt.Sprintf(
			"{\"v\":1,\"at\":\"2026-01-02T03:04:05Z\",\"type\":\"created\",\"data\":{\"session_id\":%q}}\n", id), 0o600)
		for n := range 8 {
			d.write(filepath.Join(path+".files", fmt.Sprint(n)), "an image", 0o600)
		}
		d.write(path+".jsonl.damaged", "a torn end", 0o600)
		long := time.Now().Add(-1000 * time.Hour)
		if err := os.Chtimes(filepath.Join(d.Dir, path+".jsonl"), long, long); err != nil {
			t.Fatal(err)
		}
	}
	d.Start()
	// is the active one
	if _, err := client.Call(context.Background(), d.dial(), protocol.NewSession, protocol.NewSessionParams{}); err !=
		nil {
		t.Fatal(err)
	}
	d.Kill()
	d.write("noused/config.toml", "[retention]\nsessions_older = \"1d\"\n", 0o600)
	left := func() (journals, others int) {
		for _, name := range d.names(filepath.Join("state", "sessions")) {
			if filepath.Ext(name) == ".jsonl" {
				journals++
			} else {
				others++
			}
		}
		return journals, others
	}
	for kills := 0; ; kills++ {
		d.Start()
		if kills == 3 {
			break
		}
		// It begins by itself. As soon as some are gone it is killed.
		before, _ := left()
		w := d.commands()
		for now := before; now > max(1, before-5); {
			now = len(into[protocol.Sessions](t, w.request(`{"id":"1","type":"list_sessions","payload":{"limit":1000}}`)).Sessions)
		}
		d.Kill()
	}
	r, err := client.Call(context.Background(), d.dial(), protocol.Prune, protocol.PruneParams{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) > 0 {
		t.Errorf("problems: %v", r.Problems)
	}
	if journals, others := left(); journals != 1 || others != 0 {
		t.Errorf("left: %d journals, and %d other files: %v", journals, others, d.names(filepath.Join("state", "sessions")))
	}
}

func (d *daemon) names(folder string) (names []string) {
	d.t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.Dir, folder))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

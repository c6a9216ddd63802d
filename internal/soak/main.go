// Command soak runs two real daemons under a mixed load for a while, and says
// whether anything grew or went wrong: one that runs all the time, and one that is
// stopped and killed again and again.
//
//	go run ./internal/soak -noused bin/noused -for 30m
//
// Concurrency: a goroutine for each client, reader and watcher; what they find goes
// to a report, which any of them may use.
//
// It refuses to guess: a run, an event or a text that cannot be accounted for is a
// violation, and a figure that cannot be had is an error.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Exit statuses.
const (
	exitFine     = 0
	exitViolated = 1
	exitGrown    = 2
	exitFailed   = 3
)

// options are how long what is run, and on which seed.
type options struct {
	noused string
	dir    string
	lasts  time.Duration
	seed   uint64
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "mcp" {
		serveMCP(os.Stdin, os.Stdout)
		return
	}
	var o options
	flag.StringVar(&o.noused, "noused", "bin/noused", "the daemon's program")
	flag.DurationVar(&o.lasts, "for", 30*time.Minute, "how long")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the dice")
	flag.Parse()
	status, err := soak(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	os.Exit(status)
}

// soak runs everything, and prints what it found.
func soak(o options) (status int, err error) {
	if o.dir, err = os.MkdirTemp("", "noused-soak"); err != nil {
		return exitFailed, err
	}
	defer func() { _ = os.RemoveAll(o.dir) }()
	if o.noused, err = filepath.Abs(o.noused); err != nil {
		return exitFailed, err
	}
	if err := adoptOrphans(); err != nil {
		return exitFailed, err
	}
	r := newReport()
	server, err := newVendor(r)
	if err != nil {
		return exitFailed, err
	}
	defer server.Close()
	fmt.Printf("soak: %v, seed %d\n", o.lasts, o.seed)
	began := time.Now()
	var worlds []*world
	for _, name := range []string{"steady", "restarted"} {
		w, err := newWorld(o, name, server.URL, r)
		if err == nil {
			err = w.start()
		}
		if err != nil {
			return exitFailed, err
		}
		defer w.end()
		worlds = append(worlds, w)
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.lasts)
	defer cancel()
	var all sync.WaitGroup
	for i, w := range worlds {
		dice := func(n int) *rand.Rand { return rand.New(rand.NewPCG(o.seed, uint64(100*i+n))) }
		for n := range workers {
			all.Go(func() { (&worker{world: w, rng: dice(n), n: n}).run(ctx) })
		}
		for n := range readers {
			all.Go(func() { (&reader{world: w, rng: dice(50 + n)}).run(ctx) })
		}
		all.Go(func() { w.sampling(ctx, o.lasts/samples) })
		all.Go(func() { w.pruning(ctx, o.lasts/40) })
	}
	all.Go(func() { worlds[1].restarting(ctx, max(o.lasts/40, time.Second), rand.New(rand.NewPCG(o.seed, 99))) })
	all.Wait()
	for _, w := range worlds {
		w.end()
	}
	return r.print(os.Stdout, time.Since(began), worlds), nil
}

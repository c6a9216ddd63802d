//go:build sim

package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds  = flag.Int("seeds", 200, "how many histories to run")
	first  = flag.Uint64("seed", 0, "the only history to run, with its trace; 0: so many as -seeds says")
	from   = flag.Uint64("from", 1, "the first of these")
	all    = flag.Bool("all", false, "go on after one that fails")
	shrunk = flag.Bool("shrink", true, "leave out of one that fails what it fails without")
	placed = flag.Bool("places", true, "fail where no history has reached one of the places")
	live1  = flag.Bool("live", false, "print the trace as it grows")
	steps  = flag.Int("steps", 400, "how many things happen in a history before faults end")
	alike  = flag.Int("alike", 10, "how many conversations are held twice")
	wires  = flag.Int("wires", 10, "how many times clients are set on the real server")
	twice  = flag.Int("twice", 20, "how many histories are run twice and compared")
)

var folders int

// folder is on a disk of memory, where the machine has one.
func folder(t *testing.T) string {
	t.Helper()
	folders++
	dir := fmt.Sprintf("/dev/shm/noused-sim-%010d-%010d", os.Getpid(), folders) // paths stand in journals: one length
	if os.Mkdir(dir, 0o700) != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func run(t *testing.T, p plan) (h history) {
	t.Helper()
	dir := folder(t)
	defer os.RemoveAll(dir)
	runtime.GC() // and not in between: it has goroutines go on in another order
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(t *testing.T) { h = live(t, dir, p) })
	if len(h.wrong) == 0 {
		if wrong := linearizable(h.ops); wrong != "" {
			h.wrong = append(h.wrong, wrong)
		}
	}
	return h
}

// Whatever is scheduled next, however disks, daemons and clients fail: the promises
// of wire-v1 §4 and §7 hold.
func TestSeeds(t *testing.T) {
	if !steady(t) {
		return
	}
	if *first > 0 {
		h := run(t, wholePlan(*first))
		t.Logf("%s\n%v", h.trace, h.counts)
		if len(h.wrong) > 0 {
			t.Errorf("seed %d: %s", *first, strings.Join(h.wrong, "\n"))
		}
		return
	}
	began, last := time.Now(), *from+uint64(*seeds)
	counts, reached := map[string]int{}, map[string]int{}
	for seed := *from; seed < last; seed++ {
		h := run(t, wholePlan(seed))
		counts["histories"]++
		for k, n := range h.counts {
			counts[k] += n
		}
		for k, n := range h.reached {
			reached[k] += n
		}
		if *all && counts["histories"]%1000 == 0 {
			t.Logf("up to seed %d: %v", seed, counts)
		}
		if len(h.wrong) == 0 {
			continue
		}
		t.Errorf("seed %d: %s", seed, strings.Join(h.wrong, "\n"))
		if *shrunk {
			p, h := shrink(t, plan{seed, h.steps, clients})
			t.Errorf("shrunk to %d steps and %d clients:\n%s", len(p.steps), p.clients, h.trace)
		}
		if !*all {
			return
		}
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", k, counts[k])
	}
	t.Logf("in %.1f s", time.Since(began).Seconds())
	for _, place := range places {
		if t.Logf("reached: %s: %d", place, reached[place]); reached[place] == 0 && *placed && counts["histories"] >= enough {
			t.Errorf("no history has reached: %s", place)
		}
	}
}

// enough histories have reached every place.
const enough = 200

// places are where faults were found, or are expected: a set of histories that never
// reaches one proves nothing about it.
var places = []string{
	"a client hangs up while commands are under way",
	"a daemon that does not start",
	"a folder is recorded beside what goes on",
	"a rewind is done",
	"a rewind is taken back by the next daemon",
	"a rewind is taken up by the next daemon",
	"a rewind is undone",
	"a prompt waits for the end of its run",
	"a reader misses events",
	"a session is deleted",
	"a steer while an approval waits",
	"a hosted run completes",
	"an agent works in several sessions at once",
	"an agent is sent a prompt while it works",
	"an agent ends a prompt for the one that came meanwhile",
	"a text has an image",
	"a text is refused since the disk failed",
	"a text is sent again after the daemon was gone",
	"a text is sent again while the first is under way",
	"a call is cut off",
	"a call of agent is at a bound",
	"a child goes on for another call",
	"a child has a child",
	"a child of a child has a child",
	"a call of agent is as deep as may be",
	"a call of agent is at total after a kill or a fault",
	"a child of a child is deleted with what is above it",
	"an abort of a run whose child waits for one",
	"a child in the background ends while its parent is idle",
	"a child in the background ends while its parent runs",
	"a child is deleted with its parent",
	"a client aborts a child",
	"a power cut while a parent waits for a child",
	"a steer skips a call that waits for a child",
	"an abort of a run that waits for a child",
	"children work at the same time",
	"a child has a worktree of its own",
	"a child has another model",
	"a child is made by a named agent",
	"a child is a hosted agent's",
	"a tree asks at its limit whether it goes on",
	"the end of a child in the background begins a run",
	"a child ends for what its tree has cost",
	"killed while a parent waits for a child",
	"what a child in the background came to is told by the next daemon",
	"a conversation is summarised",
	"a message is cut off",
	"a power cut leaves holes",
	"a power cut while a summary is made",
	"a run is at the limit of the day",
	"a run is given up after crashes",
	"a steer skips a call",
	"a torn line is cut off",
	"an agent asks for leave",
	"an agent goes on with a cut turn",
	"an agent is sent a text again",
	"an agent is told what was said before",
	"an approval is answered again",
	"killed at create",
	"killed at first",
	"killed at link",
	"killed at sync",
	"killed at truncate",
	"killed inside a deletion",
	"killed at write",
	"killed between the journal and what is announced of it",
	"killed while an approval waits",
	"the end of a run hands texts back",
	"the active session is looked for after a start",
}

// shrink leaves out of a history that fails what it fails without: clients, then steps.
func shrink(t *testing.T, p plan) (plan, history) {
	best, began := run(t, p), time.Now()
	try := func(q plan) bool {
		if time.Since(began) > time.Minute {
			return false
		}
		h := run(t, q)
		if len(h.wrong) == 0 {
			return false
		}
		p, best = q, h
		p.steps = h.steps
		return true
	}
	for n := 1; n < p.clients; n++ {
		if try(plan{p.seed, p.steps, n}) {
			break
		}
	}
	for size := len(p.steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(p.steps); {
			left := slices.Concat(p.steps[:at], p.steps[at+size:])
			if !try(plan{p.seed, left, p.clients}) {
				at += size
			}
		}
	}
	return p, best
}

// Two runs of a seed are the same, byte for byte, however busy the machine is.
func TestSeedDecidesEverything(t *testing.T) {
	if !steady(t) {
		return
	}
	for seed := *from; seed < *from+uint64(*twice); seed++ {
		a, b := run(t, wholePlan(seed)), run(t, wholePlan(seed))
		x, y := strings.Split(a.trace, "\n"), strings.Split(b.trace, "\n")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				t.Fatalf("seed %d differs at line %d:\n%s\n%s", seed, i+1, x[i], y[i])
			}
		}
		if len(x) != len(y) {
			t.Fatalf("seed %d: traces of %d and %d lines", seed, len(x), len(y))
		}
	}
}

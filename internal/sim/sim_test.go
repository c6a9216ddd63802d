//go:build sim

package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Int("seeds", 200, "how many histories to run")
	first = flag.Uint64("seed", 0, "the only history to run, with its trace; 0: those from 1 on")
	live1 = flag.Bool("live", false, "print the trace as it grows")
	steps = flag.Int("steps", 400, "how many things happen in a history before faults end")
)

var folders int

// TestMain has goroutines run one at a time: two that can go on do so in one order.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	m.Run()
}

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

func run(t *testing.T, seed uint64, steps int) (h history) {
	t.Helper()
	dir := folder(t)
	synctest.Test(t, func(t *testing.T) { h = live(t, dir, seed, steps) })
	return h
}

// Whatever is scheduled next, however disks, daemons and clients fail: the promises
// of wire-v1 §4 and §7 hold.
func TestSeeds(t *testing.T) {
	if *first > 0 {
		h := run(t, *first, *steps)
		t.Logf("%s\n%v", h.trace, h.counts)
		if len(h.wrong) > 0 {
			t.Errorf("seed %d: %s", *first, strings.Join(h.wrong, "\n"))
		}
		return
	}
	counts, reached := map[string]int{}, map[string]int{}
	for seed := range uint64(*seeds) {
		h := run(t, seed+1, *steps)
		for k, n := range h.counts {
			counts[k] += n
		}
		for k, n := range h.reached {
			reached[k] += n
		}
		if len(h.wrong) > 0 {
			t.Fatalf("seed %d: %s", seed+1, strings.Join(h.wrong, "\n"))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", k, counts[k])
	}
	t.Logf("reached: %v", reached)
}

// Two runs of a seed are the same, byte for byte.
func TestSeedDecidesEverything(t *testing.T) {
	for seed := range uint64(10) {
		a, b := run(t, seed+1, *steps), run(t, seed+1, *steps)
		if a.trace != b.trace {
			x, y := strings.Split(a.trace, "\n"), strings.Split(b.trace, "\n")
			for i := range min(len(x), len(y)) {
				if x[i] != y[i] {
					t.Fatalf("seed %d differs at line %d:\n%s\n%s", seed+1, i+1, x[i], y[i])
				}
			}
			t.Fatalf("seed %d: traces of %d and %d lines", seed+1, len(x), len(y))
		}
	}
}

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// maxWrong bounds the violations that are told in full.
const maxWrong = 20

// report is what was done and found. Safe for concurrent use.
type report struct {
	mu     sync.Mutex
	counts map[string]int
	wrong  []string
	wrongs int
}

func newReport() *report { return &report{counts: map[string]int{}} }

func (r *report) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// violation notes what must not be.
func (r *report) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrongs++; r.wrongs <= maxWrong {
		r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
	}
}

// print writes the tables, and returns the exit status that says what they say.
func (r *report) print(out io.Writer, took time.Duration, worlds []*world) (status int) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "daemon\tfigure\tsamples\tsecond third\tlast third\tmost\t\t\n")
	for _, w := range worlds {
		for _, f := range figures {
			s := w.series[f.name]
			if w.restarted && !f.restarted {
				continue
			}
			second, last, flat := f.flat(s)
			word := "flat"
			if !flat {
				word, status = "GROWS", exitGrown
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%.1f\t%.1f\t%.1f\t%s\t\n", w.name, f.name, len(s), second, last,
				slices.Max(append(s, 0)), word)
		}
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\nin %v:", took.Round(time.Second))
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(out, " %d %s;", r.counts[what], what)
	}
	fmt.Fprintf(out, " %d violations\n", r.wrongs)
	for _, wrong := range r.wrong {
		fmt.Fprintln(out, "violation:", wrong)
	}
	if r.wrongs > 0 {
		return exitViolated
	}
	return status
}

// figure is what is sampled, and how much more it may become beside a tenth.
type figure struct {
	name      string
	slack     float64
	restarted bool // also of the daemon that is restarted, whose memory begins anew
}

var figures = []figure{
	{"memory MB", 2, false},
	{"goroutines", 10, false},
	{"descriptors", 5, false},
	{"processes", 3, true},
	{"disk MB", 2, true},
}

// flat says whether a series does not grow: the median of its last third is at most
// a tenth, and the slack, above that of the second. The first third warms up.
func (f figure) flat(series []float64) (second, last float64, ok bool) {
	n := len(series)
	if n < 3 {
		return 0, 0, false
	}
	second, last = median(series[n/3:2*n/3]), median(series[2*n/3:])
	return second, last, last <= 1.1*second+f.slack
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

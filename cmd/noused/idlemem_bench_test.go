package main

import (
	"slices"
	"testing"
	"time"
)

// The first prompt after a start, beside those after it.
func BenchmarkFirstPrompt(b *testing.B) {
	program := plainDaemon(b)
	var first, later []time.Duration
	for b.Loop() {
		b.StopTimer()
		d := newDaemonOf(b, program, "--model", "offline")
		w := d.commands()
		prompt := func() time.Duration {
			began := time.Now()
			if r := w.request(`{"id":"1","type":"prompt","payload":{"text":"hello"}}`); !r.OK {
				b.Fatalf("got %+v", r)
			}
			return time.Since(began)
		}
		b.StartTimer()
		first = append(first, prompt())
		b.StopTimer()
		for range 5 {
			later = append(later, prompt())
		}
		d.Stop()
		b.StartTimer()
	}
	slices.Sort(first)
	slices.Sort(later)
	f, l := first[len(first)/2], later[len(later)/2]
	b.ReportMetric(float64(f.Microseconds())/1000, "ms-first")
	b.ReportMetric(float64(l.Microseconds())/1000, "ms-later")
	b.ReportMetric(float64(f)/float64(l), "×later")
}

package main

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"noused/internal/protocol"
)

// BenchmarkHostedChunk measures how long a chunk takes from the agent's write to a client:
// two pipes, a journal's write and a socket.
func BenchmarkHostedChunk(b *testing.B) {
	h := newHost(b, "")
	var took []time.Duration
	h.prompt("!stamp " + strconv.Itoa(max(b.N, 100)))
	for {
		ev, err := next(h.events)
		if err != nil {
			b.Fatal(err)
		}
		switch ev := ev.(type) {
		case protocol.MessageUpdate:
			if said, err := strconv.ParseInt(ev.Delta, 10, 64); err == nil {
				took = append(took, time.Duration(time.Now().UnixNano()-said))
			}
		case protocol.AgentEnd:
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/p99")
			return
		}
	}
}

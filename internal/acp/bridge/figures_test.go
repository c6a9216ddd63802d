package bridge

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"noused/internal/acp"
	"noused/internal/client"
	"noused/internal/protocol"
)

// BenchmarkInitialize is the time from the start of nous acp to its first answer.
func BenchmarkInitialize(b *testing.B) {
	program := nousProgram(b)
	d := startDaemon(b, "")
	official(b)
	for b.Loop() {
		e, end := startBridge(b, program, d.Socket)
		e.must(acp.Initialize, `{"protocolVersion":1}`)
		b.StopTimer()
		end(true)
		b.StartTimer()
	}
}

// BenchmarkFirstChunk has the time from a delta on the event socket to its chunk in
// the editor, as both are read here, in the metric median-ms (and p95-ms), and in
// rss-MB what nous acp has resident after three more prompts of 3,000 words.
func BenchmarkFirstChunk(b *testing.B) {
	d := startDaemon(b, "")
	e, end := startBridge(b, nousProgram(b), d.Socket)
	defer end(true)
	e.must(acp.Initialize, `{"protocolVersion":1}`)
	s := e.open(d.Dir)
	events, err := client.Subscribe(b.Context(), d.Socket, protocol.SubscribeParams{SessionID: s})
	if err != nil {
		b.Fatal(err)
	}
	defer events.Close()
	var took []time.Duration
	for b.Loop() {
		from, seen := e.mark(), make(chan time.Time, 1)
		go func() { seen <- firstDelta(b, events) }()
		e.say(s, "word")
		m, _ := e.await(from, "the chunk", func(m message) bool {
			u, ok := updateOf(s, m)
			return ok && u.Kind == acp.AgentChunk
		})
		took = append(took, max(0, m.at.Sub(<-seen)))
	}
	events.Close()
	for range 3 {
		e.say(s, numbered(3000))
	}
	slices.Sort(took)
	for name, d := range map[string]time.Duration{"median-ms": took[len(took)/2], "p95-ms": took[len(took)*95/100]} {
		b.ReportMetric(float64(d.Microseconds())/1000, name)
	}
	b.ReportMetric(resident(b, e.pid), "rss-MB")
}

// firstDelta reads the events of a run, and returns when its first delta was read.
func firstDelta(b *testing.B, events *client.Events) (at time.Time) {
	for {
		env, _, err := events.Next(b.Context())
		if err != nil {
			b.Error(err)
			return time.Now()
		}
		now := time.Now()
		switch ev, _ := client.Decode(env); ev.(type) {
		case protocol.MessageUpdate:
			if at.IsZero() {
				at = now
			}
		case protocol.AgentEnd:
			return at
		}
	}
}

// resident is what a process has in memory, in millions of bytes.
func resident(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err)
	}
	kib := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(text)
	n, err := strconv.ParseFloat(string(kib[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return n * 1024 / 1e6
}

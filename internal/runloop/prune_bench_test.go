package runloop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/protocol"
	"noused/internal/session"
)

// BenchmarkPrune sets removing a thousand of 20,000 sessions beside unlinking so many files of
// such a folder, and making that durable once.
func BenchmarkPrune(b *testing.B) {
	const all, gone = 20_000, 1000
	dir := b.TempDir()
	store, err := session.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	id := func(n int) string { return fmt.Sprintf("ses-%08d", n) }
	path := func(id string) string { return filepath.Join(dir, "sessions", id+".jsonl") }
	if _, j, err := store.Create(id(0),
		[]session.Record{{At: time.Now().Add(-48 * time.Hour), Fact: session.Created{SessionID: id(0)}}}); err != nil {
		b.Fatal(err)
	} else if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(path(id(0)))
	if err != nil {
		b.Fatal(err)
	}
	old, made := time.Now().Add(-48*time.Hour), 1
	fill := func(name func(int) string, n int, at time.Time) {
		for range n {
			made++
			line := strings.ReplaceAll(string(text), id(0), id(made))
			if err := os.WriteFile(name(made), []byte(line), 0o600); err != nil {
				b.Fatal(err)
			}
			if err := os.Chtimes(name(made), at, at); err != nil {
				b.Fatal(err)
			}
		}
	}
	journal := func(n int) string { return path(id(n)) }
	plain := func(n int) string { return filepath.Join(dir, "sessions", fmt.Sprint("plain", n)) }
	fill(journal, all-gone, time.Now())
	h := NewHub(Options{
		Store: store, Events: newRecorder(), Now: time.Now, Tools: tools(echoTool), NewID: func(prefix string) string {
			return prefix + "1"
		},
		Fault: func(_ string, err error) { b.Error(err) },
	})
	defer h.Drain(0)
	var raw, pruned time.Duration
	for b.Loop() {
		b.StopTimer()
		first := made + 1
		fill(plain, gone, old)
		start := time.Now()
		for n := first; n <= made; n++ {
			if err := os.Remove(plain(n)); err != nil {
				b.Fatal(err)
			}
		}
		if err := (session.OSDisk{}).SyncDir(filepath.Join(dir, "sessions")); err != nil {
			b.Fatal(err)
		}
		raw += time.Since(start)
		fill(journal, gone, old)
		if err := (session.OSDisk{}).SyncDir(filepath.Join(dir, "sessions")); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		start, n := time.Now(), 0
		if err := h.PruneSessions(context.Background(), Keep{Older: 24 * time.Hour}, false, func(protocol.PrunedSession) {
			n++
		}); err != nil || n != gone {
			b.Fatalf("removed %d, %v", n, err)
		}
		pruned += time.Since(start)
	}
	b.ReportMetric(float64(gone*b.N)/pruned.Seconds(), "sessions/s")
	b.ReportMetric(pruned.Seconds()/raw.Seconds(), "x-raw")
}

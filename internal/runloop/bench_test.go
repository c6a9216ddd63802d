package runloop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// benchRun steps one whole run of ten deltas.
func benchRun(m *machine, now time.Time) effects {
	m.step(now, promptIn{
		nil,
		protocol.PromptParams{Text: "List the three largest files in this folder, please."},
		false,
		nil,
		nil,
	})
	for range 10 {
		m.step(now, deltaIn{m.gen, model.Delta{Text: "word "}})
	}
	m.step(now, deltaIn{m.gen, model.Delta{Stop: model.StopEnd}})
	m.step(now, modelDoneIn{m.gen, nil})
	return m.drainEffects()
}

func benchMachine() *machine {
	s := session.NewState()
	_ = s.Apply(session.Record{Fact: session.Created{SessionID: "ses-1"}})
	ids := 0
	return &machine{s: s, newID: func(prefix string) string { ids++; return fmt.Sprint(prefix, ids) }}
}

// BenchmarkStep sets deciding a run (13 steps) beside the least that has to
// happen: folding the facts that it comes to.
func BenchmarkStep(b *testing.B) {
	now := time.Now()
	const runs = 256 // in one session, then a new one
	b.Run("raw", func(b *testing.B) {
		var lives [][]session.Record
		m := benchMachine()
		for range runs {
			lives = append(lives, benchRun(m, now).records)
		}
		s := benchMachine().s
		for n := 0; b.Loop(); n++ {
			if n%runs == 0 {
				s = benchMachine().s
			}
			for _, r := range lives[n%runs] {
				if err := s.Apply(r); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("machine", func(b *testing.B) {
		m := benchMachine()
		for n := 0; b.Loop(); n++ {
			if n%runs == 0 {
				m = benchMachine()
			}
			benchRun(m, now)
		}
	})
}

// BenchmarkMessages sets answering get_messages for a session of 5,000 beside
// copying the answer.
func BenchmarkMessages(b *testing.B) {
	store, err := session.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	h := NewHub(Options{
		Store: store, Events: newRecorder(), Now: time.Now,
		NewID: func(prefix string) string { return prefix + "1" }, Fault: func(string, error) {},
	})
	records := h.fresh(session.Created{SessionID: "ses-1"})
	parent := ""
	for i := range 5000 {
		m := session.MessageAdded{
			ID: fmt.Sprint("msg-01a1f0d0-0000-7000-8000-", 100000000000+i), ParentID: parent,
			RunID: "run-01a1f0d0-0000-7000-8000-000000000001", TurnKind: "prompt",
			Message: model.Message{Role: model.User, Text: "List the three largest files in this folder, please."},
		}
		parent = m.ID
		records = append(records, session.Record{At: time.Now(), Fact: m})
	}
	if err := h.create(records, true); err != nil {
		b.Fatal(err)
	}
	defer h.Drain(0)
	answer := func(out []byte) []byte {
		r, err := h.getMessages(b.Context(), protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: "ses-1"}})
		if err == nil {
			out, err = protocol.AppendResponse(out, "1", "messages", r)
		}
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	line := answer(nil)
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		var out []byte
		for b.Loop() {
			out = append(out[:0], line...)
		}
	})
	b.Run("hub", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		var out []byte
		for b.Loop() {
			out = answer(out[:0])
		}
	})
}

// BenchmarkAccept sets the way from a prompt to its acceptance beside the one
// fdatasync that it needs, for clients that each prompt their own session, one
// run after the other. us/accept is the median wait of one of them, ns/op the
// time between two acceptances of all, each with its whole run.
func BenchmarkAccept(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		line := bytes.Repeat([]byte("x"), 400)
		var waits []time.Duration
		for b.Loop() {
			start := time.Now()
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				b.Fatal(err)
			}
			waits = append(waits, time.Since(start))
		}
		reportMedian(b, waits)
	})
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprint("clients-", clients), func(b *testing.B) {
			store, err := session.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			events := &endings{ends: map[string]chan struct{}{}}
			var ids atomic.Int64
			h := NewHub(Options{
				Store: store, Events: events, Now: time.Now, Model: offline.Model{}, Tools: tools(echoTool),
				NewID: func(prefix string) string {
					return fmt.Sprint(prefix, ids.Add(1))
				}, Fault: func(_ string, err error) { b.Error(err) },
			})
			defer h.Drain(time.Minute)
			var left atomic.Int64
			left.Store(int64(b.N))
			waits := make([][]time.Duration, clients)
			var all sync.WaitGroup
			b.ResetTimer()
			for c := range clients {
				s, err := h.newSession(b.Context(), protocol.NewSessionParams{})
				if err != nil {
					b.Fatal(err)
				}
				all.Go(func() {
					for left.Add(-1) >= 0 {
						start := time.Now()
						a, err := h.prompt(b.Context(), protocol.PromptParams{
							Scope: protocol.Scope{SessionID: s.SessionID},
							Text:  "List the three largest files.", Wait: no,
						})
						if err != nil {
							b.Error(err)
							return
						}
						waits[c] = append(waits[c], time.Since(start))
						events.wait(a.Reply.Accepted.RunID)
					}
				})
			}
			all.Wait()
			reportMedian(b, slices.Concat(waits...))
		})
	}
}

// endings is an event log that only notes which runs have ended.
type endings struct {
	mu   sync.Mutex
	ends map[string]chan struct{}
}

func (e *endings) of(run string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ends[run] == nil {
		e.ends[run] = make(chan struct{})
	}
	return e.ends[run]
}

func (e *endings) wait(run string) {
	<-e.of(run)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ends, run)
}

func (e *endings) Append(events ...protocol.Event) [][]byte {
	for _, ev := range events {
		if _, ok := ev.(protocol.AgentEnd); ok {
			close(e.of(ev.Where().RunID))
		}
	}
	return nil
}

func (*endings) Run(string) ([][]byte, bool) { return nil, false }

func (*endings) LastSeq() uint64 { return 0 }

func reportMedian(b *testing.B, waits []time.Duration) {
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2])/1e3, "us/accept")
}

// BenchmarkListSessions lists 1,000 sessions of 40 messages beside the least that
// has to happen: their names and sizes where they are known, their bytes where a
// daemon has just started.
func BenchmarkListSessions(b *testing.B) {
	dir := b.TempDir()
	fill, err := session.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	text := string(bytes.Repeat([]byte("some words of a message "), 20))
	for i := range 1000 {
		id := fmt.Sprintf("ses-01a1f0d0-0000-7000-8000-%012d", i)
		records := []session.Record{{At: time.Now(), Fact: session.Created{SessionID: id, Title: "A session"}}}
		for n := range 40 {
			records = append(records, session.Record{At: time.Now(), Fact: session.MessageAdded{
				ID: fmt.Sprint("m", n+1), ParentID: map[bool]string{true: fmt.Sprint("m", n)}[n > 0], RunID: "run-1",
				TurnKind: "prompt",
				Message:  model.Message{Role: model.User, Text: text},
			}})
		}
		_, j, err := fill.Create(id, records)
		if err != nil {
			b.Fatal(err)
		}
		_ = j.Close()
	}
	if err := fill.Close(); err != nil {
		b.Fatal(err)
	}
	raw := func(b *testing.B, look func(path string) error) {
		for b.Loop() {
			entries, err := os.ReadDir(filepath.Join(dir, "sessions"))
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range entries {
				if err := look(filepath.Join(dir, "sessions", e.Name())); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	list := func(b *testing.B, h *Hub) {
		limit := 1000
		r, err := answered(h.listSessions(b.Context(), protocol.ListSessionsParams{Limit: &limit}))
		if err != nil || len(r.Sessions) != limit {
			b.Fatal(len(r.Sessions), err)
		}
	}
	start := func(b *testing.B) (*Hub, *session.Store) {
		store, err := session.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		return NewHub(Options{Store: store, Events: newRecorder(), Now: time.Now, Fault: func(_ string, err error) {
			b.Error(err)
		}}), store
	}
	b.Run("warm/raw", func(b *testing.B) { raw(b, func(path string) error { _, err := os.Lstat(path); return err }) })
	b.Run("warm/hub", func(b *testing.B) {
		h, store := start(b)
		defer func() { _ = store.Close() }()
		for list(b, h); b.Loop(); {
			list(b, h)
		}
	})
	b.Run("cold/raw", func(b *testing.B) { raw(b, func(path string) error { _, err := os.ReadFile(path); return err }) })
	b.Run("cold/hub", func(b *testing.B) {
		for b.Loop() {
			h, store := start(b)
			list(b, h)
			_ = store.Close()
		}
	})
}

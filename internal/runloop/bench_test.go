package runloop

import (
	"fmt"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// benchRun steps one whole run of ten deltas.
func benchRun(m *machine, now time.Time) effects {
	m.step(now, promptIn{nil, protocol.PromptParams{Text: "List the three largest files in this folder, please."}, false})
	for range 10 {
		m.step(now, deltaIn{m.gen, model.Delta{Text: "word "}})
	}
	m.step(now, deltaIn{m.gen, model.Delta{Stop: model.StopEnd}})
	m.step(now, modelDoneIn{m.gen, nil})
	return m.take()
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

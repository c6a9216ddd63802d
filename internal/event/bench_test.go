package event

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"noused/internal/protocol"
)

var benchEvent = protocol.MessageUpdate{
	Ref: protocol.Ref{
		RunID:     "run-0198c0de-0000-7000-8000-000000000000",
		SessionID: "ses-0198c0de-0000-7000-8000-000000000000", TurnID: "1",
	},
	MessageID: "msg-0198c0de-0000-7000-8000-000000000000", Delta: "word ",
}

// BenchmarkAppend sets publishing a delta beside copying its line, and beside
// encoding it without a log. The readers share the processors with it, so that
// their number shows; what Append itself does about them is one channel send.
func BenchmarkAppend(b *testing.B) {
	text := New("ep", 1, time.Now).Append(benchEvent)[0]
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		var buf []byte
		for b.Loop() {
			if cap(buf)-len(buf) < len(text) {
				buf = make([]byte, 0, ChunkSize)
			}
			buf = append(buf, text...)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		buf := make([]byte, 0, ChunkSize)
		for b.Loop() {
			payload, err := protocol.EncodePayload(benchEvent)
			if err != nil {
				b.Fatal(err)
			}
			buf = protocol.AppendEvent(buf[:0], benchEvent.Type(), payload, time.Now(), 123456)
		}
	})
	for _, readers := range []int{0, 1, 100, 1000} {
		b.Run(fmt.Sprintf("log/readers=%d", readers), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			log := New("ep", 16<<20, time.Now)
			var all sync.WaitGroup
			for range readers {
				c, _, _ := log.Begin("", nil, Filter{})
				all.Go(func() {
					var into [][]byte
					for {
						batch := log.Read(&c, 256<<10, into)
						switch into = batch.Lines; {
						case batch.End:
							return
						case batch.Wait != nil:
							<-batch.Wait
						}
					}
				})
			}
			for b.Loop() {
				log.Append(benchEvent)
			}
			b.StopTimer()
			log.Close()
			all.Wait()
		})
	}
}

// BenchmarkRead sets following the log, one batch for many events, beside
// copying the slice headers of as many lines.
func BenchmarkRead(b *testing.B) {
	for _, f := range []struct {
		name   string
		filter Filter
	}{
		{"all", Filter{}},
		{"session", Filter{SessionID: benchEvent.SessionID}},
		{"no match", Filter{SessionID: "another"}},
	} {
		log := New("ep", 1<<20, time.Now)
		for range 1000 {
			log.Append(benchEvent)
		}
		b.Run(f.name, func(b *testing.B) {
			b.ReportAllocs()
			var into [][]byte
			start, _, _ := log.Begin("", number(0), f.filter)
			for b.Loop() {
				c := start
				for {
					batch := log.Read(&c, 1<<20, into)
					if into = batch.Lines; batch.Wait != nil {
						break
					}
				}
			}
		})
	}
}

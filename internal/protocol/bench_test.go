package protocol

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// The raw limit beside each: the same bytes found by a scan for LF and copied.

var benchLine = []byte(`{"v":"1","id":"c1234","type":"prompt","payload":{"text":"` +
	strings.Repeat("the quick brown fox jumps over the lazy dog. ", 5) +
	`","wait":false,"session_id":"ses-0190b1c2-7e7e-7abc-8def-0123456789ab"}}` + "\n")

func BenchmarkDecode(b *testing.B) {
	r := newRecorder()
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(benchLine)))
		buf := make([]byte, len(benchLine))
		for b.Loop() {
			if n := bytes.IndexByte(benchLine, '\n'); copy(buf, benchLine[:n]) != n {
				b.Fatal("cut short")
			}
		}
	})
	b.Run("noused", func(b *testing.B) {
		b.SetBytes(int64(len(benchLine)))
		b.ReportAllocs()
		for b.Loop() {
			cmd, bad := DecodeCommand(benchLine)
			if bad != nil {
				b.Fatal(bad)
			}
			if err := r.Run(context.Background(), cmd).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	ev := MessageUpdate{
		Ref: Ref{
			RunID:     "run-0190b1c2-7e7e-7abc-8def-0123456789ab",
			SessionID: "ses-0190b1c2-7e7e-7abc-8def-0123456789ab", TurnID: "1",
		},
		MessageID: "msg-0190b1c2-7e7e-7abc-8def-0123456789ab", Delta: "jumps ",
	}
	encode := func(out []byte) []byte {
		payload, err := EncodePayload(ev)
		if err != nil {
			b.Fatal(err)
		}
		return AppendEvent(out, ev.Type(), payload, sampleTime, 123456)
	}
	line := encode(nil)
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		buf := make([]byte, len(line))
		for b.Loop() {
			if n := bytes.IndexByte(line, '\n'); copy(buf, line[:n]) != n {
				b.Fatal("cut short")
			}
		}
	})
	b.Run("noused", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = encode(buf[:0])
		}
	})
}

func BenchmarkLineReader(b *testing.B) {
	const lines = 1000
	text := bytes.Repeat(benchLine, lines)
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		buf := make([]byte, len(benchLine))
		for b.Loop() {
			n := 0
			for rest := text; len(rest) > 0; n++ {
				end := bytes.IndexByte(rest, '\n')
				copy(buf, rest[:end])
				rest = rest[end+1:]
			}
			if n != lines {
				b.Fatalf("got %d lines", n)
			}
		}
	})
	b.Run("noused", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			l, n := NewLineReader(bytes.NewReader(text), DefaultMaxLine), 0
			for _, err := l.Next(); err == nil; _, err = l.Next() {
				n++
			}
			if n != lines {
				b.Fatalf("got %d lines", n)
			}
		}
	})
}

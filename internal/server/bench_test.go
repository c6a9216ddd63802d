package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"noused/internal/event"
	"noused/internal/protocol"
)

// Beside each is the raw limit in the same run: the same bytes over a socket of
// the same kind, moved by the least code that can.

// rawServer answers so many bytes with reply, for each connection.
func rawServer(b *testing.B, size int, reply []byte) string {
	path := filepath.Join(b.TempDir(), "raw")
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	b.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				buf := make([]byte, 64<<10)
				for n := 0; ; {
					m, err := conn.Read(buf)
					if err != nil {
						return
					}
					for n += m; n >= size; n -= size {
						if _, err := conn.Write(reply); err != nil {
							return
						}
					}
				}
			})
		}
	})
	return path
}

// BenchmarkPing is one op per ping: one at a time, and 32 at a time.
func BenchmarkPing(b *testing.B) {
	ping, pong := cmd("c1", "ping", "{}"), `{"v":"1","id":"c1","type":"pong","payload":{"message":"pong"},"ok":true}`+"\n"
	for _, at := range []int{1, 32} {
		request, reply := strings.Repeat(ping, at), strings.Repeat(pong, at)
		run := func(path string) func(*testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				w := dial(b, path)
				in := make([]byte, len(reply))
				for n := 0; n < b.N; n += at {
					w.send(request)
					for got := 0; got < len(reply); {
						m, err := w.Read(in[got:])
						if err != nil {
							b.Fatal(err)
						}
						got += m
					}
				}
				if string(in) != reply {
					b.Fatalf("got %s", in)
				}
				_ = w.Close()
			}
		}
		b.Run(fmt.Sprintf("raw/%d", at), run(rawServer(b, len(request), []byte(reply))))
		b.Run(fmt.Sprintf("server/%d", at), run(serve(b, testMux(b).Mux, 0).path))
	}
}

// BenchmarkKin is one op per connection: whether the process that started this one
// is a descendant, which it is not. raw reads one file of it.
func BenchmarkKin(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid())); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("server", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if is, err := kinOf(os.Getppid()); is != stranger || err != nil {
				b.Fatal(is, err)
			}
		}
	})
}

// BenchmarkFanout is one op per event published, to so many readers who all get
// it. raw writes each event to one connection after the other.
func BenchmarkFanout(b *testing.B) {
	ev := protocol.MessageUpdate{
		Ref: protocol.Ref{
			RunID:     "run-0198c0de-0000-7000-8000-000000000000",
			SessionID: "ses-0198c0de-0000-7000-8000-000000000000", TurnID: "1",
		},
		MessageID: "msg-0198c0de-0000-7000-8000-000000000000", Delta: "word ",
	}
	text := event.New("ep-1", 0, time.Now).Append(ev)[0]
	for _, readers := range []int{1, 10, 100, 500} {
		for _, kind := range []string{"raw", "log"} {
			b.Run(fmt.Sprintf("%s/%d", kind, readers), func(b *testing.B) {
				b.SetBytes(int64(len(text) * readers))
				log := newLog(1 << 30)
				var clients, servers []*wire
				var serving []<-chan struct{}
				for range readers {
					w, s := newReader(b, log)
					clients = append(clients, w)
					servers = append(servers, &wire{b, s.conn, nil})
					if kind == "log" {
						serving = append(serving, follow(s))
					}
				}
				var all sync.WaitGroup
				b.ResetTimer()
				for _, w := range clients {
					all.Go(func() {
						in := bufio.NewReaderSize(w, 16<<10)
						for range b.N {
							if _, err := in.ReadSlice('\n'); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				for range b.N {
					if kind == "log" {
						log.Append(ev)
						continue
					}
					for _, w := range servers {
						if _, err := w.Write(text); err != nil {
							b.Fatal(err)
						}
					}
				}
				all.Wait()
				b.StopTimer()
				log.Close()
				for _, done := range serving {
					<-done
				}
				for _, w := range append(clients, servers...) {
					_ = w.Close()
				}
			})
		}
	}
}

// BenchmarkEnvelope is decoding a ping, running it and encoding its reply,
// without a socket; raw copies the bytes of both.
func BenchmarkEnvelope(b *testing.B) {
	request, reply := []byte(cmd("c1", "ping", "{}")),
		[]byte(`{"v":"1","id":"c1","type":"pong","payload":{"message":"pong"},"ok":true}`+"\n")
	out := make([]byte, 0, 1024)
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			out = append(append(out[:0], request...), reply...)
		}
	})
	b.Run("mux", func(b *testing.B) {
		b.ReportAllocs()
		mux := testMux(b).Mux
		for b.Loop() {
			c, bad := protocol.DecodeCommand(request[:len(request)-1])
			if bad != nil {
				b.Fatal(bad)
			}
			out = mux.Run(context.Background(), c).Append(out[:0], c.ID)
		}
	})
}

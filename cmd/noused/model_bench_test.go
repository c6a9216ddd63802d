package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// The way of a delta from a vendor's server to a client: a real server here, a
// real daemon as a process of its own, its event socket. raw is another process,
// which copies the bytes of the same answer to a Unix socket and looks at none.

// relayCommand is this program as raw.
const relayCommand = "noused-raw-relay"

// rawRelay listens on the socket that its first argument names. For each
// connection it posts to the address in the second one, and copies the answer.
func rawRelay() {
	to, err := url.Parse(os.Args[2])
	if err == nil {
		err = relayAll(os.Args[1], to.Host)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func relayAll(socket, host string) error {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		to, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() { // ends with the answer, or this process
			defer func() { _ = to.Close() }()
			from, err := net.Dial("tcp", host)
			if err != nil {
				return
			}
			defer func() { _ = from.Close() }()
			_, _ = fmt.Fprintf(from, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", host)
			buf := make([]byte, 64<<10)
			for {
				n, err := from.Read(buf)
				if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
					return
				}
			}
		}()
	}
}

// startRelay starts raw and returns its socket.
func startRelay(b *testing.B, url string) string {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "raw")
	cmd := exec.Command(relayCommand, socket, url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	return socket
}

// vendorStream is how a vendor says a text in pieces.
type vendorStream struct{ begin, delta, end string }

var vendorStreams = map[string]vendorStream{
	"openai": {
		begin: "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
		delta: "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1763700000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]}\n\n",
		end:   "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
	},
	"anthropic": {
		begin: "event: message_start\ndata: " +
			"{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n" +
			"event: content_block_start\ndata: " +
			"{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
		delta: "event: content_block_delta\ndata: " +
			"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n",
		end: "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
			"event: message_delta\ndata: " +
			"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n" +
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	},
}

// serveStream answers every request with the deltas that say calls for, each
// written at once.
func serveStream(b *testing.B, s vendorStream, say func(ctx context.Context, delta func(text string))) string {
	b.Helper()
	server := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
		say := say
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, s.begin)
		flusher := w.(http.Flusher)
		flusher.Flush()
		if len(body) > 0 && !bytes.Contains(body, []byte(`"tools":`)) { // the session is long: this is to be a summary
			say = func(_ context.Context, delta func(string)) { delta("a summary") }
		}
		say(r.Context(), func(text string) {
			_, _ = fmt.Fprintf(w, s.delta, text)
			flusher.Flush()
		})
		_, _ = io.WriteString(w, s.end)
	}))
	b.Cleanup(server.Close)
	return server.URL
}

var benchStart = time.Now()

// stamp is a delta that says when it was made, age how long ago that was.
func stamp() string { return fmt.Sprintf("<%d>", time.Since(benchStart)) }

func age(line []byte) (time.Duration, bool) {
	now := time.Since(benchStart)
	_, rest, ok := bytes.Cut(line, []byte("<"))
	digits, _, closed := bytes.Cut(rest, []byte(">"))
	at, err := strconv.ParseInt(string(digits), 10, 64)
	return now - time.Duration(at), ok && closed && err == nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// reportAges says the median as the time of an operation, and the slowest of a
// hundred.
func reportAges(b *testing.B, ages []time.Duration) {
	b.Helper()
	slices.Sort(ages)
	b.ReportMetric(float64(quantile(ages, 0.5)), "ns/op")
	b.ReportMetric(float64(quantile(ages, 0.99)), "p99-ns")
}

// promptNew prompts in a new session and does not wait.
func promptNew(b *testing.B, c *client.Client) {
	b.Helper()
	ctx, no := context.Background(), false
	s, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{})
	if err == nil {
		_, err = client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: s.SessionID},
			Text:  "go", Wait: &no,
		})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// benchWires are in one order.
var benchWires = []string{"openai", "anthropic"}

// BenchmarkDelta is the time from the server's write to the client's read, its
// median: of one delta after the other, and of one every 5 ms, as a model
// writes, when the processors have gone to sleep in between.
func BenchmarkDelta(b *testing.B) {
	b.Setenv("TEST_KEY", "none")
	for _, vendor := range benchWires {
		for _, pause := range []time.Duration{0, 5 * time.Millisecond} {
			group := fmt.Sprintf("%s/every=%s/", vendor, pause)
			// Each turn has a channel that is asked for deltas and closed at its end.
			turns := make(chan chan struct{}, 1)
			address := serveStream(b, vendorStreams[vendor], func(ctx context.Context, delta func(string)) {
				for range <-turns {
					delta(stamp())
				}
			})
			measure := func(b *testing.B, in *bufio.Reader, turn chan struct{}) {
				var ages []time.Duration
				for b.Loop() {
					time.Sleep(pause) // so often the vendor says something
					turn <- struct{}{}
					for {
						line, err := in.ReadSlice('\n')
						if err != nil {
							b.Fatal(err)
						}
						if took, ok := age(line); ok {
							ages = append(ages, took)
							break
						}
					}
				}
				reportAges(b, ages)
			}
			raw := startRelay(b, address)
			b.Run(group+"raw", func(b *testing.B) {
				turn := make(chan struct{})
				turns <- turn
				defer close(turn)
				conn := dialWire(b, raw)
				measure(b, bufio.NewReaderSize(conn, 1<<20), turn)
			})
			d := newDaemon(b, "--config", modelConfig(b, vendor, address, testKey))
			b.Run(group+"noused", func(b *testing.B) {
				turn := make(chan struct{})
				turns <- turn
				c, done := d.dial(), d.events(protocol.SubscribeParams{Types: []string{"agent_end"}})
				conn := dialWire(b, d.Socket+".events")
				conn.send(`{"v":"1","id":"s","type":"subscribe","payload":{"types":["message_update"]}}`)
				in := bufio.NewReaderSize(conn, 1<<20)
				if _, err := in.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
				promptNew(b, c)
				measure(b, in, turn)
				close(turn)
				await(b, done, func(protocol.Event) bool { return true })
			})
		}
	}
}

// streamsAtOnce is how many sessions BenchmarkStreams has.
const streamsAtOnce = 50

// BenchmarkStreams is one op per delta, of fifty sessions that are all answered
// as fast as it goes. unfairness is the time of the session that was done last
// over that of the one that was done first.
func BenchmarkStreams(b *testing.B) {
	b.Setenv("TEST_KEY", "none")
	for _, vendor := range benchWires {
		// Every answer waits until all are asked for.
		var mu sync.Mutex
		var each, asked int
		var all chan struct{}
		address := serveStream(b, vendorStreams[vendor], func(ctx context.Context, delta func(string)) {
			mu.Lock()
			n, everybody := each, all
			if asked++; asked == streamsAtOnce {
				close(all)
			}
			mu.Unlock()
			select {
			case <-everybody:
			case <-ctx.Done():
			}
			for range n {
				delta(stamp())
			}
		})
		begin := func(b *testing.B) (int, chan struct{}) {
			mu.Lock()
			defer mu.Unlock()
			each, asked, all = (b.N+streamsAtOnce-1)/streamsAtOnce, 0, make(chan struct{})
			return each, all
		}
		report := func(b *testing.B, ends []time.Duration) {
			b.Helper()
			slices.Sort(ends)
			b.ReportMetric(float64(ends[len(ends)-1])/float64(each*streamsAtOnce), "ns/op")
			b.ReportMetric(float64(ends[len(ends)-1])/float64(ends[0]), "unfairness")
		}
		raw := startRelay(b, address)
		b.Run(vendor+"/raw", func(b *testing.B) {
			n, released := begin(b)
			ends := make([]time.Duration, streamsAtOnce)
			var readers sync.WaitGroup
			for i := range ends {
				conn := dialWire(b, raw)
				readers.Go(func() {
					in := bufio.NewReaderSize(conn, 64<<10)
					<-released
					begun := time.Now()
					for got := 0; got < n; {
						line, err := in.ReadSlice('\n')
						if err != nil {
							b.Error(err)
							return
						}
						if _, ok := age(line); ok {
							got++
						}
					}
					ends[i] = time.Since(begun)
				})
			}
			readers.Wait()
			report(b, ends)
		})
		d := newDaemon(b, "--event-buffer", "512MiB", "--config", modelConfig(b, vendor, address, testKey))
		b.Run(vendor+"/noused", func(b *testing.B) {
			n, released := begin(b)
			c := d.dial()
			conn := dialWire(b, d.Socket+".events")
			conn.send(`{"v":"1","id":"s","type":"subscribe","payload":{"types":["message_update","warning"]}}`)
			in := bufio.NewReaderSize(conn, 256<<10)
			if _, err := in.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
			done := d.events(protocol.SubscribeParams{Types: []string{"agent_end"}})
			for range streamsAtOnce {
				promptNew(b, c)
			}
			<-released
			begun, got := time.Now(), map[string]int{}
			var ends []time.Duration
			for len(ends) < streamsAtOnce {
				if in.Buffered() == 0 {
					_ = conn.SetReadDeadline(time.Now().Add(hangTime))
				}
				line, err := in.ReadSlice('\n')
				if err != nil {
					b.Fatalf("%d of %d sessions were given all of their %d deltas: %v", len(ends), streamsAtOnce, n, err)
				}
				if _, ok := age(line); !ok {
					b.Fatalf("got %s", line)
				}
				_, rest, _ := bytes.Cut(line, []byte(`"session_id":"`))
				session := string(rest[:40])
				if got[session]++; got[session] == n {
					ends = append(ends, time.Since(begun))
				}
			}
			report(b, ends)
			for range streamsAtOnce {
				await(b, done, func(protocol.Event) bool { return true })
			}
		})
	}
}

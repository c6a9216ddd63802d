package server

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"noused/internal/protocol"
)

// long is an event whose line is as long as one may be, or a little shorter.
func long(c string) protocol.Event { return delta("ses-1", strings.Repeat(c, maxLine-1024)) }

// Readers get an event as long as a line may be, however many they are and whatever
// others hold of the daemon's memory, and what follows it.
func TestALongEventReachesEveryReader(t *testing.T) {
	for _, readers := range []int{1, 8} {
		t.Run(fmt.Sprint(readers), func(t *testing.T) {
			b := serve(t, &protocol.Mux{}, 16<<20)
			b.held.Take(room) // by clients that do not end their lines
			defer b.held.Give(room)
			var all []*wire
			for range readers {
				w := dial(t, protocol.EventSocket(b.path))
				w.subscribe("s", `{}`)
				all = append(all, w)
			}
			b.log.Append(long("x"))
			waitFor(func() bool { return b.readers.stopped() == readers })
			b.log.Append(delta("ses-1", "a"), long("y"), delta("ses-1", "z")) // push the first out of the log
			var reading sync.WaitGroup
			for _, w := range all {
				reading.Go(func() {
					for seq := uint64(1); seq <= 4; seq++ {
						if l, err := w.next(); err != nil || l.Seq != seq {
							t.Errorf("got event %d %s %v, want %d", l.Seq, l.Type, err, seq)
							return
						}
					}
				})
			}
			reading.Wait()
		})
	}
}

// One that takes a little at a time gets all of its line, whatever others publish and
// read meanwhile, and then is told what it missed.
func TestASlowReaderGetsAllOfALongEvent(t *testing.T) {
	b := serve(t, &protocol.Mux{}, 1<<20)
	slow, quick := dial(t, protocol.EventSocket(b.path)), dial(t, protocol.EventSocket(b.path))
	for _, w := range []*wire{slow, quick} {
		w.subscribe("s", `{}`)
	}
	b.log.Append(long("x"))
	quick.wantSeqs(1)
	var text strings.Builder
	seq := uint64(1)
	for !strings.Contains(text.String(), "\n") {
		if _, err := io.CopyN(&text, slow, 64<<10); err != nil {
			t.Fatalf("after %d bytes: %v", text.Len(), err)
		}
		seq++
		b.log.Append(delta("ses-1", strings.Repeat("y", 32<<10)))
		quick.wantSeqs(seq)
	}
	line, rest, _ := strings.Cut(text.String(), "\n")
	if len(line) < maxLine-1024 || !strings.HasSuffix(line, "}") {
		t.Fatalf("got a line of %d bytes", len(line))
	}
	slow.in = protocol.NewLineReader(io.MultiReader(strings.NewReader(rest), slow.UnixConn), 1<<30)
	next := uint64(2)
	for next <= seq {
		l := slow.recv()
		if l.Type == "warning" {
			next = l.Seq + 1
			continue
		}
		if l.Seq != next {
			t.Fatalf("got event %d, want %d", l.Seq, next)
		}
		next++
	}
}

// Readers that stand still in long lines cost no memory without end: the one that has
// stood for longest goes, and is in the log. One that reads goes on.
func TestReadersThatStandStillInLongLinesAreLetGo(t *testing.T) {
	b := serve(t, &protocol.Mux{}, 1<<20)
	quick := dial(t, protocol.EventSocket(b.path))
	quick.subscribe("s", `{}`)
	var still []*wire
	for seq := uint64(1); seq <= 6; seq++ {
		w := dial(t, protocol.EventSocket(b.path))
		w.subscribe("s", `{}`)
		still = append(still, w)
		b.log.Append(long("x"))
		quick.wantSeqs(seq)
		waitFor(func() bool {
			return b.readers.stopped()+b.seen.FilterMessageSnippet("stands still").Len() >= len(still)
		})
	}
	if got := b.readers.keptBytes(); got > mostKept {
		t.Errorf("got %d bytes for readers that stand still, want at most %d", got, mostKept)
	}
	gone := b.seen.FilterMessageSnippet("stands still").Len()
	if gone == 0 || gone == len(still) {
		t.Fatalf("got %d of %d let go", gone, len(still))
	}
	for i, w := range still {
		if l, err := w.next(); i < gone != (err != nil) {
			t.Errorf("reader %d of %d, %d let go: got event %d %v", i, len(still), gone, l.Seq, err)
		}
	}
}

// A deadline counts what a client takes, not what remains to be written.
func TestADeadlineCountsProgress(t *testing.T) {
	w, conn := pair(t)
	const total, most = 64 << 20, 10 * time.Millisecond
	got, reads, asked := 0, true, 0
	limit := func(int) time.Duration { // asked before each wait, and once the deadline is set
		if asked++; reads && asked%2 == 1 {
			// There is as much, as the socket is full, unless this process had to wait for a processor.
			_ = w.SetReadDeadline(time.Now().Add(time.Second))
			n, err := io.CopyN(io.Discard, w, 64<<10)
			if got += int(n); err != nil && !isTimeout(err) {
				t.Error(err)
			}
		}
		return most
	}
	began := time.Now()
	if err := push(conn, [][]byte{make([]byte, total)}, limit); err != nil || time.Since(began) < most {
		t.Fatalf("after %d of %d bytes and %v: %v", got, total, time.Since(began), err)
	}
	reads = false
	if err := push(conn, [][]byte{make([]byte, total)}, limit); !isTimeout(err) {
		t.Errorf("one that reads nothing: got %v, want a timeout", err)
	}
}

// A stop waits for one that reads a line of many deadlines, and not for one that does not.
func TestStopDrainsALongEvent(t *testing.T) {
	patience(t, time.Second)
	b := serve(t, &protocol.Mux{}, 16<<20)
	w, still := dial(t, protocol.EventSocket(b.path)), dial(t, protocol.EventSocket(b.path))
	for _, w := range []*wire{w, still} {
		w.subscribe("s", `{}`)
	}
	b.log.Append(long("x"))
	b.log.Append(delta("ses-1", "last"))
	var all sync.WaitGroup
	all.Go(func() {
		w.wantSeqs(1, 2)
		w.wantEnd()
	})
	b.stop()
	all.Wait()
	if _, err := io.Copy(io.Discard, still); err != nil && !isClosed(err) {
		t.Error(err)
	}
}

// stopped is how many readers have stopped in a line, keptBytes what they have of it.
func (r *Readers) stopped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.in)
}

func (r *Readers) keptBytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum()
}

func waitFor(so func() bool) {
	for !so() {
		runtime.Gosched()
	}
}

func isClosed(err error) bool { return strings.Contains(err.Error(), net.ErrClosed.Error()) }

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"noused/internal/event"
	"noused/internal/protocol"
)

// newReader is the connection of an event client, not yet served.
func newReader(t testing.TB, log *event.Log) (*wire, *eventConn) {
	client, conn := pair(t)
	s := &eventConn{
		conn: conn, log: log, readers: new(Readers), maxLine: maxLine, zlog: zap.NewNop(),
		requests: make(chan request), done: make(chan struct{}),
	}
	s.cursor, _, _ = log.Begin("", nil, event.Filter{})
	return client, s
}

// follow serves it; the channel is closed when that has ended.
func follow(s *eventConn) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve()
		_ = s.conn.Close()
	}()
	return done
}

func newLog(keep int) *event.Log { return event.New("ep-1", keep, time.Now) }

func (w *wire) wantSeqs(seqs ...uint64) {
	w.t.Helper()
	for _, n := range seqs {
		if l := w.recv(); l.Seq != n {
			w.t.Fatalf("got event %d (%s), want %d", l.Seq, l.Type, n)
		}
	}
}

func (w *wire) subscribe(id, payload string) protocol.Subscribed {
	w.t.Helper()
	w.send(cmd(id, "subscribe", payload))
	for {
		l := w.recv()
		if l.ID != id {
			continue // from before
		}
		var p protocol.Subscribed
		if err := json.Unmarshal(l.Payload, &p); err != nil || l.Type != "subscribed" || !l.OK {
			w.t.Fatalf("got %+v %v", l, err)
		}
		return p
	}
}

func TestASilentClientGetsWhatFollows(t *testing.T) {
	log := newLog(1 << 20)
	log.Append(delta("a", "before it came"))
	w, s := newReader(t, log)
	log.Append(delta("a", "x"), protocol.Status{Code: "c"})
	done := follow(s)
	log.Append(delta("b", "y"))
	w.wantSeqs(2, 3, 4)
	log.Close()
	w.wantEnd()
	<-done
}

func TestSubscribe(t *testing.T) {
	log := newLog(1 << 20)
	log.Append(delta("a", "1"), delta("b", "2"), protocol.Status{Code: "3"}, delta("a", "4"))
	w, s := newReader(t, log)
	done := follow(s)
	for i, c := range []struct {
		payload string
		next    uint64
		gap     bool
		seqs    []uint64
	}{
		{`{"after":0}`, 1, false, []uint64{1, 2, 3, 4}},
		{`{"after":2,"epoch":"ep-1"}`, 3, false, []uint64{3, 4}},
		{`{"after":0,"session_id":"a"}`, 1, false, []uint64{1, 4}},
		{`{"after":0,"types":["status"]}`, 1, false, []uint64{3}},
		{`{"after":0,"types":[],"session_id":""}`, 1, false, []uint64{1, 2, 3, 4}},
		{`{"after":0,"types":["status","message_update"],"session_id":"b"}`, 1, false, []uint64{2}},
		{`{}`, 5, false, nil},
		{`{"after":2,"epoch":"ep-0"}`, 1, true, []uint64{1, 2, 3, 4}},
		{`{"after":1000}`, 1, true, []uint64{1, 2, 3, 4}},
	} {
		got := w.subscribe(fmt.Sprint("s", i), c.payload)
		if want := (protocol.Subscribed{Epoch: "ep-1", NextSeq: c.next, Gap: c.gap}); got != want {
			t.Errorf("%s: got %+v, want %+v", c.payload, got, want)
		}
		w.wantSeqs(c.seqs...)
	}
	log.Append(delta("a", "5"))
	w.wantSeqs(5)
	log.Close()
	<-done
}

func TestSubscribeAnswersWhatItCannotDo(t *testing.T) {
	log := newLog(1 << 20)
	w, s := newReader(t, log)
	done := follow(s)
	for _, c := range []struct{ line, id, code, message string }{
		{"{broken\n", "", "invalid_command", "invalid_json"},
		{cmd("c1", "ping", "{}"), "c1", "invalid_command", "unknown_command"},
		{cmd("c2", "subscribe", `{"after":-1}`), "c2", "invalid_payload", "after"},
		{cmd("c3", "subscribe", `{"types":["dance"]}`), "c3", "invalid_payload", "types"},
		{`{"v":"1","id":"c4","type":"` + strings.Repeat("x", maxLine) + "\n", "c4", "invalid_command", "line_too_long"},
	} {
		w.send(c.line)
		if l := w.want(c.id, "error"); string(l.Error.Code) != c.code || !strings.HasPrefix(l.Error.Message, c.message) {
			t.Errorf("%.60s: got %v, want %s %s", c.line, l.Error, c.code, c.message)
		}
		log.Append(delta("a", "x"))
		w.wantSeqs(log.LastSeq()) // the stream goes on as it was
	}
	log.Close()
	<-done
}

// Anyone who resumes in the middle, again and again while others publish, sees
// each event exactly once and in order.
func TestResumeWhileEventsArePublished(t *testing.T) {
	log := newLog(64 << 20)
	const total, publishers = 6000, 3
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for range total / publishers {
				log.Append(delta("a", "x"))
			}
		})
	}
	w, s := newReader(t, log)
	done := follow(s)
	seq := uint64(0)
	for i := 0; seq < total; i++ {
		got := w.subscribe(fmt.Sprint("s", i), fmt.Sprintf(`{"epoch":"ep-1","after":%d}`, seq))
		if got.Gap || got.NextSeq != seq+1 {
			t.Fatalf("got %+v after %d", got, seq)
		}
		for range min(700, total-seq) {
			seq++
			w.wantSeqs(seq)
		}
	}
	all.Wait()
	log.Close()
	w.wantEnd()
	<-done
}

func TestASlowReaderIsToldWhatItMissed(t *testing.T) {
	for name, filter := range map[string]string{"everything": "{}", "one session": `{"session_id":"a"}`} {
		log := newLog(50_000)
		w, s := newReader(t, log)
		done := follow(s)
		w.subscribe("s1", filter)
		for range 5000 { // far more than the socket and the log hold
			log.Append(delta("a", strings.Repeat("x", 900)))
		}
		log.Close()
		next, gaps := uint64(1), 0
		for {
			l, err := w.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.Type == "warning" {
				var p protocol.Warning
				if err := json.Unmarshal(l.Payload, &p); err != nil || p.Code != "events_dropped" || p.FromSeq != next ||
					p.ToSeq < next || l.Seq != p.ToSeq {
					t.Fatalf("%s: got event %d %s, want a gap from %d", name, l.Seq, l.Payload, next)
				}
				gaps++
			} else if l.Seq != next {
				t.Fatalf("%s: got event %d, want %d", name, l.Seq, next)
			}
			next = l.Seq + 1
		}
		if gaps == 0 || next != 5001 {
			t.Errorf("%s: got %d gaps and the end at %d, want some and 5001", name, gaps, next)
		}
		<-done
	}
}

func TestASlowReaderDelaysNobody(t *testing.T) {
	log := newLog(50_000)
	slow, s := newReader(t, log)
	slowDone := follow(s)
	w, s2 := newReader(t, log)
	done := follow(s2)
	for n := range uint64(3000) {
		log.Append(delta("a", strings.Repeat("x", 900)))
		w.wantSeqs(n + 1)
	}
	log.Close()
	<-done
	_ = slow.Close() // it never read: its connection ends with it
	<-slowDone
}

// socat -u and nc -N close their write side and read on.
func TestHalfCloseIsNotTheEnd(t *testing.T) {
	log := newLog(1 << 20)
	w, s := newReader(t, log)
	done := follow(s)
	w.send(cmd("s1", "subscribe", `{"session_id":"a"}`))
	_ = w.CloseWrite()
	w.want("s1", "subscribed")
	for n := range uint64(50) {
		log.Append(delta("a", "x"))
		w.wantSeqs(n + 1)
	}
	_ = w.Close()
	<-done // though nothing is published any more
}

func TestAClosedReaderIsNoticed(t *testing.T) {
	for name, leave := range map[string]func(*wire){
		"at once":           func(w *wire) { _ = w.Close() },
		"after subscribing": func(w *wire) { w.subscribe("s1", "{}"); _ = w.Close() },
		"in mid-line":       func(w *wire) { w.send("{"); _ = w.Close() },
		"half, then wholly": func(w *wire) { _ = w.CloseWrite(); _ = w.Close() },
	} {
		w, s := newReader(t, newLog(1<<20))
		done := follow(s)
		leave(w)
		<-done
		if s.conn.SetDeadline(time.Time{}) == nil {
			t.Errorf("%s: the connection is still open", name)
		}
	}
}

func TestStopDrainsReaders(t *testing.T) {
	patience(t, time.Hour) // however slow they are
	b := serve(t, new(protocol.Mux), 16<<20)
	var readers []*wire
	for i := range 20 {
		w := dial(t, b.path+".events")
		w.subscribe("s1", []string{"{}", `{"session_id":"a"}`}[i%2])
		readers = append(readers, w)
	}
	const total = 3000 // more than a socket holds
	var all sync.WaitGroup
	for _, w := range readers {
		all.Go(func() {
			text, err := io.ReadAll(w)
			if got := bytes.Count(text, []byte{'\n'}); got != total || err != nil {
				t.Errorf("got %d events before the end %v, want %d", got, err, total)
			}
		})
	}
	for range total {
		b.log.Append(delta("a", "x"))
	}
	b.stop()
	all.Wait()
}

// One that reads nothing does not hold a stop up for ever, nor until the grace is over.
func TestStopDoesNotWaitForAReaderThatReadsNothing(t *testing.T) {
	patience(t, 50*time.Millisecond)
	b := serve(t, new(protocol.Mux), 16<<20)
	dial(t, b.path+".events").subscribe("s1", "{}")
	for range 3000 { // more than a socket holds
		b.log.Append(delta("a", "x"))
	}
	b.stop()
}

// patience sets how long a reader has for a batch while the daemon stops, and gives
// it an hour for all of them.
func patience(t *testing.T, batch time.Duration) {
	t.Helper()
	was, grace := drainTimeout, drainGrace
	drainTimeout, drainGrace = batch, time.Hour
	t.Cleanup(func() { drainTimeout, drainGrace = was, grace })
}

func TestBatchesAreWrittenWhole(t *testing.T) {
	log := newLog(16 << 20)
	for i := range 4000 { // every other one: nothing can be joined
		log.Append(delta([]string{"a", "b"}[i%2], fmt.Sprint(i)))
	}
	kept, _ := log.Run("run-1")
	want := len(kept) / 2
	w, s := newReader(t, log)
	done := follow(s)
	w.subscribe("s1", `{"after":0,"session_id":"b"}`)
	for i := range want {
		w.wantSeqs(uint64(2*i) + 2)
	}
	_ = w.Close()
	<-done
}

func TestAwaitEndsWithTheDeadline(t *testing.T) {
	_, conn := pair(t)
	done := make(chan error)
	go func() { done <- await(conn, 0) }()
	_ = conn.SetReadDeadline(longAgo)
	if err := <-done; !isTimeout(err) {
		t.Errorf("got %v, want a timeout", err)
	}
	_ = conn.Close()
	if err := await(conn, 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want that it is closed", err)
	}
}

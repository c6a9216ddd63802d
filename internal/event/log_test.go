package event

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

func delta(session, text string) protocol.Event {
	return protocol.MessageUpdate{
		Ref:       protocol.Ref{RunID: "run-" + session, SessionID: session, TurnID: "1"},
		MessageID: "msg-1", Delta: text,
	}
}

func number(n uint64) *uint64 { return &n }

// cursorAtStart puts a cursor before everything.
func cursorAtStart(log *Log, f Filter) Cursor {
	c, _, _ := log.Begin("", number(0), f)
	return c
}

// parse puts batches back into envelopes.
func parse(t interface{ Fatal(...any) }, lines [][]byte) []protocol.EventEnvelope {
	var out []protocol.EventEnvelope
	for line := range bytes.Lines(bytes.Join(lines, nil)) {
		var env protocol.EventEnvelope
		if err := json.Unmarshal(line, &env); err != nil {
			t.Fatal(err, string(line))
		}
		out = append(out, env)
	}
	return out
}

func seqs(envs []protocol.EventEnvelope) []uint64 {
	var out []uint64
	for _, env := range envs {
		out = append(out, env.Seq)
	}
	return out
}

// reader checks what one cursor is given.
type reader struct {
	c    Cursor
	seen uint64 // the last event that it got, or knows that it missed
}

// missing fails if an event that the reader wants lies between what it has
// seen and number next.
func (r *reader) missing(t *rapid.T, next uint64, published []protocol.Event) {
	for n := r.seen + 1; n < next; n++ {
		ev := published[n-1]
		if r.c.filter.matches(line{session: ev.Where().SessionID, typ: ev.Type()}) {
			t.Fatalf("event %d is missing before %d", n, next)
		}
	}
}

func (r *reader) read(t *rapid.T, log *Log, limit int, published []protocol.Event) {
	before := r.c.after // it has looked at so many
	b := log.Read(&r.c, limit, nil)
	if b.To > 0 {
		if b.From != before+1 || b.To < b.From {
			t.Fatalf("tells a gap from %d to %d after event %d", b.From, b.To, before)
		}
		r.missing(t, b.From, published)
		r.seen = b.To
	}
	size := 0
	for _, lines := range b.Lines {
		size += len(lines)
	}
	envs := parse(t, b.Lines)
	if len(envs) > 1 && size > limit {
		t.Fatalf("%d events have %d bytes, limit %d", len(envs), size, limit)
	}
	for _, env := range envs {
		r.missing(t, env.Seq, published)
		want := published[env.Seq-1]
		if env.Seq <= r.seen || env.ID != fmt.Sprint("evt-", env.Seq) || env.Type != want.Type() {
			t.Fatalf("%s event %d (%s) comes after %d, want %s", env.Type, env.Seq, env.ID, r.seen, want.Type())
		}
		r.seen = env.Seq
	}
	switch caughtUp := len(envs) == 0 && b.To == 0; {
	case caughtUp && b.Wait == nil:
		t.Fatal("neither an event nor a gap nor something to wait on")
	case caughtUp:
		r.missing(t, log.LastSeq()+1, published)
	case b.Wait != nil || b.End:
		t.Fatal("something and told to wait, or the end")
	}
}

// Every reader, however late, fast or choosy, gets each event it wants once and
// in order, or is told exactly which numbers it missed; what is kept is the
// newest that fits.
func TestReadersMissNothingSilently(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 200_000).Draw(t, "max")
		log := New("ep", limit, time.Now)
		var readers []*reader
		var published []protocol.Event
		var sizes []int
		filters := rapid.SampledFrom([]Filter{
			{}, {}, {SessionID: "a"}, {Types: []string{"status"}}, {SessionID: "b", Types: []string{"message_update", "status"}},
		})
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var events []protocol.Event
				for range rapid.IntRange(0, 20).Draw(t, "n") {
					size := rapid.SampledFrom([]int{0, 10, 100, 3000, 70_000}).Draw(t, "size")
					ev := delta(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session"), strings.Repeat("x", size))
					if rapid.Bool().Draw(t, "daemon's own") {
						ev = protocol.Status{Code: "c", Message: "m"}
					}
					events = append(events, ev)
				}
				published = append(published, events...)
				for _, line := range log.Append(events...) {
					sizes = append(sizes, len(line))
				}
			},
			"join": func(t *rapid.T) {
				after := rapid.Uint64Range(0, log.LastSeq()).Draw(t, "after")
				c, next, gap := log.Begin("ep", &after, filters.Draw(t, "filter"))
				if next != after+1 && !gap || next <= after {
					t.Fatalf("begins at %d after %d, gap %t", next, after, gap)
				}
				readers = append(readers, &reader{c: c, seen: next - 1})
			},
			"read": func(t *rapid.T) {
				if len(readers) == 0 {
					t.Skip("nobody reads")
				}
				r := readers[rapid.IntRange(0, len(readers)-1).Draw(t, "reader")]
				r.read(t, log, rapid.SampledFrom([]int{0, 1, 400, 5000, 300_000}).Draw(t, "limit"), published)
			},
			"": func(t *rapid.T) {
				if uint64(len(sizes)) != log.LastSeq() {
					t.Fatalf("%d events published, the last has number %d", len(sizes), log.LastSeq())
				}
				oldest, size := len(sizes), 0
				for ; oldest > 0 && (size == 0 || size+sizes[oldest-1] <= limit); oldest-- {
					size += sizes[oldest-1]
				}
				if _, next, _ := log.Begin("", number(0), Filter{}); next != uint64(oldest)+1 {
					t.Fatalf("keeps events from %d on, want from %d on", next, oldest+1)
				}
			},
		})
	})
}

func TestReaderWaitsForTheNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := New("ep", 1<<20, time.Now)
		const readers = 5
		var got [readers][]uint64
		var all sync.WaitGroup
		for i := range readers {
			c, _, _ := log.Begin("", nil, Filter{SessionID: "a"})
			all.Go(func() {
				for {
					b := log.Read(&c, 1<<20, nil)
					got[i] = append(got[i], seqs(parse(t, b.Lines))...)
					if b.End {
						return
					}
					if b.Wait != nil {
						<-b.Wait
					}
				}
			})
		}
		synctest.Wait()
		log.Append(delta("b", "not for them"))
		synctest.Wait()
		log.Append(delta("a", "one"), delta("b", "no"), delta("a", "two"))
		synctest.Wait()
		for i := range got {
			if want := []uint64{2, 4}; !slices.Equal(got[i], want) {
				t.Errorf("reader %d: got %v, want %v", i, got[i], want)
			}
		}
		log.Close()
		all.Wait()
	})
}

func TestBegin(t *testing.T) {
	log := New("ep-1", 3*len(New("ep-1", 0, time.Now).Append(delta("a", "x"))[0]), time.Now)
	for range 5 {
		log.Append(delta("a", "x"))
	}
	for name, c := range map[string]struct {
		epoch string
		after *uint64
		next  uint64
		gap   bool
	}{
		"live":                       {"", nil, 6, false},
		"live, of this epoch":        {"ep-1", nil, 6, false},
		"before the oldest kept":     {"", number(2), 3, false},
		"before one that was kept":   {"", number(1), 3, true},
		"from the beginning":         {"", number(0), 3, true},
		"in the middle":              {"ep-1", number(4), 5, false},
		"at the newest":              {"ep-1", number(5), 6, false},
		"another epoch":              {"ep-0", number(4), 3, true},
		"another epoch, live":        {"ep-0", nil, 3, true},
		"a number that is to come":   {"", number(9), 3, true},
		"the last number there is":   {"", number(1<<64 - 1), 3, true},
		"to come, but of this epoch": {"ep-1", number(6), 3, true},
	} {
		if _, next, gap := log.Begin(c.epoch, c.after, Filter{}); next != c.next || gap != c.gap {
			t.Errorf("%s: got next %d gap %t, want %d %t", name, next, gap, c.next, c.gap)
		}
	}
}

func TestAnEmptyLog(t *testing.T) {
	log := New("ep-1", 1<<20, time.Now)
	if log.LastSeq() != 0 || log.Epoch() != "ep-1" || log.Append() != nil {
		t.Errorf("got last %d, epoch %q", log.LastSeq(), log.Epoch())
	}
	c, next, gap := log.Begin("ep-1", number(0), Filter{})
	if b := log.Read(&c, 1, nil); next != 1 || gap || b.Wait == nil || b.End {
		t.Errorf("got next %d gap %t batch %+v, want 1, no gap and to wait", next, gap, b)
	}
}

func TestTheEndComesAfterEverything(t *testing.T) {
	log := New("ep", 1<<20, time.Now)
	c := cursorAtStart(log, Filter{})
	log.Append(delta("a", "one"), delta("a", "two"))
	log.Close()
	log.Close()
	if b := log.Read(&c, 1, nil); len(parse(t, b.Lines)) != 1 || b.End {
		t.Errorf("got %d events, end %t", len(parse(t, b.Lines)), b.End)
	}
	log.Read(&c, 1, nil)
	if b := log.Read(&c, 1, nil); !b.End || b.Wait != nil {
		t.Errorf("got %+v, want the end", b)
	}
}

func TestNeighboursAreWrittenAtOnce(t *testing.T) {
	log := New("ep", 1<<20, time.Now)
	for i := range 50 {
		log.Append(delta([]string{"a", "a", "b"}[i%3], "word "))
	}
	for name, c := range map[string]struct {
		filter          Filter
		buffers, events int
	}{
		"everything":   {Filter{}, 1, 50},
		"pairs":        {Filter{SessionID: "a"}, 17, 34},
		"single ones":  {Filter{SessionID: "b"}, 16, 16},
		"of all types": {Filter{Types: []string{"status", "message_update"}}, 1, 50},
	} {
		cur := cursorAtStart(log, c.filter)
		b := log.Read(&cur, 1<<20, nil)
		if len(b.Lines) != c.buffers || len(parse(t, b.Lines)) != c.events {
			t.Errorf("%s: got %d buffers of %d events, want %d of %d", name, len(b.Lines), len(parse(t, b.Lines)), c.buffers,
				c.events)
		}
	}
}

func TestRunKeepsItsLines(t *testing.T) {
	log := New("ep", 1<<20, time.Now)
	var want [][]byte
	for i := range 400 { // several chunks
		lines := log.Append(delta("a", strings.Repeat("x", 500)), delta("b", fmt.Sprint(i)))
		want = append(want, lines[1])
	}
	got, whole := log.Run("run-b")
	if diff := cmp.Diff(want, got); diff != "" || whole {
		t.Errorf("whole: %t %s", whole, diff)
	}
	if got, whole := log.Run("run-c"); got != nil || whole {
		t.Errorf("got %d lines of a run that is not there", len(got))
	}
	small := New("ep", 0, time.Now)
	small.Append(delta("a", "gone"), delta("a", "kept"))
	got, _ = small.Run("run-a")
	if got := parse(t, got); len(got) != 1 || got[0].Seq != 2 {
		t.Errorf("got %v, want event 2 alone", seqs(got))
	}
	log.Append(protocol.AgentStart{Ref: protocol.Ref{RunID: "run-d"}})
	if got, whole := log.Run("run-d"); len(got) != 1 || !whole {
		t.Errorf("got %d lines, whole: %t; want the start of the run", len(got), whole)
	}
}

func TestLinesCannotBeGrownOverEachOther(t *testing.T) {
	log := New("ep", 1<<20, time.Now)
	lines := log.Append(delta("a", "one"), delta("a", "two"))
	_ = append(lines[0], "overwritten"...)
	c := cursorAtStart(log, Filter{})
	b := log.Read(&c, 1, nil)
	_ = append(b.Lines[0], "overwritten"...)
	kept, _ := log.Run("run-a")
	if got := parse(t, kept); len(got) != 2 {
		t.Errorf("got %d events, want 2", len(got))
	}
}

// No event is ever more than one line, and one that cannot be encoded is reported in its place.
func TestAnyEventIsOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		event protocol.Event
		typ   string
		holds string
	}{
		"line ends in text":   {delta("a", "one\r\ntwo\u2028three"), "message_update", `one\r\ntwo`},
		"line ends in a tool": {protocol.ToolUpdate{Update: []byte("{\"a\":\n1}")}, "tool_execution_update", `{"a":1}`},
		"broken JSON": {
			protocol.ToolUpdate{Ref: protocol.Ref{RunID: "run-1"}, Update: []byte("{broken")},
			"error",
			`"run_id":"run-1"`,
		},
		"bytes, no text": {delta("a", "\xff"), "message_update", "\ufffd"},
	} {
		events := []protocol.Event{c.event}
		log := New("ep", 1<<20, time.Now)
		lines := log.Append(events...)
		got := parse(t, lines)
		if len(got) != 1 || got[0].Type != c.typ || !strings.Contains(string(got[0].Payload), c.holds) {
			t.Errorf("%s: got %s, want one %s with %s", name, lines, c.typ, c.holds)
		}
		if !cmp.Equal(events[0], c.event) {
			t.Errorf("%s: the caller's event was changed", name)
		}
	}
}

func TestConcurrentAppendsAndReaders(t *testing.T) {
	log := New("ep", 1<<20, time.Now)
	const writers, each = 4, 500
	var all sync.WaitGroup
	for i := range 8 {
		filter := Filter{}
		if i%2 == 1 {
			filter.SessionID = "a"
		}
		c := cursorAtStart(log, filter)
		all.Go(func() {
			seq, got := uint64(0), 0
			for seq < writers*each {
				b := log.Read(&c, 4<<10, nil)
				if b.Wait != nil {
					<-b.Wait
				}
				for _, env := range parse(t, b.Lines) {
					if env.Seq != seq+1 {
						t.Errorf("event %d comes after %d", env.Seq, seq)
						return
					}
					seq = env.Seq
					got++
				}
			}
		})
	}
	for range writers {
		all.Go(func() {
			for range each {
				log.Append(delta("a", "x"))
				log.Run("run-a")
			}
		})
	}
	all.Wait()
}

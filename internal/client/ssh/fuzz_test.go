package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/budget"
)

// newTrunk is one without an ssh: what the far end says is given to take.
func newTrunk(hello Hello) *trunk {
	return &trunk{
		o: Options{Host: "box"}, hello: hello, p: &process{}, room: budget.New(maxHeld), nudge: make(chan struct{}, 1), gone: make(chan struct{}),
		conns: map[*conn]struct{}{}, asked: map[string]asked{},
	}
}

// sent is what the trunk itself has asked.
func (t *trunk) sent() (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range t.control {
		if start, end, ok := idOf(line); ok {
			ids = append(ids, strings.Trim(string(line[start:end]), `"`))
		}
	}
	t.control = nil
	return ids
}

// A far end that reads nothing, and answers what will be asked of it, does not have lines
// pile up here.
func TestAFarEndThatReadsNothing(t *testing.T) {
	tr := newTrunk(Hello{Epoch: "e", Connections: true})
	for range 2 {
		if _, err := tr.events().(*conn).Write([]byte(`{"id":"sub","type":"subscribe","payload":{}}` + "\n")); err != nil {
			t.Fatal(err)
		}
		if err := tr.handleLine([]byte(`{"id":"` + tr.sent()[0] + `","ok":true,"payload":{"epoch":"e","next_seq":1}}`)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * maxControl {
		if err := tr.handleLine(fmt.Appendf(nil, `{"id":"n%d","ok":true,"payload":{}}`, i)); err != nil {
			if !errors.Is(err, errDeaf) || len(tr.control) > maxControl+1 {
				t.Errorf("got %v with %d lines", err, len(tr.control))
			}
			return
		}
	}
	t.Errorf("%d lines wait", len(tr.control))
}

// Whatever the far end says: what an owner reads are whole lines, answers are its own and
// come once, and events come in order.
func FuzzFarEnd(f *testing.F) {
	for _, seed := range []string{
		`{"v":"1","id":"ID0","type":"pong","payload":{},"ok":true}`,
		`{"id":"ID0","ok":true}` + "\n" + `{"id":"ID0","ok":true}`,
		`{"v":"1","id":"","type":"error","payload":{},"ok":false,"error":{"code":"x","message":"y"}}`,
		`{"v":"1","id":"evt-1","type":"status","payload":{"session_id":"s"},"seq":1}` + "\n" + `{"id":"evt-1","type":"status","payload":{},"seq":1}`,
		`{"id":"ID2","ok":true,"payload":{"epoch":"e","next_seq":5,"gap":true}}` + "\n" + `{"type":"warning","payload":{"code":"events_dropped","from_seq":1,"to_seq":9},"seq":9}`,
		`{"ok":false,"error":{"code":"daemon_gone","message":"m"}}`, `{"connection":1}`, `{"connection":18446744073709551615}`,
		`{"id":"ID1","ok":true,"payload":{"next_seq":0}}`, `{"id":7}`, `null`, `[]`, `{`, ``, `{"id":"n1","id":"n2","ok":true}`, `{"ok":true,"id":"ID0","payload":{"id":"x"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, said string) {
		tr := newTrunk(Hello{Epoch: "e", Connections: true})
		tr.feed.quiet(tr)
		owner := tr.commands().(*conn)
		owner.send = nil
		ids := []string{tr.ask(asked{from: owner, id: []byte(`"mine"`)})}
		reader := tr.events().(*conn)
		if _, err := reader.Write([]byte(`{"id":"sub","type":"subscribe","payload":{"session_id":"s"}}` + "\n")); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, tr.sent()...)
		for line := range strings.SplitSeq(said, "\n") {
			for i, id := range ids {
				line = strings.ReplaceAll(line, "ID"+string(rune('0'+i)), id)
			}
			if tr.handleLine([]byte(line)) != nil {
				break
			}
			ids = append(ids, tr.sent()...)
		}
		answers, last := 0, uint64(0)
		for _, l := range owner.lines {
			line := l.rest
			if !bytes.HasSuffix(line, []byte{'\n'}) || bytes.Count(line, []byte{'\n'}) != 1 {
				t.Errorf("%q is no line", line)
			}
			if bytes.Contains(line, []byte(`"mine"`)) {
				answers++
			}
		}
		if answers > 1 {
			t.Errorf("%d answers to one command", answers)
		}
		for _, l := range reader.lines {
			var e envelope
			if err := json.Unmarshal(l.rest, &e); err != nil {
				t.Errorf("%q: %v", l.rest, err)
			}
			if e.OK == nil {
				if e.Seq <= last {
					t.Errorf("event %d came behind %d", e.Seq, last)
				}
				last = e.Seq
			}
		}
	})
}

// FuzzIDs compares the place of an id with what JSON says.
func FuzzIDs(f *testing.F) {
	for _, seed := range []string{`{"id":"a"}`, `{"x":{"id":"b"},"id": "a\"" ,"y":1}`, `{"id":1}`, `{"id":""}`, ` { "id" : "é" } `, `{}`, `[{"id":"a"}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var want struct {
			ID *string `json:"id"`
		}
		if json.Unmarshal(line, &want) != nil {
			_, _, _ = idOf(line)
			return
		}
		start, end, ok := idOf(line)
		if has := want.ID != nil && *want.ID != ""; ok != has {
			t.Fatalf("%q: got %t, want %t", line, ok, has)
		}
		var got string
		if ok && (json.Unmarshal(line[start:end], &got) != nil || got != *want.ID) {
			t.Errorf("%q: got %q, want %q", line, line[start:end], *want.ID)
		}
	})
}

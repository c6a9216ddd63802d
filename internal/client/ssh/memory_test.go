package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"noused/internal/budget"
	"noused/internal/client"
	"noused/internal/protocol"
)

// reading is a trunk with a connection that has asked something, by the id there, and one that
// is told all events.
func reading(t *testing.T, room int) (tr *trunk, owner, reader *conn, id string) {
	t.Helper()
	tr = newTrunk(Hello{Epoch: "e", Connections: true})
	tr.room = budget.New(room)
	owner, reader = tr.commands().(*conn), tr.events().(*conn)
	if _, err := reader.Write([]byte(`{"id":"sub","type":"subscribe","payload":{}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := tr.handleLine([]byte(`{"id":"` + tr.sent()[0] + `","ok":true,"payload":{"epoch":"e","next_seq":1}}`)); err != nil {
		t.Fatal(err)
	}
	return tr, owner, reader, tr.ask(asked{from: owner, id: []byte(`"mine"`)})
}

// What a broken or hostile far end says costs bounded memory, none once it is read or given up,
// and is an error in one sentence, or nothing.
func TestAHostileFarEnd(t *testing.T) {
	const room = 256 << 10
	event := func(seq int, more string) string {
		return fmt.Sprintf(`{"id":"evt","type":"status","payload":{"x":"%s"},"seq":%d}`, more, seq)
	}
	for name, c := range map[string]struct {
		line  func(i int, id string) string
		times int
		trunk string // why all connections have ended
		conn  string // why that has ended that did not read
	}{
		"answers to what was never asked": {times: 3_000, line: func(i int, _ string) string { return fmt.Sprintf(`{"id":"n%d","ok":true,"payload":{}}`, 1000+i) }},
		"an answer again and again":       {times: 3_000, line: func(_ int, id string) string { return `{"id":"` + id + `","ok":true,"payload":{}}` }},
		"tiny events that nobody reads":   {times: 3_000, line: func(i int, _ string) string { return event(i+1, "") }, conn: "nous holds"},
		"events backwards":                {times: 3_000, line: func(i int, _ string) string { return event(3_000-i, "") }},
		"an event that has no room":       {times: 1, line: func(int, string) string { return event(1, strings.Repeat("x", room)) }, conn: "nous holds"},
		"an answer that has no room": {times: 1, line: func(_ int, id string) string {
			return `{"id":"` + id + `","ok":true,"payload":{"x":"` + strings.Repeat("x", room) + `"}}`
		}},
		"hang-ups of connections that do not exist": {times: 3_000, line: func(i int, _ string) string { return fmt.Sprintf(`{"connection":%d}`, 1000+i) }},
		"another hello":     {times: 3_000, line: func(int, string) string { return `{"proxy":2,"version":"v","socket":"/s","epoch":"e"}` }},
		"no JSON":           {times: 1, line: func(int, string) string { return `welcome` }, trunk: "does not speak the protocol"},
		"no UTF-8":          {times: 1, line: func(int, string) string { return "{\"id\":\"\xff\"}" }, trunk: "does not speak the protocol"},
		"a deep nest":       {times: 1, line: func(int, string) string { return `{"x":` + strings.Repeat("[", 1<<20) }, trunk: "does not speak the protocol"},
		"the same twice":    {times: 1, line: func(int, string) string { return `{"seq":1,"seq":2}` }, trunk: "does not speak the protocol"},
		"a failure":         {times: 1, line: func(int, string) string { return `{"ok":false,"error":{"code":"daemon_gone","message":"it is gone"}}` }, trunk: "it is gone"},
		"numbers too large": {times: 1, line: func(int, string) string { return `{"type":"x","seq":99999999999999999999999}` }, trunk: "does not speak the protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, owner, reader, id := reading(t, room)
			var ended error
			for i := 0; i < c.times && ended == nil; i++ {
				ended = tr.handleLine([]byte(c.line(i, id)))
				if used := tr.room.Used(); used > room {
					t.Fatalf("%d bytes are held", used)
				}
			}
			if got := fmt.Sprint(ended); c.trunk == "" && ended != nil || !strings.Contains(got, c.trunk) || strings.Contains(got, "\n") {
				t.Errorf("got %v, want %q in it", ended, c.trunk)
			}
			if got := fmt.Sprint(reader.err); c.conn == "" && reader.err != nil || !strings.Contains(got, c.conn) {
				t.Errorf("got %v, want %q in it", reader.err, c.conn)
			}
			if n := len(owner.lines); n > 1 {
				t.Errorf("%d answers to one command", n)
			}
			_, _ = owner.Close(), reader.Close()
			if used := tr.room.Used(); used != 0 || len(tr.asked) > 1 { // the question of what all want
				t.Errorf("%d bytes are held, and %d questions", used, len(tr.asked))
			}
		})
	}
}

// What is read makes room, once its owner reads on.
func TestWhatIsReadMakesRoom(t *testing.T) {
	tr, _, reader, _ := reading(t, 64<<10)
	buf := make([]byte, 4<<10)
	if _, err := reader.Read(buf); err != nil { // the answer
		t.Fatal(err)
	}
	text := strings.Repeat("x", 40<<10)
	for i := range 10 {
		line := fmt.Sprintf(`{"id":"evt","type":"status","payload":{"x":"%s"},"seq":%d}`, text, i+1)
		if err := tr.handleLine([]byte(line)); err != nil || reader.err != nil {
			t.Fatal(i, err, reader.err)
		}
		var got []byte
		for !bytes.HasSuffix(got, []byte{'\n'}) {
			n, err := reader.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		if string(got) != line+"\n" {
			t.Fatalf("event %d: got %.100q", i+1, got)
		}
		tr.room.Give(reader.read) // as the next Read does
		reader.read = 0
	}
}

// A line that is passed over ends with the connection, if it has no end itself.
func TestALineWithoutAnEnd(t *testing.T) {
	b := &bounded{r: zeros{}, left: -1}
	lines := protocol.NewLineReader(b, 1<<20)
	_, err := lines.Next()
	if !errors.As(err, new(*protocol.LineTooLongError)) {
		t.Errorf("got %v", err)
	}
	if _, err := lines.Next(); !errors.Is(err, errEndless) {
		t.Errorf("got %v", err)
	}
	many := &bounded{r: io.LimitReader(strings.NewReader(strings.Repeat("line\n", 1000)), 5000), left: -1}
	if _, err := io.Copy(io.Discard, many); err != nil || many.line != 0 {
		t.Errorf("got %v with %d bytes of a line", err, many.line)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// An answer that nous has no room for is the answer of its own command only.
func TestAnAnswerThatIsTooLong(t *testing.T) {
	for _, noRoom := range []bool{false, true} {
		tr, owner, _, id := reading(t, 1<<20)
		other := tr.ask(asked{from: owner, id: []byte(`"other"`)})
		e := &protocol.LineTooLongError{Limit: maxLine, NoRoom: noRoom, Prefix: []byte(`{"v":"1","id":"` + id + `","type":"messages","payl`)}
		if err := tr.tooLong(e); err != nil {
			t.Fatal(err)
		}
		if err := tr.handleLine([]byte(`{"id":"` + other + `","ok":true,"payload":{}}`)); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "more than 64 MiB", true: "nous holds 256 MiB"}[noRoom]
		if len(owner.lines) != 2 || !strings.Contains(string(owner.lines[0].rest), want) || !strings.Contains(string(owner.lines[0].rest), `"id":"mine"`) {
			t.Errorf("got %+v, want %q", owner.lines, want)
		}
		for _, prefix := range []string{``, `{"v":"1","id":"n99","type`, `xxxx`, `{"id":"` + id} { // nobody's
			err := tr.tooLong(&protocol.LineTooLongError{Prefix: []byte(prefix)})
			if !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "64 MiB") {
				t.Errorf("%s: got %v", prefix, err)
			}
		}
	}
}

// A long answer does not cost the connection what comes beside it, before it or after it.
func TestALongLineAmongShortOnes(t *testing.T) {
	tr := newTrunk(Hello{Epoch: "e", Connections: true})
	c := tr.commands().(*conn)
	defer c.Close()
	short, long := []byte("short\n"), append(bytes.Repeat([]byte("x"), held+1), '\n')
	for range 3 {
		for _, line := range [][]byte{short, long, short} {
			c.put(line)
		}
		want := len(short) + len(long) + len(short)
		if n, err := io.ReadFull(c, make([]byte, want)); err != nil {
			t.Fatalf("read %d of %d bytes: %v", n, want, err)
		}
	}
	for range 2 { // two are too many for an owner that does not read
		c.put(long)
	}
	if !c.ended() {
		t.Error("an owner that does not read has two long lines, and the connection")
	}
}

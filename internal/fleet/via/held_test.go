package via

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"noused/internal/budget"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// farEnd answers commands with as many bytes as their type says.
func farEnd(t *testing.T, s *fleettest.Server) {
	t.Helper()
	nc := fleettest.Dial(t, s.Direct())
	_, err := nc.Subscribe(fleet.DefaultPrefix.Command("box"), func(m *nats.Msg) {
		cmd, _ := protocol.DecodeCommand(m.Data)
		size := 0
		_, _ = fmt.Sscan(cmd.Type, &size)
		_ = m.Respond([]byte(`{"id":"` + cmd.ID + `","ok":true,"payload":{"x":"` + strings.Repeat("x", size) + `"}}`))
	})
	if err != nil || nc.Flush() != nil {
		t.Fatal(err)
	}
	if _, err := fleet.DefaultPrefix.OpenHosts(t.Context(), fleettest.JetStream(t, nc)); err != nil {
		t.Fatal(err)
	}
}

// talk is a connection to it, and its reader.
func talk(t *testing.T, s *fleettest.Server, room int) (f *Fleet, c *commands, lines *bufio.Reader) {
	t.Helper()
	f = Open(Options{Connect: fleet.Connect{URLs: []string{s.URL()}}, Prefix: fleet.DefaultPrefix})
	t.Cleanup(f.Close)
	f.held = budget.New(room)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	conn, err := f.Host("box").Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c = conn.(*commands)
	t.Cleanup(func() { _ = c.Close() })
	return f, c, bufio.NewReader(conn)
}

func say(t *testing.T, c *commands, id string, size int) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "{\"id\":%q,\"type\":\"%d\"}\n", id, size); err != nil {
		t.Fatal(err)
	}
}

// hear reads a reply; reason is that of an error.
func hear(t *testing.T, lines *bufio.Reader) (id, reason string) {
	t.Helper()
	line, err := lines.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		ID    string          `json:"id"`
		Error *protocol.Error `json:"error"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatalf("%.100q: %v", line, err)
	}
	if r.Error != nil {
		reason = r.Error.Error()
	}
	return r.ID, reason
}

// Replies that nobody reads have a bounded room together: what has none is an error of
// that command's, the connection goes on, and all of it is given back.
func TestRepliesThatNobodyReads(t *testing.T) {
	s := fleettest.Start(t, "")
	farEnd(t, s)
	f, c, lines := talk(t, s, 100<<10)
	const sent = 30
	for i := range sent {
		say(t, c, fmt.Sprint(i), 10<<10)
	}
	testenv.Until(t, "all have come", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting) == 0
	})
	whole := 0
	for i := range sent {
		id, reason := hear(t, lines)
		switch {
		case id != fmt.Sprint(i):
			t.Fatalf("got the reply to %s, want that to %d", id, i)
		case reason == "":
			whole++
		case !strings.Contains(reason, "bytes, and nous holds at most 256 MiB"):
			t.Fatalf("got %s", reason)
		}
	}
	if whole != 9 {
		t.Errorf("%d replies came, want the 9 that there was room for", whole)
	}
	say(t, c, "again", 10<<10)
	if id, reason := hear(t, lines); id != "again" || reason != "" {
		t.Errorf("got %s, %s", id, reason)
	}
	if used := f.held.Used(); used != 0 {
		t.Errorf("%d bytes are not given back", used)
	}
	for i := range 5 {
		say(t, c, fmt.Sprint(i), 10<<10)
	}
	if _, err := lines.Peek(1); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if used := f.held.Used(); used != 0 {
		t.Errorf("after it was closed %d bytes are not given back", used)
	}
}

// A reply that is longer than nous takes is an error that names the limit.
func TestAReplyThatIsTooLong(t *testing.T) {
	s := fleettest.Start(t, "")
	farEnd(t, s)
	f, c, lines := talk(t, s, maxHeld)
	f.most = 100_000
	say(t, c, "long", f.most)
	if id, reason := hear(t, lines); id != "long" || !strings.Contains(reason,
		"line_too_long: the reply has 100042 bytes, and nous takes at most 100000 from another machine in one") {
		t.Errorf("got %s, %s", id, reason)
	}
	say(t, c, "short", 10)
	if id, reason := hear(t, lines); id != "short" || reason != "" {
		t.Errorf("got %s, %s", id, reason)
	}
}

// What is passed over is told a few times, however much it is.
func TestNotesAreBounded(t *testing.T) {
	var notes []string
	f := Open(Options{Note: func(text string) { notes = append(notes, text) }})
	for range 1000 {
		f.note("an entry is passed over")
	}
	if len(notes) != maxNotes || !strings.HasSuffix(notes[maxNotes-1], "; what else is passed over is not told") {
		t.Errorf("got %d notes: %q", len(notes), notes)
	}
}

// Whatever an entry has, what is taken from it is bounded and has no control characters
// where hosts are named.
func FuzzPresence(f *testing.F) {
	f.Add("box", `{"name":"box","labels":{"os":"linux"},"rival":{"epoch":"e"}}`)
	f.Add("box", "{\"name\":\"box\",\"labels\":{\"os\":\"\u009b31m\"}}")
	f.Add("a\x1b[31m", `{"name":"a\u001b[31m"}`)
	f.Fuzz(func(t *testing.T, name, value string) {
		p, err := readPresence(name, []byte(value))
		if err == nil && (p.Name != name || fleet.CheckName(p.Name) != nil || fleet.CheckLabels(p.Labels) != nil ||
			len(value) > fleet.MaxPresence) {
			t.Errorf("%q: took %+v", name, p)
		}
		if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%q: the error has control characters: %q", name, err)
		}
	})
}

// Why a server does not answer is said in words.
func TestReasons(t *testing.T) {
	for err, want := range map[error]string{
		&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}: "no answer in time",
		fmt.Errorf("read: %w", io.EOF):                                    "it ended the connection at once",
		nats.ErrTimeout:                                                   "no answer in time",
		nats.ErrNoServers:                                                 "no servers available for connection",
	} {
		if got := reason(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

package ssh

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/yamux"

	"noused/internal/budget"
	"noused/internal/client"
	"noused/internal/protocol"
)

// FuzzFrames: whatever the other end says, what yamux reads are whole frames that have a place
// there, as they came, and nothing behind one that has none.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{
		"", "\x00", "welcome\n", "\x00\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00",
		"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02{}",
		"\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x00\x00\x02{}", "\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02",
		"\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01{\"ok\":false}\n",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, said []byte, opens bool) {
		read, err := io.ReadAll(&frames{in: bufio.NewReaderSize(bytes.NewReader(said), maxNoise), opens: opens})
		if !bytes.HasPrefix(said, read) || err == nil && len(read) != len(said) {
			t.Fatalf("read %d of %d bytes: %v", len(read), len(said), err)
		}
		for len(read) > 0 {
			if read[0] != 0 || read[1] == framePing || read[1] > frameGoAway || !opens && read[3]&flagSYN != 0 ||
				bodySize(read) > maxFrame {
				t.Fatalf("read the frame %v", read[:frameHead])
			}
			read = read[frameHead+bodySize(read):]
		}
	})
}

// An answer that nous has no room for, as others have taken it, is its own command's only.
func TestAnAnswerThatHasNoRoom(t *testing.T) {
	near, far := net.Pipe()
	_, session := net.Pipe()
	s, err := yamux.Client(session, muxConfig())
	if err != nil {
		t.Fatal(err)
	}
	tr := &trunk{o: Options{Host: "box"}, link: t.Context(), session: s, room: budget.New(100 << 10)}
	c := client.New(newConn(tr, ToCommands, near))
	go func() {
		lines := protocol.NewLineReader(far, 1<<20)
		for _, answer := range []string{strings.Repeat("x", 200<<10), "pong"} {
			line, err := lines.Next()
			if err != nil {
				t.Error(err)
				return
			}
			start, end, _ := idOf(line)
			_, _ = io.WriteString(far, `{"v":"1","id":`+string(line[start:end])+`,"type":"pong","payload":{"message":"`+answer+
				`"},"ok":true}`+"\n")
		}
	}()
	_, err = client.Call(context.Background(), c, protocol.Ping, protocol.PingParams{})
	if err == nil || errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "nous holds 256 MiB") {
		t.Errorf("got %v", err)
	}
	if _, err := client.Call(context.Background(), c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
	_, _, _ = c.Close(), far.Close(), s.Close()
	if used := tr.room.Used(); used != 0 {
		t.Errorf("%d bytes are held", used)
	}
}

// A line that is passed over ends with the connection, if it has no end itself.
func TestALineWithoutAnEnd(t *testing.T) {
	b := &endless{r: zeros{}}
	lines := protocol.NewLineReader(b, 1<<20)
	_, err := lines.Next()
	if !errors.As(err, new(*protocol.LineTooLongError)) {
		t.Errorf("got %v", err)
	}
	if _, err := lines.Next(); !errors.Is(err, errEndless) {
		t.Errorf("got %v", err)
	}
	many := &endless{r: strings.NewReader(strings.Repeat("line\n", 1000))}
	if _, err := io.Copy(io.Discard, many); err != nil || many.line != 0 {
		t.Errorf("got %v with %d bytes of a line", err, many.line)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// FuzzIDs compares the place of an id with what JSON says.
func FuzzIDs(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a"}`, `{"x":{"id":"b"},"id": "a\"" ,"y":1}`, `{"id":1}`, `{"id":""}`,
		` { "id" : "é" } `, `{}`, `[{"id":"a"}]`,
	} {
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

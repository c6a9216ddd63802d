package ssh_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/client/ssh"
	"noused/internal/protocol"
)

// frame is a frame of yamux's, with the length that its head tells.
func frame(kind byte, flags uint16, stream, length uint32, body []byte) string {
	head := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
	head = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(head, stream), length)
	return string(append(head, body...))
}

const (
	data   = 0
	window = 1
	ping   = 2
	goAway = 3
	syn    = 1
)

func dataFrame(stream uint32, text string) string {
	return frame(data, 0, stream, uint32(len(text)), []byte(text))
}

// A far end that is broken or hostile ends all connections, with an error in one sentence, or
// only costs what a window holds.
func TestAHostileFarEnd(t *testing.T) {
	text := strings.Repeat("x", 32<<10)
	for name, c := range map[string]struct {
		said string
		want string
	}{
		"no frames":          {"welcome to box\n", "does not speak the protocol"},
		"no line either":     {strings.Repeat("x", 1<<20), "does not speak the protocol"},
		"another version":    {"\x01" + strings.Repeat("\x00", 100), "does not speak the protocol"},
		"an unknown kind":    {frame(4, 0, 0, 0, nil), "does not speak the protocol"},
		"pings":              {strings.Repeat(frame(ping, syn, 0, 7, nil), 100_000), "does not speak the protocol"},
		"streams of its own": {strings.Repeat(frame(window, syn, 2, 0, nil), 100_000), "does not speak the protocol"},
		"a stream with data": {frame(data, syn, 2, 1, []byte("x")), "does not speak the protocol"},
		"a huge frame":       {frame(data, 0, 1, 1<<31, []byte(text)), "does not speak the protocol"},
		"more than a window": {
			strings.Repeat(dataFrame(1, text), 100) + strings.Repeat(dataFrame(3, text), 100),
			"does not speak the protocol",
		},
		"an error of the session": {frame(goAway, 0, 0, 1, nil), "does not speak the protocol"},
		"a frame that breaks off": {frame(data, 0, 1, 100, []byte("x")), "ssh has ended"},
		"nothing":                 {"", "ssh has ended"},
		"data for nobody":         {strings.Repeat(dataFrame(77, text), 1_000), "ssh has ended"},
		"a failure": {dataFrame(77, text) +
			`{"ok":false,"error":{"code":"daemon_gone","message":"it is gone"}}` + "\n", "box: it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			said := filepath.Join(t.TempDir(), "said")
			if err := os.WriteFile(said, []byte(c.said), 0o600); err != nil {
				t.Fatal(err)
			}
			scripted(t, session+`; head -c 50 >/dev/null; cat '`+said+`'`) // behind the beginning of two streams
			l := link(t, ssh.Options{Host: "box"})
			ctx := patient(t)
			if _, err := l.Events(ctx); err != nil { // which nobody reads
				t.Fatal(err)
			}
			conn, err := l.Commands(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %.300v, want %q in it", err, c.want)
			}
			if len(got) > 0 {
				t.Errorf("got %d bytes, and no line", len(got))
			}
		})
	}
}

// Connections are bounded, and one that is closed makes room.
func TestConnectionsAreBounded(t *testing.T) {
	scripted(t, session+`; cat >/dev/null`)
	l := link(t, ssh.Options{Host: "box"})
	ctx := patient(t)
	for range 256 {
		if _, err := l.Events(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Events(ctx); err == nil || !strings.Contains(err.Error(), "box: there are 256 connections") {
		t.Errorf("got %v", err)
	}
}

// A far end that says nothing, or takes nothing, keeps nobody from hanging up.
func TestAFarEndThatIsSilent(t *testing.T) {
	for name, script := range map[string]string{
		"says nothing":           `cat >/dev/null`,
		"takes nothing":          `exec sleep 1000`,
		"stops amid a frame":     `printf '\000\000\000\000\000\000\000\001\000\000\000\144x'; exec sleep 1000`,
		"stops amid a long line": `head -c 1 >/dev/null; printf '\000\000\000\000\000\000\000\001\000\000\000\001x'; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, session+"; "+script)
			l := link(t, ssh.Options{Host: "box"})
			ctx := patient(t)
			for range 3 {
				conn, err := l.Commands(ctx)
				if err != nil {
					t.Fatal(err)
				}
				c := client.New(conn)
				answered := make(chan error, 1)
				go func() {
					_, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: strings.Repeat("x", 1<<20)})
					answered <- err
				}()
				_ = c.Close()
				if err := <-answered; !errors.Is(err, client.ErrClosed) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// An answer that is longer than nous takes is an error of its command's, and the others go on.
// One that breaks off is none.
func TestLongAnswers(t *testing.T) {
	dir := t.TempDir()
	for name, answer := range map[string]string{
		"1": `{"v":"1","id":"c1","type":"pong","payload":{"message":"` + strings.Repeat("x", 64<<20) + `"},"ok":true}` + "\n",
		"2": `{"v":"1","id":"c2","type":"pong","payload":{"message":"pong"},"ok":true}` + "\n",
		"3": `{"v":"1","id":"c3","ok":true,"payload":{}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	scripted(t, `cd '`+dir+`'; echo '{"proxy":1,"version":"v9","socket":"/far/s","epoch":""}'
for answer in 1 2 3; do read -r line; cat $answer; done; echo 'so long' >&2; exit 1`)
	ctx := patient(t)
	c := commands(t, ctx, link(t, ssh.Options{Host: "box"}))
	ping := func() error {
		_, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
		return err
	}
	var refused *protocol.Error
	if err := ping(); !errors.As(err, &refused) || errors.Is(err, client.ErrLost) ||
		!strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("got %.300v", err)
	}
	if err := ping(); err != nil {
		t.Error(err)
	}
	if err := ping(); !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "so long") {
		t.Errorf("got %.300v", err)
	}
}

package follow_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// losing leads to a daemon, and loses the connection of the first prompt: before the
// daemon has it, or before the client has the answer.
type losing struct {
	follow.Socket
	answer bool
	lost   atomic.Bool
}

func (l *losing) Commands(ctx context.Context) (net.Conn, error) {
	conn, err := l.Socket.Commands(ctx)
	return &losingConn{conn, l}, err
}

type losingConn struct {
	net.Conn
	l *losing
}

func (c *losingConn) Write(p []byte) (int, error) {
	if !c.l.answer && bytes.Contains(p, []byte(`"type":"prompt"`)) && !c.l.lost.Swap(true) {
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

func (c *losingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.l.answer && bytes.Contains(p[:n], []byte(`"command":"prompt"`)) && !c.l.lost.Swap(true) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// A text whose answer is lost with the connection is said once all the same: it is sent again
// with its key. Without one it is not sent again.
func TestATextIsSaidOnceThoughItsAnswerIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		answer bool
		key    string
	}{"the text is lost": {key: "k"}, "the answer is lost": {answer: true, key: "k"}, "no key": {answer: true}} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, "")
			l := &losing{Socket: follow.Socket(d.Socket), answer: c.answer}
			s := &screen{t: t, l: follow.Open(l, "", nil, nil), ends: map[string]bool{}}
			t.Cleanup(s.l.Close)
			s.until("snapshot", func() bool { return s.snaps > 0 })
			wait := false
			r, err := follow.Do(t.Context(), s.l, protocol.Prompt, protocol.PromptParams{
				Text: "hello", Wait: &wait,
				IdempotencyKey: c.key,
			})
			if c.key == "" {
				if !errors.Is(err, client.ErrLost) {
					t.Errorf("got %+v, %v, want that it is lost", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s.until("end", func() bool {
				return s.ends[r.Accepted.RunID] || len(s.said) == 2 && s.state.RunState == protocol.StateIdle
			})
			users := 0
			for _, m := range s.said {
				if m.role == "user" {
					users++
				}
			}
			if users != 1 || !l.lost.Load() {
				t.Errorf("it was said %d times: %v", users, s.said)
			}
		})
	}
}

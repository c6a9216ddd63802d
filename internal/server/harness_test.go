package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"noused/internal/budget"
	"noused/internal/event"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// TestMain makes this binary what systemd starts, when it is told so.
func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(fakes[mode]())
	}
	if os.Getenv("SERVER_TEST_ACTIVATED") == "" {
		goleak.VerifyTestMain(testenv.M{M: m})
		return
	}
	s, err := Listen("unused")
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	fmt.Println(s.Commands.Addr(), s.Events.Addr())
	s.Close()
}

const (
	maxLine = protocol.DefaultMaxLine
	room    = maxLine + 8<<20 // for all connections together
)

// bench is a server with sockets of its own.
type bench struct {
	path    string
	log     *event.Log
	readers Readers
	seen    *observer.ObservedLogs
	held    *budget.Budget
	stop    func() // ends it and waits; may be called twice
}

// serve starts a server whose commands mux answers. Its log keeps keep bytes.
func serve(t testing.TB, mux *protocol.Mux, keep int) *bench {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	sockets, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	core, seen := observer.New(zap.DebugLevel)
	b := &bench{path: path, log: event.New("ep-1", keep, time.Now), seen: seen, held: budget.New(room)}
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 2)
	go func() { errs <- ServeCommands(ctx, sockets.Commands, mux, Lines{maxLine, b.held}, zap.New(core)) }()
	go func() {
		errs <- ServeEvents(ctx, sockets.Events, b.log, &b.readers, Lines{maxLine, b.held}, zap.New(core))
	}()
	stopped := false
	b.stop = func() {
		if stopped {
			return
		}
		stopped = true
		b.log.Close()
		cancel()
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Error(err)
		}
		sockets.Close()
	}
	t.Cleanup(b.stop)
	return b
}

// wire is a client that knows nothing but lines.
type wire struct {
	t testing.TB
	*net.UnixConn
	in *protocol.LineReader
}

func dial(t testing.TB, path string) *wire {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t, conn, protocol.NewLineReader(conn, 1<<30)}
}

func (w *wire) send(lines string) {
	w.t.Helper()
	if _, err := w.Write([]byte(lines)); err != nil {
		w.t.Fatal(err)
	}
}

// line is any line that a server writes.
type line struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	OK      bool            `json:"ok"`
	Payload jsontext.Value  `json:"payload"`
	Error   *protocol.Error `json:"error"`
	Seq     uint64          `json:"seq"`
}

func (w *wire) recv() line {
	w.t.Helper()
	l, err := w.next()
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *wire) next() (l line, err error) {
	text, err := w.in.Next()
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(text, &l)
}

// want reads a line and compares its id and type, with an error's message.
func (w *wire) want(id, typ string) line {
	w.t.Helper()
	l := w.recv()
	if l.ID != id || l.Type != typ {
		w.t.Fatalf("got %s %s %v, want %s %s", l.ID, l.Type, l.Error, id, typ)
	}
	return l
}

func (w *wire) wantEnd() {
	w.t.Helper()
	if l, err := w.next(); err == nil {
		w.t.Fatalf("got %+v, want the end", l)
	}
}

// pair is a connection whose two ends are ours.
func pair(t testing.TB) (client *wire, conn *net.UnixConn) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "p"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	client = dial(t, ln.Addr().String())
	if conn, err = ln.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client, conn
}

func cmd(id, typ, payload string) string {
	return `{"v":"1","id":"` + id + `","type":"` + typ + `","payload":` + payload + "}\n"
}

func delta(session, text string) protocol.Event {
	return protocol.MessageUpdate{
		Ref: protocol.Ref{RunID: "run-1", SessionID: session, TurnID: "1"}, MessageID: "msg-1",
		Delta: text,
	}
}

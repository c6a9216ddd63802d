// Package clienttest plays a daemon's part of the wire, line by line, on real
// Unix sockets: replies out of order, connections that end in the middle,
// daemons that come back with another epoch.
//
// Concurrency: each Conn belongs to one goroutine.
//
// It refuses to behave by itself: every line is the test's own.
package clienttest

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// Daemon listens on a command socket and its event socket.
type Daemon struct {
	t        testing.TB
	Socket   string
	commands net.Listener
	events   net.Listener
}

// Listen starts a daemon on a new socket, stopped when the test ends.
func Listen(t testing.TB) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "nous") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, Socket: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		d.Stop()
		os.RemoveAll(dir)
	})
	d.Start()
	return d
}

// Start listens again after Stop.
func (d *Daemon) Start() {
	d.commands, d.events = d.listen(d.Socket), d.listen(d.Socket+".events")
}

func (d *Daemon) listen(path string) net.Listener {
	l, err := net.Listen("unix", path)
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

// Stop closes and removes both sockets; connections live on.
func (d *Daemon) Stop() {
	d.commands.Close()
	d.events.Close()
}

// Commands waits for a connection to the command socket. It must be closed.
func (d *Daemon) Commands() *Conn { return d.accept(d.commands) }

// Events waits for a connection to the event socket. It must be closed.
func (d *Daemon) Events() *Conn { return d.accept(d.events) }

func (d *Daemon) accept(l net.Listener) *Conn {
	conn, err := l.Accept()
	if err != nil {
		d.t.Errorf("accept: %v", err)
		return &Conn{t: d.t}
	}
	return NewConn(d.t, conn)
}

// Conn is the daemon's end of a connection.
type Conn struct {
	t     testing.TB
	conn  net.Conn
	lines *protocol.LineReader
}

// NewConn is the daemon's end of a connection that was made otherwise.
func NewConn(t testing.TB, conn net.Conn) *Conn {
	return &Conn{t: t, conn: conn, lines: protocol.NewLineReader(conn, 1<<30)}
}

// Want reads a command, which must be of that type, and returns its id and
// payload. It may be called from any goroutine.
func (c *Conn) Want(command string) (id string, payload jsontext.Value) {
	if c.conn == nil {
		return "", nil
	}
	line, err := c.lines.Next()
	if err != nil {
		c.t.Errorf("want %s: %v", command, err)
		return "", nil
	}
	cmd, e := protocol.DecodeCommand(line)
	if e != nil || cmd.Type != command {
		c.t.Errorf("got %.200s (%v), want a %s", line, e, command)
	}
	return cmd.ID, cmd.Payload
}

// WantEOF waits until the client has hung up, which it may do in more than one
// way.
func (c *Conn) WantEOF() {
	if c.conn == nil {
		return
	}
	line, err := c.lines.Next()
	if err == nil {
		c.t.Errorf("got %.200s, want the end", line)
	} else if !errors.Is(err, io.EOF) {
		c.t.Logf("client hung up: %v", err)
	}
}

// Reply answers a command. payload is JSON.
func (c *Conn) Reply(id, typ, payload string) {
	line, err := protocol.AppendResponse(nil, id, typ, jsontext.Value(payload))
	if err != nil {
		c.t.Error(err)
	}
	c.write(line)
}

// Fail answers a command with an error.
func (c *Conn) Fail(id string, e *protocol.Error) { c.write(protocol.AppendError(nil, id, e)) }

// Line sends a line as it is.
func (c *Conn) Line(line string) { c.write([]byte(line + "\n")) }

// Event sends an event. payload is JSON.
func (c *Conn) Event(seq int, typ, payload string) {
	line, err := json.Marshal(map[string]any{
		"v": "1", "id": "evt", "type": typ, "payload": jsontext.Value(payload),
		"ts": "2026-02-12T10:00:00.123456Z", "seq": seq,
	}, json.Deterministic(true))
	if err != nil {
		c.t.Error(err)
	}
	c.write(append(line, '\n'))
}

// Subscribed reads a subscribe and confirms it. payload is the confirmation's.
func (c *Conn) Subscribed(payload string) jsontext.Value {
	id, params := c.Want("subscribe")
	c.Reply(id, "subscribed", payload)
	return params
}

func (c *Conn) write(line []byte) {
	if c.conn == nil {
		return
	}
	if _, err := c.conn.Write(line); err != nil {
		c.t.Errorf("write %.80s: %v", line, err)
	}
}

// Close hangs up.
func (c *Conn) Close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

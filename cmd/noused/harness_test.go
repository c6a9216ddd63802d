package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"noused/internal/agent/agenttest"
	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// TestMain makes this test binary the daemon when it is called noused, so that
// the tests start real processes which are built as the tests are.
func TestMain(m *testing.M) {
	if os.Args[0] == selfPath { // the daemon's own extension
		os.Args[0] = "noused"
	}
	testscript.Main(testenv.M{M: m}, map[string]func(){
		"noused": main, "nous": serveTools, "scripted-agent": agenttest.Main, relayCommand: rawRelay, sayCommand: sayToTheDaemon,
		traceCommand: traceAProcess, manyCommand: serveMany, hugeCommand: serveHuge,
	})
}

// daemon is a noused whose configuration is noused/config.toml of its folder.
type daemon struct {
	*daemontest.Daemon
	t testing.TB
}

// newDaemon starts a daemon in fresh folders and waits until it says that it
// is ready.
func newDaemon(t testing.TB, args ...string) *daemon {
	t.Helper()
	return newDaemonOf(t, "noused", args...)
}

// newDaemonOf starts another program.
func newDaemonOf(t testing.TB, program string, args ...string) *daemon {
	t.Helper()
	d := unstarted(t, program, args...)
	d.Start()
	return d
}

// unstarted is a daemon that Start starts. "noused" is built as the tests are.
func unstarted(t testing.TB, program string, args ...string) *daemon {
	t.Helper()
	d := &daemon{daemontest.Bare(t, program, args...), t}
	d.Environ = func() []string {
		return append(os.Environ(), d.Model(), "XDG_CONFIG_HOME="+d.Dir, "XDG_RUNTIME_DIR="+d.Dir)
	}
	return d
}

// modelConfig writes a configuration for a model of the provider at an address,
// with further lines of its section, and returns the file.
func modelConfig(t testing.TB, provider, url string, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	text := fmt.Sprintf("[model]\nprovider = %q\nname = \"test-model\"\nbase_url = %q\n%s\n", provider, url,
		strings.Join(more, "\n"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testKey has a model take the key of the variable TEST_KEY.
const testKey = `api_key_env = "TEST_KEY"`

// wire is a client that knows nothing but lines.
type wire struct {
	t testing.TB
	net.Conn
	in *protocol.LineReader
}

func dialWire(t testing.TB, path string) *wire {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t, conn, protocol.NewLineReader(conn, 1<<30)}
}

func (d *daemon) commands() *wire { d.t.Helper(); return dialWire(d.t, d.Socket) }

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := w.Write([]byte(line + "\n")); err != nil {
		w.t.Fatal(err)
	}
}

// response is a reply as it came.
type response struct {
	V       string          `json:"v"`
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Payload jsontext.Value  `json:"payload"`
	OK      bool            `json:"ok"`
	Error   *protocol.Error `json:"error"`
}

func (w *wire) recv() response {
	w.t.Helper()
	line, err := w.in.Next()
	if err != nil {
		w.t.Fatal(err)
	}
	var r response
	if err := json.Unmarshal(line, &r); err != nil {
		w.t.Fatalf("%v in %.200s", err, line)
	}
	return r
}

func (w *wire) request(line string) response {
	w.t.Helper()
	w.send(line)
	return w.recv()
}

// into decodes a reply's payload.
func into[T any](t testing.TB, r response) T {
	t.Helper()
	var v T
	if !r.OK {
		t.Fatalf("%s: %v", r.ID, r.Error)
	}
	if err := json.Unmarshal(r.Payload, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// events follows everything the daemon announces.
func (d *daemon) events(p protocol.SubscribeParams) *client.Events {
	d.t.Helper()
	events, err := client.Subscribe(context.Background(), d.Socket, p)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = events.Close() })
	return events
}

func (d *daemon) dial() *client.Client {
	d.t.Helper()
	c, err := client.Dial(context.Background(), d.Socket)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// next returns the next event, typed.
func next(events *client.Events) (protocol.Event, error) {
	env, _, err := events.Next(context.Background())
	if err != nil {
		return nil, err
	}
	ev, err := client.Decode(env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", env.Type, err)
	}
	return ev, nil
}

// await reads events until one is what is looked for.
func await(t testing.TB, events *client.Events, what func(protocol.Event) bool) protocol.Event {
	t.Helper()
	for {
		ev, err := next(events)
		if err != nil {
			t.Fatal(err)
		}
		if what(ev) {
			return ev
		}
	}
}

func endOf(runID string) func(protocol.Event) bool {
	return func(ev protocol.Event) bool {
		_, ok := ev.(protocol.AgentEnd)
		return ok && ev.Where().RunID == runID
	}
}

func (d *daemon) write(name, text string, mode os.FileMode) {
	d.t.Helper()
	path := filepath.Join(d.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		d.t.Fatal(err)
	}
}

func decode[T any](t testing.TB, text []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return v
}

// unlisted is a server of models that has no list of them, as some have none.
func unlisted(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		serve(w, r)
	})
}

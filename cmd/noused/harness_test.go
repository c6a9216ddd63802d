package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"noused/internal/client"
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
		"noused": main, relayCommand: rawRelay, sayCommand: sayToTheDaemon,
		traceCommand: traceAProcess, manyCommand: serveMany, hugeCommand: serveHuge,
	})
}

// daemon is a running noused with its own state.
type daemon struct {
	modelless bool // nothing chooses a model

	here bool // works in the folder that it is started in
	t    testing.TB
	sock string
	dir  string
	args []string
	log  bytes.Buffer

	program string    // "noused", built as the tests are
	stderr  io.Writer // the daemon's, unless nil: then its log goes to log

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
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
	d.start()
	return d
}

// unstarted is a daemon that start starts.
func unstarted(t testing.TB, program string, args ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, program: program, dir: dir, sock: filepath.Join(dir, "s"), args: args}
	t.Cleanup(func() {
		if d.cmd != nil {
			d.kill()
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.log.Bytes())
		}
	})
	return d
}

// model is the variable that chooses one where nothing else does.
func (d *daemon) model() string {
	if d.modelless {
		return "NOUSED_MODEL="
	}
	own, _ := os.ReadFile(filepath.Join(d.dir, "noused", "config.toml"))
	if i := slices.Index(d.args, "--config"); i >= 0 {
		own, _ = os.ReadFile(d.args[i+1])
	}
	return testenv.Model(string(own), d.args...)
}

func (d *daemon) start() {
	d.t.Helper()
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(d.dir, "ready"), Net: "unixgram"})
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() {
		_ = ready.Close()
		_ = os.Remove(filepath.Join(d.dir, "ready"))
	}()
	args := []string{
		"--socket", d.sock, "--state-dir", filepath.Join(d.dir, "state"), "--tools-dir",
		filepath.Join(d.dir, "tools"),
	}
	if !d.here {
		args = append(args, "--workdir", d.dir)
	}
	d.cmd = exec.Command(d.program, append(args, d.args...)...)
	d.cmd.Env = append(os.Environ(), d.model(), "NOTIFY_SOCKET="+ready.LocalAddr().String(), "XDG_CONFIG_HOME="+d.dir,
		"XDG_RUNTIME_DIR="+d.dir)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if d.stderr != nil {
		d.cmd.Stderr = d.stderr
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) { // ends with the daemon
		_ = cmd.Wait()
		close(exited)
		_ = ready.Close()
	}(d.cmd, d.exited)
	buf := make([]byte, 256)
	for {
		n, err := ready.Read(buf)
		if err != nil {
			d.t.Fatalf("the daemon ended before it was ready:\n%s", d.log.Bytes())
		}
		if strings.Contains(string(buf[:n]), "READY=1") {
			return
		}
	}
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

// kill ends the daemon as a crash does, stop as systemd does. Both return when
// the process is gone.
func (d *daemon) kill() { d.end(syscall.SIGKILL) }
func (d *daemon) stop() { d.end(syscall.SIGTERM) }

func (d *daemon) end(sig syscall.Signal) {
	_ = d.cmd.Process.Signal(sig)
	<-d.exited
}

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

func (d *daemon) commands() *wire { d.t.Helper(); return dialWire(d.t, d.sock) }

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

func (w *wire) ask(line string) response {
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
	events, err := client.Subscribe(context.Background(), d.sock, p)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = events.Close() })
	return events
}

func (d *daemon) dial() *client.Client {
	d.t.Helper()
	c, err := client.Dial(context.Background(), d.sock)
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
	path := filepath.Join(d.dir, name)
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

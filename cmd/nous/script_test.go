package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"noused/internal/agent/agenttest"
	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) {
	if signal.Ignored(os.Interrupt) { // or the programs under test would ignore it too
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(removing{testenv.M{M: m}}, map[string]func(){"scripted-agent": agenttest.Main, "nous": func() {
		startWithin, completesWithin = 2*time.Minute, 2*time.Minute // a machine may have much to do
		main()
	}})
}

// removing removes what the tests have built.
type removing struct{ testenv.M }

func (m removing) Run() int {
	defer func() { os.RemoveAll(built.dir) }()
	return m.M.Run()
}

// The scripts run the real nous against a real noused, which has the tools of
// testdata/tools and its two fifos. MODELS_URL is where a server of models is, NATS_URL
// where a NATS server is.
// "daemon start [NAME=VALUE…] [FLAGS]" waits for the daemon's READY=1; "daemon
// stop" and "daemon kill" for its end.
func TestScripts(t *testing.T) {
	testenv.Long(t)
	noused := program(t, "noused")
	// It has two models, and refuses every prompt in words that have the key; one key it
	// does not know at all.
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Authorization"); key == "" && r.URL.Path != "/v1/models" || key == "Bearer sk-unknown" {
			http.Error(w, "no such key", http.StatusUnauthorized)
			return
		}
		if r.Header.Get("Authorization") == "Bearer sk-broke" {
			http.Error(w, `{"error":{"code":"insufficient_quota","message":"pay"}}`, http.StatusTooManyRequests)
			return
		}
		if r.URL.Path == "/v1/models" {
			io.WriteString(w, `{"data":[{"id":"gpt-6"},{"id":"gpt-5"}]}`)
			return
		}
		http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusForbidden)
	}))
	t.Cleanup(models.Close)
	nats := fleettest.Start(t, "")
	// testscript's own is one for all users of the machine: root's daemons make it, and then it is root's
	home := t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(20 * time.Minute), // ends a script that waits for a tool which never came
		Setup: func(env *testscript.Env) error {
			env.Setenv("NOUSED_MODEL", "offline")
			d := &daemon{program: noused, dir: env.WorkDir, env: env}
			env.Values[daemonKey{}] = d
			env.Defer(func() { d.end(os.Kill); noneLeft(d.socket()); noneLeft(filepath.Join(env.WorkDir, "s2")) })
			env.Setenv("HOME", home)
			env.Setenv("NOUSED_SOCKET", d.socket())
			env.Setenv("NOUSED_BIN", filepath.Dir(noused))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("MODELS_URL", models.URL+"/v1")
			env.Setenv("NATS_URL", nats.Direct())
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each program sleeps for a second under -race
			return errors.Join(
				os.MkdirAll(filepath.Join(env.WorkDir, "config/nous"), 0o700),
				// nobody would end it
				os.WriteFile(filepath.Join(env.WorkDir, "config/nous/config.toml"), []byte("autostart = false\n"), 0o600),
				os.CopyFS(filepath.Join(env.WorkDir, "tools"), os.DirFS("testdata/tools")),
				syscall.Mkfifo(filepath.Join(env.WorkDir, "started"), 0o600),
				syscall.Mkfifo(filepath.Join(env.WorkDir, "go"), 0o600),
			)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": daemonCommand, "exits": exits, "recorded": recordedCommand,
		},
	})
}

// noneLeft ends a daemon that nous has started at a socket.
func noneLeft(socket string) {
	f, err := os.Open(socket + ".lock")
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return
	}
	text, _ := io.ReadAll(f)
	if pid, err := strconv.Atoi(string(text)); err == nil && pid > 1 {
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // until it has gone
	}
}

type daemonKey struct{}

func daemonCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: daemon start|stop|kill [NAME=VALUE…] [flags]")
	}
	d := ts.Value(daemonKey{}).(*daemon)
	switch args[0] {
	case "start":
		ts.Check(d.start(args[1:]))
	case "stop":
		ts.Check(d.end(syscall.SIGTERM))
	case "kill":
		_ = d.end(os.Kill) // it says that it was killed
	default:
		ts.Fatalf("daemon %s: want start, stop or kill", args[0])
	}
}

// exits runs a program that must end with the status before its name.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARGS]")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		ts.Fatalf("got exit status 0, want %s", args[0])
	case !errors.As(err, &exit):
		ts.Check(err)
	case strconv.Itoa(exit.ExitCode()) != args[0]:
		ts.Fatalf("got exit status %d, want %s", exit.ExitCode(), args[0])
	}
}

// recordedCommand skips the rest of a script where a folder could not be recorded in the time that a run waits for it.
func recordedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: recorded")
	}
	ctx, d := context.Background(), ts.Value(daemonKey{}).(*daemon)
	c, err := client.Dial(ctx, d.socket())
	ts.Check(err)
	defer c.Close()
	all, err := client.Call(ctx, c, protocol.ListSessions, protocol.ListSessionsParams{})
	ts.Check(err)
	for _, s := range all.Sessions {
		its, err := client.Call(ctx, c, protocol.GetChanges, protocol.GetChangesParams{
			Scope: protocol.Scope{SessionID: s.SessionID},
		})
		if ts.Check(err); len(its.Missing) > 0 {
			testenv.Unrecorded(d.env.T(), its.Missing[0].Why)
		}
	}
}

// daemon is a script's noused.
type daemon struct {
	program, dir string
	env          *testscript.Env
	process      *daemontest.Process // nil when none runs
	log          bytes.Buffer
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }

func (d *daemon) start(args []string) error {
	d.log.Reset()
	flags := 0 // where they begin
	for flags < len(args) && !strings.HasPrefix(args[flags], "-") {
		flags++
	}
	cmd := exec.Command(d.program, append([]string{
		"--socket", d.socket(), "--state-dir", filepath.Join(d.dir, "state"),
		"--workdir", d.dir, "--tools-dir", filepath.Join(d.dir, "tools"),
	}, args[flags:]...)...)
	cmd.Env = slices.Concat(d.env.Vars, args[:flags])
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	var err error
	if d.process, err = daemontest.Run(cmd); err != nil {
		return fmt.Errorf("%w\n%s", err, d.log.Bytes())
	}
	return nil
}

// end signals the daemon and waits for its end.
func (d *daemon) end(sig os.Signal) error {
	if d.process == nil {
		return nil
	}
	err := d.process.End(sig)
	d.process = nil
	if err != nil {
		return fmt.Errorf("noused: %w\n%s", err, d.log.Bytes())
	}
	return nil
}

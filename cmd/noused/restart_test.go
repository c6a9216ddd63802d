package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"noused/internal/protocol"
	"noused/internal/server"
	"noused/internal/session"
)

// A daemon that was told to stop by a signal stops, no matter who asks for a restart before
// or afterwards.
func TestASignalCountsMoreThanARestart(t *testing.T) {
	d, person := newDeparture(t)
	if err := d.start(d.leave); err != nil {
		t.Fatal(err)
	}
	if d.end() == nil {
		t.Fatal("the daemon that was asked to start anew does not")
	}
	d.halt()
	if err := d.end(); err != nil {
		t.Errorf("after a signal the daemon ends with %v", err)
	}
	for _, restart := range []bool{true, false} {
		_, err := d.shutdown(person, protocol.ShutdownParams{Restart: restart})
		if wire := new(protocol.Error); !errors.As(err, &wire) || wire.Reason() != protocol.ShuttingDown {
			t.Errorf("restart %v while the daemon stops: %v", restart, err)
		}
	}
	d.store.Close()
	again, err := session.Open(d.cfg.StateDir)
	if err != nil {
		t.Fatalf("the lock outlives the daemon: %v", err)
	}
	_ = again.Close()
}

// What could not take over is not executed: a program of an older version would find
// its own sockets and locks held, and end. The daemon stays.
func TestAProgramThatCannotTakeOverIsNotStarted(t *testing.T) {
	d, person := newDeparture(t)
	was := program
	defer func() { program = was }()
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\n"+text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		"/bin/ls":   "/bin/ls is another version", // 2 for the command "try", as an older noused
		"/bin/true": "/bin/true is no noused",
		script("older", "echo noused reads journals up to version 0",
			0o700): "older is an older version: it reads journals up to version 0, and these may have version 1",
		script("other", "echo noused reads journals up to version one", 0o700): "other is no noused",
		script("broken", "echo the key is wrong >&2; exit 1", 0o700):           "the key is wrong",
		script("open", "echo noused reads journals up to version 1",
			0o777): "open can be written to by everybody (mode 0777)",
		filepath.Join(dir, "none"): "none: no such file or directory",
	} {
		program = func() string { return path }
		_, err := d.shutdown(person, protocol.ShutdownParams{Restart: true})
		if err == nil || !strings.Contains(err.Error(), "not restarted: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
		if d.going() {
			t.Fatalf("%s: the daemon stops nevertheless", path)
		}
	}
}

func newDeparture(t *testing.T) (d *shutdown, person context.Context) {
	t.Helper()
	dir := t.TempDir()
	store, err := session.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	sockets, err := server.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sockets.Close)
	d = &shutdown{cfg: Config{StateDir: dir}, store: store, sockets: sockets, asked: make(chan struct{})}
	return d, protocol.WithCaller(t.Context(), protocol.Caller{PID: 1})
}

// holding is a daemon with a run whose model answers only when it is released.
type holding struct {
	*daemon
	release func()
	lines   chan string // of its log, to be read to the end
	text    []string    // of them, as far as they were read
}

func holdingRun(t *testing.T) *holding {
	t.Helper()
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answer
		http.Error(w, "{}", http.StatusBadRequest)
	}))
	t.Cleanup(vendor.Close)
	log, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	d := &holding{daemon: unstarted(t, "noused", "--config", modelConfig(t, "ollama", vendor.URL), "--drain-timeout",
		"10m"), lines: make(chan string, 1000)}
	d.release = sync.OnceFunc(func() { close(answer) })
	t.Cleanup(d.release)
	d.Stderr = stderr
	d.Start()
	_ = stderr.Close()
	go func() { // ends with the daemon
		defer close(d.lines)
		for in := bufio.NewScanner(log); in.Scan(); {
			d.lines <- in.Text()
		}
	}()
	d.commands().send(`{"v":"1","id":"c1","type":"prompt","payload":{"text":"hello","wait":false}}`)
	<-asked
	return d
}

// says waits until the daemon logs a text.
func (d *holding) says(text string) {
	d.t.Helper()
	for line := range d.lines {
		d.text = append(d.text, line)
		if strings.Contains(line, text) {
			return
		}
	}
	d.t.Fatalf("it has ended without %q:\n%s", text, strings.Join(d.text, "\n"))
}

// A hang-up while runs come to their boundary does not cut them short, as where a
// terminal is closed behind nous restart.
func TestAHangUpDoesNotEndADaemonThatStops(t *testing.T) {
	t.Parallel()
	d := holdingRun(t)
	_ = d.Cmd.Process.Signal(syscall.SIGTERM)
	d.says(`"stopping","signal":"terminated"`)
	_ = d.Cmd.Process.Signal(syscall.SIGHUP)
	d.release()
	<-d.Gone
	if state := d.Cmd.ProcessState; !state.Success() {
		t.Errorf("the daemon ended with %v", state)
	}
}

// A daemon that is told by a signal to stop while it restarts stops, and its runs come
// to their boundary as ever: systemd's and a user's word is not lost.
func TestASignalDuringARestartStopsTheDaemon(t *testing.T) {
	t.Parallel()
	d := holdingRun(t)
	d.commands().send(`{"v":"1","id":"c2","type":"shutdown","payload":{"restart":true}}`)
	d.says(`"stopping","restart":true`)
	_ = d.Cmd.Process.Signal(syscall.SIGTERM)
	d.says(`"stopping","signal":"terminated"`)
	d.release()
	d.says(`"msg":"stopped"`)
	for line := range d.lines {
		t.Errorf("the daemon goes on: %s", line)
	}
	<-d.Gone
	if state := d.Cmd.ProcessState; !state.Success() {
		t.Errorf("the daemon ended with %v", state)
	}
}

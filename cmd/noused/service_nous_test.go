package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nous is a command of the client's, in a user's shell.
func (m *manager) nous(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hangTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(m.home, ".local/bin/nous"), args...).CombinedOutput()
	return string(out), err
}

// does is a command that succeeds, and what it says.
func (m *manager) does(args ...string) string {
	m.t.Helper()
	out, err := m.nous(args...)
	if err != nil {
		m.t.Fatalf("nous %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// starts is a command that has a daemon started. It waits for a few seconds only, and
// says so; a machine may be slower.
func (m *manager) starts(args ...string) {
	m.t.Helper()
	for deadline := time.Now().Add(hangTime); ; {
		out, err := m.nous(args...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) || !strings.Contains(out, "after 5s") {
			m.t.Fatalf("nous %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Where systemd has the units, nous has it start the daemon, though nobody has
// enabled anything.
func TestNousStartsTheServiceAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.starts("ping")
	if got := m.systemctl("is-active", "noused.service", "noused.socket", "noused-events.socket"); got !=
		"active\nactive\nactive" {
		t.Errorf("service and sockets are %q", got)
	}
}

// The service starts anew in the same process, and is stopped by systemd, as nous asks for it: a
// stop takes the sockets along, so that it stays off until somebody wants a daemon.
func TestNousStopsAndRestartsTheServiceAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.enable()
	m.does("ping")
	was := m.show("noused.service", "MainPID")
	for range 2 {
		if got := m.does("restart"); got != "restarted noused.service\n" {
			t.Errorf("nous restart: %q", got)
		}
		m.does("--no-start", "ping")
		if is := m.show("noused.service", "MainPID"); is != was {
			t.Errorf("the service's process was %s and is %s", was, is)
		}
		if got := m.systemctl("is-active", "noused.service"); got != "active" {
			t.Errorf("the service is %s", got)
		}
	}
	if got := m.does("stop"); got != "stopped noused.service\n" {
		t.Errorf("nous stop: %q", got)
	}
	if out, err := m.trySystemctl("is-active", "noused.service", "noused.socket", "noused-events.socket"); err == nil ||
		out != "inactive\ninactive\ninactive" {
		t.Errorf("after the stop service and sockets are %q, %v", out, err)
	}
	if got := m.does("stop"); got != "no daemon runs at "+m.socket()+"\n" {
		t.Errorf("a second nous stop: %q", got)
	}
	if out, err := m.nous("--no-start", "ping"); err == nil {
		t.Errorf("after the stop a daemon answers: %s", out)
	}
	m.starts("restart")
	if got := m.systemctl("is-active", "noused.service", "noused.socket", "noused-events.socket"); got !=
		"active\nactive\nactive" {
		t.Errorf("after the next start service and sockets are %q", got)
	}
}

// A service that has ended too often is not started again. nous says what lets it, and
// then it is.
func TestNousNamesTheWayOutOfAStartLimitAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	m.settings("RestartSec=100ms")
	m.write(".config/noused/config.toml", "nonsense = 1\n")
	const way = "\nit has ended too often; when what it says is mended: systemctl --user reset-failed 'noused*'\n"
	for deadline := time.Now().Add(hangTime); ; {
		out, err := m.nous("ping")
		if err == nil {
			t.Fatalf("nous ping: %s", out)
		}
		if strings.HasSuffix(out, way) { // else systemd still tries
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nous ping still says\n%s", out)
		}
	}
	m.write(".config/noused/config.toml", "")
	m.systemctl("reset-failed", "noused*")
	m.starts("ping")
}

// The log of a service is its journal, while it runs and when it has crashed, whatever
// a daemon from before has left in a file.
func TestNousShowsTheJournalAsRoot(t *testing.T) {
	m := withSystemd(t, "OWNER=54321", "JOURNAL=yes") // nobody has no journal
	if m == nil {
		return
	}
	m.settings("StandardOutput=journal", "StandardError=journal", "Restart=no")
	m.write(".local/state/noused/log/noused.log", "of long ago\n")
	if got := m.does("logs"); got != "of long ago\n" {
		t.Errorf("before there was a service: %q", got)
	}
	m.enable()
	m.starts("ping")
	shows := func(want string) { // the journal is written a moment later
		t.Helper()
		for deadline := time.Now().Add(hangTime); ; {
			got := m.does("logs")
			if strings.Contains(got, "of long ago") {
				t.Fatalf("want the journal, got the file: %q", got)
			}
			if strings.Contains(got, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("want %q, got %q", want, got)
			}
		}
	}
	shows(`"msg":"ready"`)
	follow := exec.Command(filepath.Join(m.home, ".local/bin/nous"), "logs", "--follow", "--lines=0")
	out, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = follow.Process.Kill() })
	added := make(chan bool, 1)
	go func() { // ends with what it reads
		for in := bufio.NewScanner(out); in.Scan(); {
			if strings.Contains(in.Text(), `"msg":"tools reloaded"`) {
				added <- true
				return
			}
		}
		added <- false
	}()
	for heard := false; !heard; { // it may follow only from the next line on
		m.does("tools", "reload")
		select {
		case ok := <-added:
			if heard = true; !ok {
				t.Error("nous logs -f ended")
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err := follow.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("nous logs -f, after Ctrl-C: %v", err)
	}

	m.systemctl("kill", "--kill-whom=main", "--signal=KILL", "noused.service")
	m.until("noused.service", "ActiveState", func(s string) bool { return s == "failed" })
	m.systemctl("stop", "noused.socket", "noused-events.socket") // nobody answers
	shows(`"msg":"ready"`)
	m.write(".local/state/noused/log/noused.log", "of the next one\n")
	if got := m.does("logs"); got != "of the next one\n" {
		t.Errorf("after a daemon without systemd: %q", got)
	}
}

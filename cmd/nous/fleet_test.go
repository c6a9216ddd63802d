package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/tui/tuitest"
)

// joinFleet starts a daemon of a fleet, and waits until it takes commands there, which is
// a moment after it has joined.
func joinFleet(t *testing.T, s *fleettest.Server, name string) *tuitest.Daemon {
	t.Helper()
	d := startDaemon(t, fmt.Sprintf("[fleet]\nurl = %q\nname = %q\nlabels = { os = \"linux\" }\n", s.URL(), name))
	nc := fleettest.Dial(t, s.Direct())
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := nc.Request(fleet.DefaultPrefix.Command(name), []byte(`{"id":"1","type":"ping"}`), 2*time.Minute)
		if err == nil {
			return d
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s takes no commands: %v", name, err)
		}
	}
}

// ran runs nous beside a daemon, whose own socket it does not need.
func ran(t *testing.T, d *tuitest.Daemon, args ...string) result {
	t.Helper()
	var out, errout bytes.Buffer
	cmd := exec.Command("nous", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.Dir, d.Env(), &out, &errout
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errout.String()}
}

// Every command reaches the daemon of another machine through the fleet, nous fleet
// shows all of them, and what cannot be is said in a line.
func TestFleetFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := fleettest.Start(t, "")
	box, _ := joinFleet(t, s, "box"), joinFleet(t, s, "tower")
	via := []string{"--via", s.URL()}
	for _, tc := range []struct {
		args, want string
		status     int
	}{
		{"--on tower ping", "pong", 0},
		{"--on tower prompt said on the tower", "said on the tower", 0},
		{"--on tower sessions", "said on the tower", 0},
		{"--on tower state", "run state:       idle", 0},
		{"--on tower status", "model:", 0},
		{"--on box sessions --json", "", 0},
		{"--on nobody ping", "no daemon called nobody answers in the fleet", exitNoDaemon},
		{"--on nobody ping", "there are: box, tower", exitNoDaemon},
		{"ping", "give --on NAME", exitUsage},
		{"--on a.b ping", "--on:", exitUsage},
		{"--on box --host other ping", "--host and --socket name a daemon without the fleet", exitUsage},
		{"--on box logs", "log in on box and run `nous logs`", exitUsage},
		{"--on box new --worktree", "log in on box", exitUsage},
		{"--on tower approve x", "", exitFailed},
		{"--on box set-approval-mode auto --active", "approve = true", exitFailed},
		{"fleet hosts", "os=linux", 0},
		{"fleet hosts --json", `"labels":{"os":"linux"}`, 0},
		{"fleet sessions", "said on the tower", 0},
		{"fleet sessions --json --on tower", `{"host":"tower","session":{"session_id"`, 0},
		{"fleet sessions --on nobody", "there are: box, tower", exitNoDaemon},
		{"fleet approvals", "no question waits", 0},
	} {
		got := ran(t, box, append(via, strings.Fields(tc.args)...)...)
		if got.status != tc.status || !strings.Contains(got.out+got.errout, tc.want) {
			t.Errorf("nous %s: got status %d, want %d and %q\n%s%s", tc.args, got.status, tc.status, tc.want, got.out, got.errout)
		}
	}
	if got := ran(t, box, "fleet", "hosts"); got.status != exitUsage || !strings.Contains(got.errout, "no fleet is named") {
		t.Errorf("without a fleet: got %+v", got)
	}
	if got := ran(t, box, "--via", "nats://127.0.0.1:1", "fleet", "hosts"); got.status != exitNoDaemon || !strings.Contains(got.errout, "check that the server runs") {
		t.Errorf("without a server: got %+v", got)
	}
	box.Write("config/nous/config.toml", fmt.Sprintf("autostart = false\n[fleet]\nurl = %q\non = \"tower\"\n", s.URL()))
	if got := ran(t, box, "fleet", "hosts"); !strings.Contains(got.out, "box") {
		t.Errorf("with a config: got %+v", got)
	}
}

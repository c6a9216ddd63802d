package main

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/fleet/fleettest"
	"noused/internal/tui/tuitest"
)

// A watch in a pipe has a line for each session, one for each change, and one when it is
// deleted or its host has left; on a terminal it has the table, those that need somebody
// first.
func TestAFleetIsWatched(t *testing.T) {
	t.Parallel()
	s := fleettest.Start(t, "")
	box, tower := joinFleet(t, s, "box"), joinFleet(t, s, "tower")
	on := func(host, command string, more ...string) string {
		t.Helper()
		got := ran(t, box, append([]string{"--via", s.URL(), "--on", host, command}, more...)...)
		if got.status != 0 {
			t.Fatalf("%s on %s: got %+v", command, host, got)
		}
		return got.out
	}
	on("box", "prompt", "said on the box")
	on("tower", "prompt", "said on the tower")
	cmd := watchCommand(s, box)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		t.Fatal("nous fleet watch does not start", err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	until := func(host, word, end string) (line string) {
		t.Helper()
		for lines.Scan() {
			if line = lines.Text(); strings.HasPrefix(line, host) && strings.Contains(line, word) &&
				strings.HasSuffix(line, end) {
				return line
			}
		}
		t.Fatalf("it ended without a line of %s with %s and %s", host, word, end)
		return ""
	}
	first := ""
	for range 2 { // in either order
		if !lines.Scan() || !strings.Contains(lines.Text(), "said on the ") {
			t.Fatalf("got %q, want a line of a session", lines.Text())
		}
		if strings.HasPrefix(lines.Text(), "tower") {
			first = strings.Fields(lines.Text())[2]
		}
	}
	term := tuitest.Start(t, watchCommand(s, box), 220, 6, false)
	term.Wait("2 hosts, 2 sessions, 0 need you", "said on the box", "said on the tower")
	id := strings.Fields(on("tower", "new", "another"))[0]
	on("tower", "rename", "--session", id, "a better name") // of a session that is new no event tells
	until("tower", id, "a better name")
	term.Wait("2 hosts, 3 sessions", "a better name")
	on("tower", "delete", id)
	on("tower", "prompt", "--session", first, "said again")
	until("tower", "deleted", "a better name")
	term.Wait("2 hosts, 2 sessions")
	tower.Stop()
	until("tower", "deleted", "said on the tower")
	term.Wait("1 hosts, 1 sessions", "said on the box")
	_ = cmd.Process.Signal(syscall.SIGINT)
	for lines.Scan() {
		t.Errorf("nothing has happened, and it tells %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func watchCommand(s *fleettest.Server, d *daemontest.Daemon) *exec.Cmd {
	cmd := exec.Command("nous", "--via", s.URL(), "fleet", "watch")
	cmd.Dir, cmd.Env = d.Dir, d.Env()
	return cmd
}

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/detach"
	"noused/internal/protocol"
)

// nous logs -f goes on over the change to a new file, shows nothing that could drive
// the terminal, and ends well with Ctrl-C.
func TestLogsAreFollowed(t *testing.T) {
	d := daemontest.New(t, "", "") // its folder only
	cmd := exec.Command("nous", "logs", "-f", "-n", "1")
	cmd.Dir, cmd.Env = d.Dir, d.Env("XDG_STATE_HOME="+d.Dir)
	log := filepath.Join(d.Dir, "noused/log", detach.LogName(d.Socket, protocol.DefaultSocket(os.Getenv)))
	write := func(text string) {
		t.Helper()
		f, _, err := detach.Open(log)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("long ago\nlast\n")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	says := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	says("last")
	write("added\nthe end of the full one\n")
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	write("the new one\n" + evil + "\n")
	says("added")
	says("the end of the full one")
	says("the new one")
	if got, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(got, "ev") ||
		strings.ContainsFunc(got, drives) {
		t.Errorf("got %q, %v, want nothing that drives a terminal", got, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v, want exit status 0", err)
	}
}

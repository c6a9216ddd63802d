package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Within a tmux whose options are off, nous doctor says so, with the line for tmux.conf.
func TestDoctorNamesTheOptionsOfTmux(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: what nous doctor says within it is not tested")
	}
	d := startDaemon(t, "")
	dir, err := os.MkdirTemp("", "tmux") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	tmux := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", socket}, args...)...).
			CombinedOutput(); err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
	}
	tmux("new-session", "-d", "exec cat")
	t.Cleanup(func() { tmux("kill-server") })
	doctor := func(env ...string) string {
		cmd := exec.Command(program(t, "nous"), "doctor")
		cmd.Dir = d.Dir
		cmd.Env = d.Env(append(env, "PATH="+filepath.Dir(program(t, "noused"))+":"+os.Getenv("PATH"))...)
		out, _ := cmd.CombinedOutput() // its status is of what else it finds
		return string(out)
	}
	tmux("set", "-s", "focus-events", "off")
	tmux("set", "-s", "set-clipboard", "off")
	out := doctor("TMUX=" + socket + ",1,0")
	for _, want := range []string{
		"focus-events is off", "in ~/.tmux.conf: set -s focus-events on",
		"set-clipboard is off", "in ~/.tmux.conf: set -s set-clipboard on",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nous doctor does not say %q:\n%s", want, out)
		}
	}
	tmux("set", "-s", "focus-events", "on")
	tmux("set", "-s", "set-clipboard", "external")
	out = doctor("TMUX=" + socket + ",1,0")
	if strings.Contains(out, "tmux.conf") || !strings.Contains(out, "focus-events is on") {
		t.Errorf("with the options on nous doctor says\n%s", out)
	}
	if out := doctor("TMUX="); strings.Contains(out, "tmux") {
		t.Errorf("outside of tmux nous doctor says\n%s", out)
	}
}

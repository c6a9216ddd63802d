package main

import (
	"context"
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

// Where systemd has the units, nous has it start the daemon, though nobody has
// enabled anything.
func TestNousStartsTheServiceAsRoot(t *testing.T) {
	m := underSystemd(t)
	if m == nil {
		return
	}
	// It waits for a few seconds only, and says so; a machine may be slower.
	for deadline := time.Now().Add(hangTime); ; {
		out, err := m.nous("ping")
		if err == nil {
			break
		}
		if time.Now().After(deadline) || !strings.Contains(out, "after 5s") {
			t.Fatalf("nous ping: %v\n%s", err, out)
		}
	}
	if got := m.systemctl("is-active", "noused.service", "noused.socket", "noused-events.socket"); got != "active\nactive\nactive" {
		t.Errorf("service and sockets are %q", got)
	}
}

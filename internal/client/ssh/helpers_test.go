package ssh_test

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

var lookPath = exec.LookPath

func fifo(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitDeath waits until there is no process of that id any more.
func awaitDeath(t testing.TB, ctx context.Context, pid string) {
	t.Helper()
	for {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("process %s does not end", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

package main

import (
	"bufio"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// SIGUSR1 makes the log say more, SIGUSR2 less, and neither ends the daemon or
// is ignored by what it starts.
func TestSignalsChangeTheLevel(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d := unstarted(t, "noused", "--log-level", "warn")
	d.Stderr = w
	d.Start()
	w.Close()
	lines := bufio.NewScanner(r)
	for _, step := range []struct {
		signal syscall.Signal
		want   string
	}{
		{syscall.SIGUSR1, "info"},
		{syscall.SIGUSR1, "debug"},
		{syscall.SIGUSR1, "debug"},
		{syscall.SIGUSR2, "info"},
		{syscall.SIGUSR2, "warn"},
		{syscall.SIGUSR2, "error"},
		{syscall.SIGUSR1, "warn"},
	} {
		if err := d.Cmd.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
		want := `"signal":"` + step.signal.String() + `","log_level":"` + step.want + `"`
		for lines.Scan() && !strings.Contains(lines.Text(), want) {
		}
		if lines.Err() != nil || !strings.Contains(lines.Text(), want) {
			t.Fatalf("the log ended before it said %s", want)
		}
	}
	got := d.extension(d.session(d.Dir), "bash", `{"command":"grep -E '^Sig(Ign|Blk)' /proc/self/status"}`).Result
	for _, line := range regexp.MustCompile(`Sig...:\s+([0-9a-f]{16})`).FindAllStringSubmatch(got, -1) {
		set, err := strconv.ParseUint(line[1], 16, 64)
		if err != nil || set&(1<<(syscall.SIGUSR1-1)|1<<(syscall.SIGUSR2-1)) != 0 {
			t.Errorf("a tool has %s (%v), want it free to use both signals", line[0], err)
		}
	}
	if !strings.Contains(got, "SigIgn") {
		t.Errorf("got %q, want the signals of a tool", got)
	}
}

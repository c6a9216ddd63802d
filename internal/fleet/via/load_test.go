package via_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// NOUSED_TEST_FLEETLOAD=1 shows what nous fleet takes with 100 hosts and 10,000 sessions
// (docs/performance.md). The hosts are in one process; nous and the server are real.
func TestManyHosts(t *testing.T) {
	if os.Getenv("NOUSED_TEST_FLEETLOAD") == "" {
		t.Skip("NOUSED_TEST_FLEETLOAD is not set")
	}
	const hosts, each = 100, 100
	s := fleettest.Start(t, "")
	var all []*daemon
	for i := range hosts {
		d := startDaemon(t, connect(s), fmt.Sprint("host", i), fmt.Sprint("ep-", i))
		protocol.HandleFunc(d.mux, protocol.ListSessions, func(context.Context, protocol.ListSessionsParams) (r protocol.Sessions, _ error) {
			for n := range each {
				r.Sessions = append(r.Sessions, protocol.SessionInfo{SessionID: fmt.Sprintf("ses-%d-%d-0198c5f2-0000-7000", i, n), Title: fmt.Sprint("what is done here, number ", d.log.LastSeq()), Workdir: "/home/somebody/projects/one", UpdatedAt: time.Now()})
			}
			return r, nil
		})
		all = append(all, d)
	}
	f := open(t, connect(s))
	for i, d := range all {
		d.isThere(t, within(t), f, fmt.Sprint("host", i))
	}
	nous, err := tuitest.Build(t.TempDir(), "nous")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nous, "--via", s.Direct(), "fleet", "watch")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := range hosts * each {
		if !lines.Scan() {
			t.Fatalf("it ended after %d lines", n)
		}
	}
	first := time.Since(begin)
	var worst, sum time.Duration
	const events = 50
	for i := range events {
		time.Sleep(250 * time.Millisecond) // a host is asked once in 200 ms
		begin := time.Now()
		all[i].log.Append(status("ses", i))
		for lines.Scan() && !strings.HasPrefix(lines.Text(), fmt.Sprint("host", i, " ")) {
		}
		took := time.Since(begin)
		sum, worst = sum+took, max(worst, took)
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("%d sessions of %d hosts: all after %s; an event on the screen after %s, at worst %s; %d MB at most", hosts*each, hosts, first, sum/events, worst, usage.Maxrss>>10)
}

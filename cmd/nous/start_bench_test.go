package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// What a user waits for whose command finds no daemon: from `nous ping` to its answer,
// beside a ping of a daemon that runs. Each round measures both, as a machine's load
// changes; the figures are medians.
func BenchmarkAutostart(b *testing.B) {
	noused := program(b, "noused")
	d := daemontest.New(b, noused, "") // its folder only
	b.Cleanup(func() { noneLeft(d.Socket) })
	nous := takes{program(b, "nous"), d.Dir, d.Env("PATH="+filepath.Dir(noused)+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+
		filepath.Join(d.Dir, "fresh"))}
	var starts, pings []time.Duration
	for b.Loop() {
		starts = append(starts, nous.time(b, "ping"))
		b.StopTimer()
		pings = append(pings, nous.time(b, "--no-start", "ping"))
		nous.time(b, "stop")
		b.StartTimer()
	}
	beyond(b, "autostart", starts, pings)
}

// `nous status` with 1,000 sessions, beside `nous ping`.
func BenchmarkStatus(b *testing.B) {
	d := daemontest.Start(b, program(b, "noused"), "")
	c, err := client.Dial(b.Context(), d.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	off := false
	for i := range 1000 {
		if _, err := client.Call(b.Context(), c, protocol.NewSession,
			protocol.NewSessionParams{Title: fmt.Sprint("Session ", i), Activate: &off}); err != nil {
			b.Fatal(err)
		}
	}
	nous := takes{program(b, "nous"), d.Dir, d.Env()}
	var all, pings []time.Duration
	for b.Loop() {
		all = append(all, nous.time(b, "status"))
		b.StopTimer()
		pings = append(pings, nous.time(b, "ping"))
		b.StartTimer()
	}
	beyond(b, "status", all, pings)
}

// takes measures how long a command of nous takes.
type takes struct {
	program, dir string
	env          []string
}

func (n takes) time(b *testing.B, args ...string) time.Duration {
	b.Helper()
	cmd := exec.Command(n.program, args...)
	cmd.Dir, cmd.Env = n.dir, n.env
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		b.Fatalf("nous %q: %v\n%s", args, err, out)
	}
	return took
}

// beyond reports the medians, and what the one takes beyond a ping.
func beyond(b *testing.B, what string, took, pings []time.Duration) {
	slices.Sort(took)
	slices.Sort(pings)
	ms := func(of []time.Duration) float64 { return float64(of[len(of)/2].Microseconds()) / 1000 }
	b.ReportMetric(ms(took), "ms-"+what)
	b.ReportMetric(ms(pings), "ms-ping")
	b.ReportMetric(ms(took)-ms(pings), "ms-beyond")
}

// `nous prompt --ephemeral` beyond the same prompt to a daemon that runs: a daemon that is
// started and ended. Each round measures both.
func BenchmarkEphemeral(b *testing.B) {
	noused := program(b, "noused")
	d := daemontest.Start(b, noused, "")
	nous := takes{program(b, "nous"), d.Dir, d.Env("PATH=" + filepath.Dir(noused) + ":" + os.Getenv("PATH"))}
	private := nous
	private.env = slices.DeleteFunc(slices.Clone(nous.env), func(v string) bool {
		return strings.HasPrefix(v, "NOUSED_SOCKET=")
	})
	var alone, there []time.Duration
	for b.Loop() {
		alone = append(alone, private.time(b, "prompt", "--ephemeral", "hello"))
		b.StopTimer()
		there = append(there, nous.time(b, "prompt", "--new", "hello"))
		b.StartTimer()
	}
	beyond(b, "ephemeral", alone, there)
}

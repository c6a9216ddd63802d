package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"noused/internal/protocol"
)

// BenchmarkHostedChunk measures how long a chunk takes from the agent's write to a client:
// two pipes, a journal's write and a socket. Eight sessions share the agent.
func BenchmarkHostedChunk(b *testing.B) {
	all := newHosts(b, 8, "load,close")
	for _, h := range all {
		h.prompt("!say hello")
		h.until("run ends completed")
	}
	h := all[0]
	h.oneAgent()
	var took []time.Duration
	h.prompt("!stamp " + strconv.Itoa(max(b.N, 100)))
	for {
		ev, err := next(h.events)
		if err != nil {
			b.Fatal(err)
		}
		if ev.Where().SessionID != h.session {
			continue
		}
		switch ev := ev.(type) {
		case protocol.MessageUpdate:
			if said, err := strconv.ParseInt(ev.Delta, 10, 64); err == nil {
				took = append(took, time.Duration(time.Now().UnixNano()-said))
			}
		case protocol.AgentEnd:
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/p99")
			return
		}
	}
}

// BenchmarkHostedSession measures what a session of a hosted agent costs the daemon that has been
// prompted and is idle, of b.N in one folder: the daemon's memory beyond that with one, by
// RssAnon of its status. The agent is one process for all of them.
func BenchmarkHostedSession(b *testing.B) {
	h := newHost(b, "load,close")
	use := func() {
		h.prompt("!say hello")
		h.until("run ends completed")
	}
	use()
	one := h.anonymous()
	for range b.N {
		h.session = h.newSession("scripted")
		use()
	}
	h.oneAgent()
	b.ReportMetric(float64(h.anonymous()-one)/float64(b.N), "kB/session")
}

// anonymous is the daemon's own memory in kB, once it has not changed for five seconds.
func (d *daemon) anonymous() (kB int) {
	d.t.Helper()
	for same := 0; same < 20; same++ {
		if now := d.memory(); now != kB {
			kB, same = now, 0
		}
		<-time.After(250 * time.Millisecond)
	}
	return kB
}

// memory is that of now.
func (d *daemon) memory() (kB int) {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "RssAnon:")
	if _, err := fmt.Sscan(after, &kB); err != nil {
		d.t.Fatal(err)
	}
	return kB
}

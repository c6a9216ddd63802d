package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// BenchmarkWaitingParent measures what a session costs the daemon that waits for a child, of b.N with
// little or 256 KiB of history: the daemon's memory with sessions whose children ask, beyond that with as
// many short ones that ask themselves. The event log is the daemon's, and would keep what the histories say: it
// is full before.
func BenchmarkWaitingParent(b *testing.B) {
	with := func(text, history string) int {
		d := unstarted(b, "noused")
		d.write("noused/config.toml", "[policy]\nask = [\"ls\"]\n", 0o600)
		d.Start()
		c, n := d.dial(), b.N
		events := d.events(protocol.SubscribeParams{Types: []string{protocol.Status{}.Type()}})
		says := func(id, text string) {
			if _, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
				Scope: protocol.Scope{SessionID: id}, Text: text,
			}); err != nil {
				b.Fatal(err)
			}
		}
		for range 60 {
			says(d.session(""), strings.Repeat("words ", 128<<10/6))
		}
		for range n {
			id := d.session("")
			if history != "" {
				says(id, history)
			}
			if _, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
				Scope: protocol.Scope{SessionID: id}, Text: text, Wait: new(bool),
			}); err != nil {
				b.Fatal(err)
			}
			await(b, events, func(ev protocol.Event) bool { return ev.(protocol.Status).Approval != nil })
		}
		kB := d.anonymous()
		d.Kill()
		return kB
	}
	alone, call := with("!ls {}", ""), agentCall(b, "!ls {}", false)
	b.ReportMetric(float64(with(call, "")-alone)/float64(b.N), "kB/parent")
	b.ReportMetric(float64(with(call, strings.Repeat("words ", 128<<10/6))-alone)/float64(b.N), "kB/long-parent")
}

// BenchmarkFiftyChildren sets a ping while fifty children of one run work beside one of the same daemon at rest, and
// tells the memory and the processes that they take. An op is a ping.
func BenchmarkFiftyChildren(b *testing.B) {
	const children = 50
	d := unstarted(b, "noused")
	d.write("noused/config.toml", "[model]\ndelay = \"20ms\"\n[children]\nparallel = 50\n", 0o600)
	d.Start()
	pings := func(n int) (median, p99 float64) { // one a millisecond
		w, took, next := d.commands(), make([]time.Duration, n), time.NewTicker(time.Millisecond)
		defer next.Stop()
		for i := range took {
			<-next.C
			start := time.Now()
			if r := w.request(`{"id":"1","type":"ping","payload":{}}`); !r.OK {
				b.Fatal(r.Error)
			}
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		return float64(took[n/2].Microseconds()), float64(took[n*99/100].Microseconds())
	}
	idle, idleLate := pings(b.N)
	before, processes := d.memory(), len(d.children())
	id, call := d.session(""), agentCall(b, strings.Repeat("word ", 4000), false)
	events := d.events(protocol.SubscribeParams{Types: []string{protocol.AgentStart{}.Type()}})
	if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: strings.Repeat(call+"\n", children), Wait: new(bool),
	}); err != nil {
		b.Fatal(err)
	}
	for range children + 1 {
		await(b, events, func(protocol.Event) bool { return true })
	}
	busy, busyLate := pings(b.N)
	st, err := client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{})
	if err != nil || len(st.Runs) != children+1 {
		b.Fatalf("%d runs, %v", len(st.Runs), err)
	}
	b.ReportMetric(idle, "us/idle")
	b.ReportMetric(idleLate, "us/idle-p99")
	b.ReportMetric(busy, "us/busy")
	b.ReportMetric(busyLate, "us/busy-p99")
	b.ReportMetric(float64(d.memory()-before)/children, "kB/child")
	b.ReportMetric(float64(len(d.children())-processes), "processes")
}

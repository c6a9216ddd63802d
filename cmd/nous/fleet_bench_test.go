package main

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"noused/internal/protocol"
)

// What nous fleet watch draws of 10,000 sessions of 100 hosts, on a terminal of 50 lines.
func BenchmarkFleetBoard(b *testing.B) {
	board := &fleetBoard{a: &app{out: &output{w: io.Discard}}, hosts: map[string]*watchedHost{}}
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for i := range 100 {
		h := &watchedHost{}
		for n := range 100 {
			h.sessions = append(h.sessions, fleetSession{host: fmt.Sprint("host-", i), SessionInfo: protocol.SessionInfo{
				SessionID: fmt.Sprintf("ses-%d-%d-0198c5f2-0000-7000", i, n), Title: "what is done here", Workdir: "/home/somebody/projects/one", UpdatedAt: at.Add(time.Duration(i*n) * time.Second),
			}})
		}
		slices.SortFunc(h.sessions, func(x, y fleetSession) int { return byHostNeed(&x, &y) })
		board.hosts[fmt.Sprint("host-", i)] = h
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range board.lines(50) {
			_ = board.a.outStyle.paint(line.look, oneWide(line.text, 200))
		}
	}
}

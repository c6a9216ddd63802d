package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"noused/internal/protocol"
)

// Clients that send while the daemon stops are answered, or learn before the
// daemon has their line that it takes none.
func TestEverythingSentBeforeAStopIsAnswered(t *testing.T) {
	const clients, before = 20, 200
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	d := newDaemon(t)
	d.Stop()
	for round := range rounds {
		d.Start()
		idle := d.commands()
		var all sync.WaitGroup
		var answered atomic.Int32
		for n := range clients {
			all.Go(func() {
				for m := 0; taken(t, d.Socket, fmt.Sprintf("c%d-%d", n, m), m); m++ {
					if answered.Add(1) == before {
						_ = d.Cmd.Process.Signal(syscall.SIGTERM)
					}
				}
			})
		}
		all.Wait()
		<-d.Gone
		if n := answered.Load(); n < before {
			t.Fatalf("round %d: %d answers, want %d and more", round, n, before)
		}
		if _, err := idle.in.Next(); err == nil {
			t.Error("an idle client was sent a line")
		}
	}
}

// taken sends one command on a connection of its own, and reports that it was
// taken. Then it must be answered.
func taken(t *testing.T, path, id string, n int) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	commands := []string{`"ping"`, `"get_state"`, `"prompt","payload":{"text":"hello","wait":false}`, `"list_sessions"`}
	if _, err := fmt.Fprintf(conn, `{"v":"1","id":%q,"type":%s}`+"\n", id, commands[n%len(commands)]); err != nil {
		return false
	}
	line, err := protocol.NewLineReader(conn, 1<<30).Next()
	if err != nil {
		t.Errorf("%s was taken and got no answer: %v", id, err)
		return false
	}
	if r := decode[response](t, line); r.ID != id {
		t.Errorf("got %s, want an answer to %s", line, id)
	}
	return true
}

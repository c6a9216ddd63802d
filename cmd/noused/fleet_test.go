package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// fleetDaemon is a daemon that is called box in the fleet of a server.
func fleetDaemon(t *testing.T, url, more string) *daemon {
	t.Helper()
	d := unstarted(t, "noused")
	d.write("noused/config.toml", fmt.Sprintf("[fleet]\nurl = %q\nname = \"box\"\n%s", url, more), 0o600)
	d.Start()
	return d
}

// inFleet waits until the daemon's state says so.
func (d *daemon) inFleet(is func(protocol.FleetState) bool) {
	d.t.Helper()
	w := d.commands()
	testenv.Until(d.t, "the state says so of the fleet", func() bool {
		st := into[protocol.State](d.t, w.request(`{"id":"s","type":"get_state","payload":{"daemon":true}}`))
		return st.Fleet != nil && is(*st.Fleet)
	})
}

// overFleet sends a command to box.
func overFleet(t *testing.T, nc *nats.Conn, line string) (r response) {
	t.Helper()
	testenv.Until(t, "box takes commands, which is a moment after it has joined", func() bool {
		msg, err := nc.Request(fleet.DefaultPrefix.Command("box"), []byte(line), 2*time.Minute)
		if errors.Is(err, nats.ErrNoResponders) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		r = decode[response](t, msg.Data)
		return true
	})
	return r
}

// told are the lines of the event socket from the first event to the daemon's end.
func (d *daemon) told() <-chan [][]byte {
	d.t.Helper()
	first := uint64(0)
	events := d.events(protocol.SubscribeParams{After: &first})
	lines := make(chan [][]byte, 1)
	go func() { // ends with the daemon
		var all [][]byte
		for {
			_, line, err := events.Next(context.Background())
			if err != nil {
				lines <- all
				return
			}
			all = append(all, bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))))
		}
	}()
	return lines
}

// The stream has what the event socket has, each event once and in order, over restarts
// of the server and a partition; the server may come after the daemon.
func TestAFleetHasTheDaemonsEvents(t *testing.T) {
	server := fleettest.Start(t, "")
	server.Down()
	d := fleetDaemon(t, server.URL(), "")
	d.inFleet(func(f protocol.FleetState) bool { return !f.Connected && len(f.Problems) > 0 })
	lines := d.told()
	w := d.commands()
	prompt := func() {
		t.Helper()
		if r := w.request(`{"id":"p","type":"prompt","payload":{"text":"say something"}}`); !r.OK {
			t.Fatalf("%+v", r.Error)
		}
	}
	prompt()
	server.Up()
	joined := func(f protocol.FleetState) bool { return f.Connected }
	d.inFleet(joined)
	prompt()
	server.Stall()
	prompt()
	server.Go()
	server.Cut()
	prompt()
	server.Down()
	prompt()
	server.Up()
	d.inFleet(joined)
	nc := fleettest.Dial(t, server.Direct())
	if r := overFleet(t, nc, `{"id":"p","type":"prompt","payload":{"text":"from afar"}}`); r.Type != "result" {
		t.Errorf("a prompt over the fleet: %+v", r)
	}
	last := into[protocol.State](t, w.request(`{"id":"s","type":"get_state","payload":{"daemon":true}}`)).LastSeq
	d.inFleet(func(f protocol.FleetState) bool { return f.PublishedSeq >= last })
	d.Stop()
	streamIs(t, nc, <-lines)
	hosts, err := fleet.DefaultPrefix.OpenHosts(t.Context(), fleettest.JetStream(t, nc))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hosts.Get(t.Context(), "box"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the daemon has stopped, and is still there: %v", err)
	}
}

// streamIs compares the stream with the lines of the event socket.
func streamIs(t *testing.T, nc *nats.Conn, lines [][]byte) {
	t.Helper()
	if len(lines) == 0 {
		t.Fatal("the event socket told nothing")
	}
	stream, err := fleettest.JetStream(t, nc).Stream(t.Context(), fleet.DefaultPrefix.EventStream())
	if err != nil {
		t.Fatal(err)
	}
	var messages [][]byte
	for seq, state := stream.CachedInfo().State.FirstSeq, stream.CachedInfo().State; seq <= state.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, msg.Data)
	}
	sameEvents(t, messages, lines)
}

// sameEvents compares what a host has in the stream with the lines of its event socket.
func sameEvents(t testing.TB, messages, lines [][]byte) {
	t.Helper()
	at := 0
	for _, msg := range messages {
		env := decode[protocol.EventEnvelope](t, msg)
		n := 1
		if env.FromSeq > 0 {
			n = int(env.Seq - env.FromSeq + 1)
		}
		if at+n > len(lines) {
			t.Fatalf("the stream goes on behind the last line with %s", msg)
		}
		part := lines[at : at+n]
		at += n
		if n == 1 {
			if !bytes.Equal(msg, part[0]) {
				t.Fatalf("the stream has\n%s\nthe event socket\n%s", msg, part[0])
			}
			continue
		}
		want := ""
		for _, line := range part {
			want += deltaOf(t, decode[protocol.EventEnvelope](t, line))
		}
		if got := deltaOf(t, env); got != want || env.Seq != decode[protocol.EventEnvelope](t, part[n-1]).Seq {
			t.Fatalf("the stream joins %q to\n%s", want, msg)
		}
	}
	if at != len(lines) {
		t.Errorf("the stream has %d of %d events", at, len(lines))
	}
}

func deltaOf(t testing.TB, env protocol.EventEnvelope) string {
	t.Helper()
	ev, err := client.Decode(env)
	if err != nil {
		t.Fatal(err)
	}
	update, ok := ev.(protocol.MessageUpdate)
	if !ok {
		t.Fatalf("a %s was joined", env.Type)
	}
	return update.Delta + update.ThinkingDelta
}

// What is for people is refused to those who come through the fleet, unless the
// configuration says that people do.
func TestAFleetIsNoPerson(t *testing.T) {
	server := fleettest.Start(t, "")
	nc := fleettest.Dial(t, server.Direct())
	commands := []string{
		`{"id":"1","type":"approve","payload":{"approval_id":"apr-1-ses-1","option":"once"}}`,
		`{"id":"1","type":"set_approval_mode","payload":{"mode":"auto"}}`,
		`{"id":"1","type":"new_session","payload":{"mcp_servers":[{"name":"x","command":"true"}]}}`,
		`{"id":"1","type":"expand","payload":{"text":"/x"}}`,
		`{"id":"1","type":"prune","payload":{"dry_run":true}}`,
		`{"id":"1","type":"shutdown"}`,
	}
	d := fleetDaemon(t, server.URL(), "")
	d.inFleet(func(f protocol.FleetState) bool { return f.Connected })
	for _, line := range commands {
		r := overFleet(t, nc, line)
		if r.Error == nil || r.Error.Reason() != protocol.Forbidden ||
			!strings.Contains(r.Error.Message, "[fleet] approve = true") {
			t.Errorf("%s: got %+v %v", line, r, r.Error)
		}
	}
	const outside = `{"id":"1","type":"extension_command","payload":{"name":"bash","payload":{"command":"echo out","outside_sandbox":true,"reason":"to see"}}}`
	for _, mode := range []string{"ask", "auto"} { // as a person has set it there
		if r := d.commands().request(`{"id":"m","type":"set_approval_mode","payload":{"mode":"` + mode + `"}}`); !r.OK {
			t.Fatalf("%s: %+v", mode, r.Error)
		}
		if r := into[protocol.ExtensionResult](t, overFleet(t, nc, outside)); r.OK || r.Error == nil ||
			r.Error.Code != "denied" {
			t.Errorf("a call that would be asked about, in a session that is %s: got %+v %v", mode, r, r.Error)
		}
	}
	d.Stop()
	d = fleetDaemon(t, server.URL(), "approve = true\n")
	d.inFleet(func(f protocol.FleetState) bool { return f.Connected })
	if r := into[protocol.ExtensionResult](t, overFleet(t, nc, outside)); !r.OK || strings.TrimSpace(r.Result) != "out" {
		t.Errorf("with approve = true a person runs it: got %+v", r)
	}
	for _, line := range commands {
		if r := overFleet(t, nc, line); r.Error != nil && r.Error.Reason() == protocol.Forbidden {
			t.Errorf("%s: with approve = true: %v", line, r.Error)
		}
	}
	<-d.Gone // as it was told to
}

package main

import (
	"testing"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
)

// A ping at the daemon's own socket, while the fleet is quiet, while 10,000 requests at a
// time come over it, beside the same requests to a bare subscriber, and while the server
// stalls with events on their way to it.
func BenchmarkPingBesideAFleet(b *testing.B) {
	server := fleettest.Start(b, "")
	f := &jobFleet{t: b, server: server, at: `"` + server.URL() + `"`}
	ping := func(b *testing.B, d *daemon) {
		w := d.commands()
		for b.Loop() {
			if r := w.request(`{"id":"1","type":"ping","payload":{}}`); !r.OK {
				b.Fatal(r.Error)
			}
		}
	}
	alone := newDaemonOf(b, plainDaemon(b), "--model", "offline")
	d := unstarted(b, plainDaemon(b), "--model", "offline")
	f.configure(d, "box", "")
	d.Start()
	d.inFleet(func(s protocol.FleetState) bool { return s.Connected })
	bare := fleettest.Dial(b, server.Direct())
	if _, err := bare.Subscribe("raw", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil || bare.Flush() != nil {
		b.Fatal(err)
	}
	b.Run("quiet/raw", func(b *testing.B) { ping(b, alone) })
	b.Run("quiet/noused", func(b *testing.B) { ping(b, d) })
	for _, c := range []struct {
		name, subject string
		d             *daemon
	}{{"flood/raw", "raw", alone}, {"flood/noused", fleet.DefaultPrefix.Command("box"), d}} {
		b.Run(c.name, func(b *testing.B) {
			defer flood(b, server, c.subject)()
			ping(b, c.d)
		})
	}
	server.Stall()
	defer server.Go()
	b.Run("stall/raw", func(b *testing.B) { ping(b, alone) })
	b.Run("stall/noused", func(b *testing.B) {
		w := d.commands()
		for range 100 {
			w.request(`{"id":"p","type":"prompt","payload":{"text":"say something"}}`)
		}
		ping(b, d)
	})
}

// flood sends requests until it is ended: 10,000 wait for their answers at any time.
func flood(b *testing.B, server *fleettest.Server, subject string) (end func()) {
	const atOnce = 10_000
	nc := fleettest.Dial(b, server.Direct())
	answers, stop, ended := make(chan *nats.Msg, 2*atOnce), make(chan struct{}), make(chan struct{})
	inbox := nc.NewInbox()
	if _, err := nc.ChanSubscribe(inbox, answers); err != nil {
		b.Fatal(err)
	}
	send := func() { _ = nc.PublishRequest(subject, inbox, []byte(`{"id":"1","type":"ping","payload":{}}`)) }
	go func() { // ended by end
		defer close(ended)
		for range atOnce {
			send()
		}
		for {
			select {
			case <-answers:
				send()
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		nc.Close()
	}
}

package host

import (
	"testing"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// A command's round trip through the fleet, beside a request that the server carries to
// a bare subscriber.
func BenchmarkCommand(b *testing.B) {
	server := fleettest.Start(b, "")
	b.Run("raw", func(b *testing.B) {
		there, here := dial(b, server.Direct()), dial(b, server.Direct())
		sub, err := there.Subscribe("raw", func(m *nats.Msg) { _ = m.Respond(m.Data) })
		if err != nil || there.Flush() != nil {
			b.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		ping(b, here, "raw")
	})
	b.Run("noused", func(b *testing.B) {
		d := startDaemon(b, server.Direct(), nil)
		d.isJoined()
		here := dial(b, server.Direct())
		ping(b, here, fleet.DefaultPrefix.Command("box"))
	})
}

func ping(b *testing.B, nc *nats.Conn, subject string) {
	line := []byte(`{"id":"1","type":"ping"}`)
	for b.Loop() {
		if _, err := nc.Request(subject, line, patience); err != nil {
			b.Fatal(err)
		}
	}
}

// An event from its publication to a subscriber, beside a bare message.
func BenchmarkEvent(b *testing.B) {
	server := fleettest.Start(b, "")
	b.Run("raw", func(b *testing.B) {
		there, here := dial(b, server.Direct()), dial(b, server.Direct())
		got := subscribe(b, here, "raw")
		line := make([]byte, 200)
		for b.Loop() {
			if err := there.Publish("raw", line); err != nil {
				b.Fatal(err)
			}
			<-got
		}
	})
	b.Run("noused", func(b *testing.B) {
		d := startDaemon(b, server.Direct(), nil)
		d.isJoined()
		got := subscribe(b, dial(b, server.Direct()), fleet.DefaultPrefix.Events("*"))
		d.hasPublished(d.say("ses-1", "warm"))
		<-got
		for b.Loop() {
			d.say("ses-1", "word")
			<-got
		}
	})
}

func subscribe(b *testing.B, nc *nats.Conn, subject string) <-chan *nats.Msg {
	got := make(chan *nats.Msg, 1024)
	if _, err := nc.ChanSubscribe(subject, got); err != nil || nc.Flush() != nil {
		b.Fatal(err)
	}
	return got
}

// Publishing an event costs the daemon the same, whether NATS takes it, stalls, or is
// not configured.
func BenchmarkPublishLocally(b *testing.B) {
	run := func(b *testing.B, d *daemon) {
		for b.Loop() {
			d.say("ses-1", "word")
		}
	}
	b.Run("raw", func(b *testing.B) { run(b, newDaemon(b, "nats://127.0.0.1:1", nil)) })
	b.Run("noused", func(b *testing.B) {
		server := fleettest.Start(b, "")
		d := startDaemon(b, server.URL(), nil)
		d.hasPublished(d.say("ses-1", "warm"))
		server.Stall()
		run(b, d)
		b.StopTimer()
		server.Go()
	})
}

package via_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
)

// A command's round trip as nous --via makes it, beside a request that a bare subscriber
// answers.
func BenchmarkAsk(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		s := fleettest.Start(b, "")
		there, here := fleettest.Dial(b, s.URL()), fleettest.Dial(b, s.URL())
		if _, err := there.Subscribe("raw", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil || there.Flush() != nil {
			b.Fatal(err)
		}
		line := []byte(`{"v":"1","id":"1","type":"ping","payload":{}}`)
		for b.Loop() {
			if _, err := here.Request("raw", line, patience); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("noused", func(b *testing.B) {
		s := fleettest.Start(b, "")
		startDaemon(b, connect(s), "box", "ep-1")
		c := commands(b, b.Context(), open(b, connect(s), "box").Host("box"))
		for b.Loop() {
			if _, err := client.Call(b.Context(), c, protocol.Ping, protocol.PingParams{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// An event from its publication in the daemon to who watches the fleet, beside a message
// from a bare client to a bare consumer of a stream.
func BenchmarkNews(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		s := fleettest.Start(b, "")
		_, js := bare(b, connect(s))
		stream, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
			Name: "RAW", Subjects: []string{"raw"},
			Duplicates: 2 * time.Minute,
		})
		if err != nil {
			b.Fatal(err)
		}
		consumer, err := stream.CreateConsumer(b.Context(), jetstream.ConsumerConfig{
			AckPolicy:     jetstream.AckNonePolicy,
			MemoryStorage: true,
		})
		if err != nil {
			b.Fatal(err)
		}
		messages, err := consumer.Messages()
		if err != nil {
			b.Fatal(err)
		}
		defer messages.Stop()
		_, there := bare(b, connect(s))
		for b.Loop() {
			if _, err := there.PublishAsync("raw", make([]byte, 300)); err != nil {
				b.Fatal(err)
			}
			if _, err := messages.Next(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("noused", func(b *testing.B) {
		s := fleettest.Start(b, "")
		d := startDaemon(b, connect(s), "box", "ep-1")
		w, err := open(b, connect(s), "box").Watch(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer w.Close()
		for i := 0; b.Loop(); i++ {
			d.log.Append(status("ses-1", i))
			for {
				n, err := w.Next(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if n.Type != "" {
					break
				}
			}
		}
	})
}

package host

import (
	"testing"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// Whoever may send commands chooses where their replies go. What the daemon may publish,
// and that client may not, must not be reached that way.
func TestRepliesGoToNobodysSubjects(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	d.isJoined()
	nc := dial(t, server.URL())
	d.answers(nc)
	d.hasPublished(d.say("s", "hello"))
	events := fleet.DefaultPrefix.EventStream()
	for _, reply := range []string{"$JS.API.STREAM.PURGE." + events, "$KV.noused_HOSTS.other", fleet.DefaultPrefix.JobDone("j"), fleet.DefaultPrefix.JobQueue("j"), fleet.DefaultPrefix.Event("box", "s")} {
		if err := nc.PublishMsg(&nats.Msg{Subject: fleet.DefaultPrefix.Command("box"), Reply: reply, Data: []byte(`{"id":"1","type":"ping"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	d.answers(nc) // commands are taken in order
	if all := stored(t, server.URL()); len(all) != 1 {
		t.Errorf("the stream has %d messages, want the one event: %v", len(all), all)
	}
	if keys, err := jetStream(t, nc).KeyValue(t.Context(), fleet.DefaultPrefix.HostBucket()); err != nil {
		t.Error(err)
	} else if e, err := keys.Get(t.Context(), "other"); err == nil {
		t.Errorf("the bucket of hosts has %s", e.Value())
	}
}

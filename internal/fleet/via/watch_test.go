package via_test

import (
	"errors"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// A slow watcher of a fleet misses nothing unawares: he has all of it, or
// learns that the watch is over and looks anew.
func TestASlowWatchMissesNothingUnawares(t *testing.T) {
	s := fleettest.Start(t, "")
	to := connect(s)
	startDaemon(t, to, "box", "e1")
	f := open(t, to, "box")
	w, err := f.Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, js := bare(t, to)
	const all = 2000
	text := []byte(`{"v":"1","type":"run_start","seq":1,"payload":{"of":"` + strings.Repeat("x", 5000) + `"}}`)
	subject := fleet.DefaultPrefix.Event("other", "s")
	for range all {
		if _, err := js.PublishAsync(subject, text); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-within(t).Done():
		t.Fatal("the server does not take them")
	}
	got := 0
	for got < all {
		n, err := w.Next(within(t))
		if err != nil {
			if !errors.Is(err, client.ErrLost) {
				t.Errorf("after %d: %v", got, err)
			}
			return
		}
		if n.Host == "other" {
			got++
		}
	}
}

package live

import (
	"testing"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/via"
)

// A watch goes on where the server has lost the hosts' bucket, as one that was started
// anew has, and ends where it is not let in.
func TestAWatchWaitsForABucketThatIsMissing(t *testing.T) {
	t.Parallel()
	open := fleettest.Start(t, "")
	shut := fleettest.Start(t, "authorization { user: u, password: p }")
	for s, want := range map[*fleettest.Server]bool{open: true, shut: false} {
		f := via.Open(via.Options{Connect: fleet.Connect{URLs: []string{s.Direct()}}, Prefix: fleet.DefaultPrefix})
		t.Cleanup(f.Close)
		if _, err := f.Watch(t.Context()); err == nil || mayComeBack(err) != want {
			t.Errorf("got %v, and that trying again helps: %v, want %v", err, mayComeBack(err), want)
		}
	}
}

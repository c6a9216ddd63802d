package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// What runs out while a bucket is read is not waited for, and what was left out is counted.
func TestPullNow(t *testing.T) {
	s := fleettest.Start(t, "")
	js := fleettest.JetStream(t, fleettest.Dial(t, s.Direct()))
	for name, c := range map[string]struct {
		want, ahead int
		purge       bool
	}{
		"all":     {9, 4, false},
		"some":    {3, 4, false},
		"run out": {9, 1, true},
	} {
		b := strings.ReplaceAll(name, " ", "-") // the server may still be removing another of that name
		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: b})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			if _, err := kv.PutString(t.Context(), fmt.Sprint("key-", i), "value"); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		left, err := fleet.PullNow(t.Context(), js, fleet.BucketStream(b), fleet.Entries(b), c.ahead,
			func(msg jetstream.Msg) bool {
				if want := fleet.EntrySubject(b, fmt.Sprint("key-", got)); msg.Subject() != want {
					t.Errorf("%s: got %s, want %s", name, msg.Subject(), want)
				}
				if got++; c.purge && got == 1 {
					stream, err := js.Stream(t.Context(), fleet.BucketStream(b))
					if err == nil {
						err = stream.Purge(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				}
				return got < c.want
			})
		if err != nil || !c.purge && (got != c.want || int(left) != 9-c.want) || c.purge && left != 0 {
			t.Errorf("%s: got %d and %d left, %v", name, got, left, err)
		}
	}
}

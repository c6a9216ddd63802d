package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Free: 2, Base: time.Second, Max: 10 * time.Second}
		for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 10, 10} {
			b.Fail(time.Now())
			if got := b.Wait(time.Now()); got != want*time.Second {
				t.Errorf("failure %d: got %v, want %ds", i+1, got, want)
			}
		}
		time.Sleep(4 * time.Second)
		if got := b.Wait(time.Now()); got != 6*time.Second {
			t.Errorf("got %v, want 6s", got)
		}
		b.Succeed()
		if b.Wait(time.Now()) != 0 || b.Failures() != 0 {
			t.Errorf("got %+v, want it forgotten", b)
		}
	})
}

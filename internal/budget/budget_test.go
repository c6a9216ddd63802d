package budget

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsNotLeftIsNotTaken(t *testing.T) {
	b := New(90)
	for _, c := range []struct {
		take int
		ok   bool
		used int
	}{{60, true, 60}, {31, false, 60}, {30, true, 90}, {1, false, 90}} {
		if ok := b.Take(c.take); ok != c.ok || b.Used() != c.used {
			t.Errorf("take %d: got %t, %d used; want %t, %d", c.take, ok, b.Used(), c.ok, c.used)
		}
	}
	b.Give(80)
	if b.Spare() != 20 || b.Clip(100) != 79 {
		t.Errorf("got %d to spare, %d of 100; want 20, 79", b.Spare(), b.Clip(100))
	}
	var none *Budget
	none.Give(1)
	if !none.Take(1<<40) || none.Clip(100) != 100 || none.Spare() < 1<<40 {
		t.Error("no budget has a limit")
	}
}

func TestAPeakIsGivenBackToTheSystemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, freed := New(80), 0
		b.free = func() { freed++ }
		for _, c := range []struct{ take, freed int }{{20, 0}, {21, 1}, {5, 1}, {81, 2}} {
			if b.Take(c.take) {
				b.Give(c.take)
			}
			time.Sleep(restTime)
			synctest.Wait()
			if freed != c.freed {
				t.Errorf("after %d bytes: freed %d times, want %d", c.take, freed, c.freed)
			}
		}
		for range 100 { // many peaks in a moment are one
			b.Take(80)
			b.Give(80)
		}
		time.Sleep(2 * restTime)
		synctest.Wait()
		if freed != 3 {
			t.Errorf("freed %d times, want 3", freed)
		}
	})
}

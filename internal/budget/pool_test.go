package budget

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestShortOnesAreNotCounted(t *testing.T) {
	p := NewPool(1)
	for range 100 {
		if err := p.Begin().Grow(t.Context(), freePart); err != nil || p.Used() != 0 {
			t.Fatalf("got %v, %d used", err, p.Used())
		}
	}
}

func TestAPartGivesBackWhatItTook(t *testing.T) {
	p := NewPool(10 * freePart)
	a := p.Begin()
	for _, c := range []struct{ n, size, used int }{
		{3 * freePart, 3 * freePart, 2 * freePart},
		{-freePart, 2 * freePart, freePart},
		{-2 * freePart, 0, 0},
		{2 * freePart, 2 * freePart, freePart},
	} {
		if err := a.Grow(t.Context(), c.n); err != nil || a.Size() != c.size || p.Used() != c.used {
			t.Errorf("by %d: got %v, size %d, %d used; want %d, %d", c.n, err, a.Size(), p.Used(), c.size, c.used)
		}
	}
	a.End()
	a.End()
	if p.Used() != 0 || len(p.last) != 0 {
		t.Errorf("after its end: got %d used, %d last", p.Used(), len(p.last))
	}
}

// However many grow at once, each ends: the pool is never more than full, but for
// the one that waits for nothing.
func TestManyPartsAllEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, most, step = 40 * freePart, 20 * freePart, freePart / 2
		p := NewPool(size)
		var all sync.WaitGroup
		var held, peak atomic.Int64
		for range 100 {
			all.Go(func() {
				a := p.Begin()
				defer func() {
					held.Add(int64(-a.Size()))
					a.End()
				}()
				for a.Size() < most {
					if err := a.Grow(t.Context(), step); err != nil {
						t.Errorf("at %d: %v", a.Size(), err)
						return
					}
					if now := held.Add(step); now > peak.Load() {
						peak.Store(now)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		if bound := int64(size + most + 100*freePart); peak.Load() > bound || p.Used() != 0 {
			t.Errorf("got a peak of %d, want at most %d; %d are left", peak.Load(), bound, p.Used())
		}
	})
}

// What one gives back another gets that waits, though the one that waits for nothing
// does not end.
func TestWhatIsGivenBackEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(4 * freePart)
		full, last := p.Begin(), p.Begin()
		if err := errors.Join(full.Grow(t.Context(), 3*freePart), last.Grow(t.Context(), 9*freePart)); err != nil {
			t.Fatal(err)
		}
		began, got := time.Now(), make(chan error)
		go func() { got <- p.Begin().Grow(t.Context(), 3*freePart) }()
		time.Sleep(time.Second)
		full.End()
		if err := <-got; err != nil || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want room after a second", err, time.Since(began))
		}
	})
}

// One that does not end costs others that are long two minutes and an error, and
// short ones nothing.
func TestWhoFindsNoRoomIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(freePart)
		stuck := p.Begin()
		if err := stuck.Grow(t.Context(), 5*freePart); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := p.Begin().Grow(t.Context(), 5*freePart); !errors.Is(err, ErrTaken) || time.Since(began) != growPatience {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("aborted")
		leave(why)
		if err := p.Begin().Grow(gone, 5*freePart); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
		if err := p.Begin().Grow(t.Context(), freePart); err != nil {
			t.Errorf("a short one: %v", err)
		}
		stuck.End()
		if err := p.Begin().Grow(t.Context(), 5*freePart); err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
}

// Those beside the part that waits for nothing have the room that they need by turns, and nobody else has it.
func TestThoseBesideTheLastWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(freePart)
		last := p.Begin()
		if err := last.Grow(t.Context(), 5*freePart); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var held, peak atomic.Int64
		for range 5 {
			all.Go(func() {
				a := last.Beside()
				defer a.End()
				if err := a.Grow(t.Context(), 3*freePart); err != nil {
					t.Error(err)
				}
				peak.Store(max(peak.Load(), held.Add(1)))
				time.Sleep(time.Millisecond)
				held.Add(-1)
			})
		}
		all.Wait()
		if peak.Load() != 1 {
			t.Errorf("%d of them had room at once, want one", peak.Load())
		}
		last.End()
		if p.Used() != 0 || len(p.last) != 0 {
			t.Errorf("after its end: got %d used, %d last", p.Used(), len(p.last))
		}
	})
}

package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// crew are pools of the same processLimit, and what they have started.
type crew struct {
	mu    sync.Mutex
	hands map[*hand]string // those that live, with their module
	most  int              // that lived at a time beyond one of each module
}

func (c *crew) pool(processLimit *ProcessLimit, module string, size int) *Pool[*hand] {
	p := NewPool(module, size, zap.NewNop(), func() (*hand, error) {
		w := &hand{dead: make(chan struct{})}
		c.mu.Lock()
		defer c.mu.Unlock()
		for w := range c.hands {
			if !w.Alive() {
				delete(c.hands, w)
			}
		}
		c.hands[w] = module
		modules := map[string]bool{}
		for _, m := range c.hands {
			modules[m] = true
		}
		c.most = max(c.most, len(c.hands)-len(modules))
		return w, nil
	}, well)
	p.ProcessLimit = processLimit
	return p
}

// Where there is no room for one more process, the one that was idle for longest
// makes it, but never the only one of its module.
func TestTheLongestIdleMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, processLimit := &crew{hands: map[*hand]string{}}, NewProcessLimit(2)
		alone := c.pool(processLimit, "alone", 1)
		pools := []*Pool[*hand]{
			c.pool(processLimit, "x", 1), c.pool(processLimit, "x", 1), c.pool(processLimit, "x", 1),
			c.pool(processLimit, "x", 1),
		}
		var used []*hand
		for _, p := range append([]*Pool[*hand]{alone}, pools...) {
			time.Sleep(time.Second)
			l, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			used = append(used, l.Worker)
			p.Release(l)
		}
		synctest.Wait()
		for i, want := range []bool{true, false, true, true, true} {
			if used[i].Alive() != want {
				t.Errorf("process %d lives: %t, want %t", i, used[i].Alive(), want)
			}
		}
		if !used[1].order {
			t.Error("it was not shut down in order")
		}
		for _, p := range append(pools, alone) {
			p.Close(t.Context())
		}
	})
}

// A process that has ended before it is known that it was told to makes room for
// the one who waits, and no other is ended for it.
func TestOneThatEndsAtOnceMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processLimit := NewProcessLimit(1)
		ends := 0
		for range 2 {
			s, err := processLimit.Enter(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			processLimit.Rest(s, time.Now(), func() bool {
				ends++
				processLimit.Leave(s)
				return true
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := processLimit.Enter(ctx, "x"); err != nil {
			t.Error("there was room, and nobody was told:", err)
		}
		if ends != 1 {
			t.Errorf("%d processes were ended, want 1", ends)
		}
	})
}

// A process that is taken and given back in the moment in which it is told to end
// is told so once: counted twice, it would make room that does not exist, for ever,
// and the next caller waits though another one is idle.
func TestOneThatIsUsedWhileItIsToldToEndIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processLimit := NewProcessLimit(1)
		var slots []*Slot
		for range 2 {
			s, err := processLimit.Enter(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			slots = append(slots, s)
		}
		var told atomic.Int32
		goOn, entered := make(chan struct{}), make(chan error)
		enter := func() {
			_, err := processLimit.Enter(t.Context(), "x")
			entered <- err
		}
		end := func() bool {
			first := told.Add(1) == 1
			<-goOn
			return first // else it is ending
		}
		processLimit.Rest(slots[0], time.Now(), end)
		go enter()
		synctest.Wait()             // it is told to end
		processLimit.Wake(slots[0]) // somebody takes it, and gives it back
		processLimit.Rest(slots[0], time.Now(), end)
		go enter() // one more who wants room
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if n := told.Load(); n != 1 {
			t.Errorf("it was told %d times to end, want once", n)
		}
		for _, s := range slots {
			processLimit.Leave(s)
			if err := <-entered; err != nil {
				t.Error(err)
			}
		}
		if processLimit.ending != 0 {
			t.Errorf("%d are counted as ending, want none", processLimit.ending)
		}
	})
}

// While none is idle, who wants one more waits: until one is given back, or he
// gives up.
func TestWhoFindsNoRoomWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, processLimit := &crew{hands: map[*hand]string{}}, NewProcessLimit(1)
		a, b, other := c.pool(processLimit, "x", 1), c.pool(processLimit, "x", 1), c.pool(processLimit, "x", 1)
		la, _ := a.Acquire(t.Context())
		lb, _ := b.Acquire(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l, err := other.Acquire(ctx); err == nil {
			t.Fatalf("got %v, want that there is no room", l)
		}
		got := make(chan error)
		go func() {
			l, err := other.Acquire(t.Context())
			if err == nil {
				other.Release(l)
			}
			got <- err
		}()
		synctest.Wait()
		a.Release(la)
		if err := <-got; err != nil || la.Worker.Alive() || !lb.Worker.Alive() {
			t.Errorf("got %v; given back lives %t, in use %t", err, la.Worker.Alive(), lb.Worker.Alive())
		}
		b.Discard(lb)
		for _, p := range []*Pool[*hand]{a, b, other} {
			p.Close(t.Context())
		}
	})
}

// Whatever many callers of many folders do, there are never more living processes
// than may be, everybody gets his turn, and nothing is left in the end.
func TestACrowdIsNeverTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		c, processLimit := &crew{hands: map[*hand]string{}}, NewProcessLimit(most)
		var pools []*Pool[*hand]
		for i := range 24 {
			pools = append(pools, c.pool(processLimit, fmt.Sprint("m", i%3), 1+i%2))
		}
		var all sync.WaitGroup
		for n := range 16 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 3))
				for range 200 {
					p := pools[rng.IntN(len(pools))]
					l, err := p.Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
					switch rng.IntN(10) {
					case 0:
						p.Discard(l)
					case 1:
						l.Worker.Kill() // it crashes as it is given back
						p.Release(l)
					default:
						p.Release(l)
					}
				}
			})
		}
		all.Wait()
		time.Sleep(IdleTime + time.Second)
		synctest.Wait()
		if c.most > most || processLimit.total != 0 || len(processLimit.idle) != 0 || processLimit.ending != 0 {
			t.Errorf("at most %d lived beyond one of each module, want %d; now there are %d, %d idle, %d ending", c.most, most,
				processLimit.total, len(processLimit.idle), processLimit.ending)
		}
		for _, p := range pools {
			p.Close(t.Context())
		}
	})
}

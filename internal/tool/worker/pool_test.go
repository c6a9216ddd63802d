package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"noused/internal/tool"
)

// hand is a worker without a process.
type hand struct {
	dead  chan struct{}
	order bool // it was shut down in order
}

func (w *hand) Alive() bool {
	select {
	case <-w.dead:
		return false
	default:
		return true
	}
}

func (w *hand) Kill() {
	if w.Alive() {
		close(w.dead)
	}
}

func (w *hand) Shutdown(context.Context) {
	w.order = true
	w.Kill()
}

func (w *hand) Ended() <-chan struct{} { return w.dead }

// pool is a pool of two that notes what it started.
func pool(ready func(context.Context, *hand) error) (p *Pool[*hand], started *[]*hand) {
	started = new([]*hand)
	return NewPool("x", 2, zap.NewNop(), func() (*hand, error) {
		w := &hand{dead: make(chan struct{})}
		*started = append(*started, w)
		return w, nil
	}, ready), started
}

func well(context.Context, *hand) error { return nil }

func TestAWorkerIsShutDownAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started := pool(well)
		l, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Release(l)
		for range 19 { // looking at it is no use
			time.Sleep(30 * time.Second)
			if l, err = p.Spare(t.Context()); err != nil || l == nil {
				t.Fatal(l, err)
			}
			p.Return(l)
		}
		if w := (*started)[0]; !w.Alive() || len(*started) != 1 {
			t.Fatalf("got %d workers, want the first alive after 9 min 30 s", len(*started))
		}
		time.Sleep(30*time.Second + 1)
		synctest.Wait()
		if w := (*started)[0]; w.Alive() || !w.order {
			t.Error("want it shut down 10 minutes after its last use")
		}
		p.Close(t.Context())
	})
}

func TestLookingAtAWorkerDisturbsNobody(t *testing.T) {
	p, started := pool(well)
	busy, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l, err := p.Spare(t.Context()); l != nil || err != nil {
		t.Errorf("got %v, %v, want none beside the one in use", l, err)
	}
	second, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l, err := p.Spare(t.Context()); l != nil || err != nil {
		t.Errorf("got %v, %v, want no wait for one in use", l, err)
	}
	p.Release(second)
	if l, err := p.Spare(t.Context()); l != second || err != nil {
		t.Errorf("got %v, %v, want the free one", l, err)
	} else {
		p.Return(l)
	}
	p.Discard(busy)
	if len(*started) != 2 {
		t.Errorf("got %d workers, want 2", len(*started))
	}
	p.Close(t.Context())
	if w := second.Worker; w.Alive() || !w.order {
		t.Error("want the free one shut down in order")
	}
}

func TestAPoolThatKeepsCrashingIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *Pool[*hand]
		p, started := pool(func(context.Context, *hand) error {
			p.Crashed()
			return errors.New("died")
		})
		for range 10 {
			_, err := p.Acquire(t.Context())
			var f *tool.Fault
			if n := len(*started); n == 3 && errors.As(err, &f) && f.Code == tool.Unreachable &&
				strings.Contains(f.Message, "x crashed 3 times in a row; it can be started again in 1s") {
				time.Sleep(time.Second)
				break
			}
		}
		p.Acquire(t.Context())
		if len(*started) != 4 {
			t.Errorf("got %d starts, want the fourth after a second", len(*started))
		}
		for _, w := range *started {
			if w.Alive() {
				t.Error("a worker that is not ready was kept")
			}
		}
		p.Close(t.Context())
	})
}

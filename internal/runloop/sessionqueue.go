package runloop

import (
	"context"
	"sync"
)

// sessionQueue lets those who take long for one session through one after the
// other, in the order in which they came, while nobody else waits.
type sessionQueue struct {
	mu   sync.Mutex
	last map[string]chan struct{} // by session: closed when the latest to come has left
}

// enqueue gives the next place. The function that it returns must be called; it
// waits for the place and runs do, or returns why ctx ended first.
func (t *sessionQueue) enqueue(id string) func(ctx context.Context, do func() error) error {
	mine := make(chan struct{})
	t.mu.Lock()
	before := t.last[id]
	if t.last == nil {
		t.last = map[string]chan struct{}{}
	}
	t.last[id] = mine
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.last[id] == mine {
			delete(t.last, id)
		}
		close(mine)
	}
	return func(ctx context.Context, do func() error) error {
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
				go func() { // ends with those before it, each of which ends
					<-before
					leave()
				}()
				return context.Cause(ctx)
			}
		}
		defer leave()
		return do()
	}
}

package mcp

import (
	"context"
	"sync"
)

// replyGate is somebody who waits for a long answer. What is made of one takes several
// times its memory: so the daemon makes something of one at a time, and the next is
// not read before this one has been taken in.
type replyGate struct {
	mu    sync.Mutex
	ended bool
	turn  func()
}

type replyGateKey struct{}

// with has the answers to what is asked in ctx be this replyGate's.
func (t *replyGate) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, replyGateKey{}, t)
}

// hand gives it the turn of a long answer, which it ends.
func (t *replyGate) hand(done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.turn != nil {
		done()
		return
	}
	t.turn = done
}

// taken ends the turn of an answer, if there is one.
func (t *replyGate) taken() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turn != nil {
		t.turn()
		t.turn = nil
	}
}

// end says that nothing is waited for any more.
func (t *replyGate) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.taken()
}

// over reports whether end was called.
func (t *replyGate) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

package budget

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrTaken is why something cannot grow: others have what a pool has left.
var ErrTaken = errors.New("other long ones use all the memory for long ones")

const (
	// freePart of each thing, in bytes, is not counted: what is short never waits.
	freePart = 64 << 10
	// growPatience is how long one waits that finds no room to grow.
	growPatience = 2 * time.Minute
)

// Pool is for things whose length is not known while they
// arrive: answers of models. Each may have as much as the pool has left. One that
// wants more waits, for two minutes, until others have given that much back, or to be
// the one that may have it all the same: as that one waits for nothing, all end,
// whatever they have taken before. Make it with NewPool.
//
// Concurrency: a Pool may be used by any number of goroutines, a Part by one.
type Pool struct {
	room *Budget
	last chan struct{} // holds one for the part that waits for nothing

	mu    sync.Mutex
	freed chan struct{} // closed when some is given back
}

// NewPool returns a pool of size bytes.
func NewPool(size int) *Pool {
	return &Pool{room: New(size), last: make(chan struct{}, 1), freed: make(chan struct{})}
}

func (p *Pool) give(n int) {
	if n == 0 {
		return
	}
	p.room.Give(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.freed)
	p.freed = make(chan struct{})
}

func (p *Pool) nextFreed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freed
}

// Used is how many bytes are taken.
func (p *Pool) Used() int { return p.room.Used() }

// Part is what one thing has of a pool. End gives it back.
type Part struct {
	pool   *Pool
	turn   chan struct{} // holds one for the part that waits for nothing
	beside chan struct{} // as turn, for those beside this one, once it waits for nothing
	size   int           // what it has grown to
	held   int           // of it, what the pool counts
	last   bool
}

// Begin returns the part of something that is empty yet.
func (p *Pool) Begin() *Part { return &Part{pool: p, turn: p.last} }

// Beside returns a part for something that is done for p, and ends before p grows or ends. Those beside the part that
// waits for nothing wait for each other alone.
func (p *Part) Beside() *Part {
	if !p.last {
		return p.pool.Begin()
	}
	return &Part{pool: p.pool, turn: p.beside}
}

// Size is what the part has grown to, in bytes.
func (p *Part) Size() int { return p.size }

// Grow takes n bytes before they are there, or with n below zero gives them back. It
// may block. The error is ErrTaken, or why ctx has ended.
func (p *Part) Grow(ctx context.Context, n int) error {
	if n <= 0 {
		p.size = max(0, p.size+n)
		if more := p.held - max(0, p.size-freePart); more > 0 {
			p.held -= more
			p.pool.give(more)
		}
		return nil
	}
	want := p.size + n - freePart - p.held
	if want > 0 && !p.last && !p.reserve(want) {
		if err := p.wait(ctx, want); err != nil {
			return err
		}
	}
	p.size += n
	return nil
}

func (p *Part) reserve(want int) bool {
	if p.held+want > p.pool.room.left() || !p.pool.room.Take(want) {
		return false
	}
	p.held += want
	return true
}

// wait waits until there is room, or to be the last.
func (p *Part) wait(ctx context.Context, want int) error {
	late := time.NewTimer(growPatience)
	defer late.Stop()
	for {
		freed := p.pool.nextFreed()
		if p.reserve(want) {
			return nil
		}
		select {
		case p.turn <- struct{}{}:
			p.last, p.beside = true, make(chan struct{}, 1)
			return nil
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return ErrTaken
		}
	}
}

// End gives all of it back. It may be called again.
func (p *Part) End() {
	p.pool.give(p.held)
	p.size, p.held = 0, 0
	if p.last {
		p.last = false
		<-p.turn
	}
}

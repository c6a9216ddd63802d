// Package worker keeps the living processes of one descriptor: a [Conn] is one of
// them, asked one thing at a time, a [Dialogue] what a protocol makes of its
// lines, a [Pool] holds as many as the descriptor allows and starts, lends and
// ends them, and a [Backoff] says how long to leave alone what keeps failing.
//
// # Concurrency properties
//
// A Pool may be used from any goroutine; a worker belongs to the goroutine that has taken it
// from its pool. One goroutine reads each process for as long as it lives, and
// [Pool.Close] waits for all of them.
//
// # What it refuses to do
//
// It knows no protocol, and it never retries: nobody knows what the first
// attempt did. A worker that was not asked to its end is killed, so that an
// answer reaches no question but its own.
package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"noused/internal/tool"
)

// IdleTime is how long a living process is kept without being used.
const IdleTime = 10 * time.Minute

// Worker is what a [Pool] keeps: a living process, or another way to reach a
// module.
type Worker interface {
	// Alive reports whether it can be asked something.
	Alive() bool
	// Kill ends it without ceremony and does not wait for that.
	Kill()
	// Shutdown ends it in order, by force when ctx is done, and returns when it
	// has ended.
	Shutdown(ctx context.Context)
	// Ended is closed when nothing of it is left.
	Ended() <-chan struct{}
}

// Lease is a worker that somebody has taken from its [Pool], or that lies in
// it.
type Lease[W Worker] struct {
	Worker W
	used   time.Time   // the holder's, as the worker is
	view   string      // what Pool.View said before it was started
	timer  *time.Timer // the pool's
	slot   *Slot       // in the pool's ProcessLimit
}

// Pool keeps the workers of one module: at most so many, started at first use,
// each taken by one caller at a time, shut down when they have not been used
// for a while, and left alone when they keep crashing (tools.md §1, §3, §4).
// All methods may be called from any goroutine, until Close is.
type Pool[W Worker] struct {
	// Idle and Crashes may be changed before the first use. Crashes is guarded
	// by the pool from then on.
	Idle    time.Duration
	Crashes Backoff
	// View, where it is set, tells what a new worker would see. One that was
	// started when it said something else is shut down, not used again. It may be
	// set before the first use.
	View func() string
	// ProcessLimit, where it is set, bounds this pool's workers and those of others. It may
	// be set before the first use.
	ProcessLimit *ProcessLimit

	name  string
	log   *zap.Logger
	start func() (W, error)
	ready func(context.Context, W) error
	slots chan struct{} // one per worker that may be in use
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup // workers, and goroutines that end workers

	mu   sync.Mutex
	free []*Lease[W] // the most recently used last
}

// NewPool makes a pool of at most size workers of the module called name. start
// makes a worker and does not wait for it; ready waits until it can be used,
// and an error means that it never will. The pool starts nothing by itself.
func NewPool[W Worker](name string, size int, log *zap.Logger, start func() (W, error),
	ready func(context.Context, W) error,
) *Pool[W] {
	ctx, stop := context.WithCancel(context.Background())
	return &Pool[W]{
		Idle: IdleTime, Crashes: Backoff{Free: 2, Base: time.Second, Max: time.Minute},
		name: name, log: log, start: start, ready: ready, slots: make(chan struct{}, size), ctx: ctx, stop: stop,
	}
}

// Acquire waits, as long as ctx, for a worker that nobody uses, or for a new
// one. The lease ends with Release, Return or Discard. Errors are those of
// start and ready, and unreachable while a module that keeps crashing is left
// alone.
func (p *Pool[W]) Acquire(ctx context.Context) (*Lease[W], error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, tool.Interrupted(ctx)
	}
	if l := p.takeIdle(); l != nil {
		return l, nil
	}
	return p.spawn(ctx)
}

// Spare is Acquire for somebody who has no call to make: it neither waits for a
// worker nor starts one beside those in use, but returns nil.
func (p *Pool[W]) Spare(ctx context.Context) (*Lease[W], error) {
	select {
	case p.slots <- struct{}{}:
	default:
		return nil, nil
	}
	if l := p.takeIdle(); l != nil {
		return l, nil
	}
	if len(p.slots) > 1 {
		<-p.slots
		return nil, nil
	}
	return p.spawn(ctx)
}

// takeIdle returns the most recently used worker that still lives.
func (p *Pool[W]) takeIdle() *Lease[W] {
	view := p.view()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.free) > 0 {
		l := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		l.timer.Stop()
		p.ProcessLimit.Wake(l.slot)
		switch alive := l.Worker.Alive(); {
		case alive && l.view == view:
			return l
		case alive:
			p.work.Go(func() { l.Worker.Shutdown(p.ctx) })
			continue
		}
		p.log.Info("process ended while it was idle")
		l.Worker.Kill()
	}
	return nil
}

func (p *Pool[W]) view() string {
	if p.View == nil {
		return ""
	}
	return p.View()
}

// spawn fills a slot that the caller holds, or gives it back.
func (p *Pool[W]) spawn(ctx context.Context) (l *Lease[W], err error) {
	defer func() {
		if err != nil {
			<-p.slots
		}
	}()
	p.mu.Lock()
	wait, failures := p.Crashes.Wait(time.Now()), p.Crashes.Failures()
	p.mu.Unlock()
	if wait > 0 {
		return nil, tool.Faultf(tool.Unreachable, "%s crashed %d times in a row; it can be started again in %v",
			p.name, failures, wait.Round(100*time.Millisecond))
	}
	slot, err := p.ProcessLimit.Enter(ctx, p.name)
	if err != nil {
		return nil, err
	}
	view := p.view() // before the worker has it
	w, err := p.start()
	if err != nil {
		p.ProcessLimit.Leave(slot)
		return nil, err
	}
	p.work.Go(func() {
		<-w.Ended()
		p.ProcessLimit.Leave(slot)
	})
	if err := p.ready(ctx, w); err != nil {
		w.Kill()
		return nil, err
	}
	return &Lease[W]{Worker: w, used: time.Now(), view: view, slot: slot}, nil
}

// Release keeps a worker that has been used for the next caller.
func (p *Pool[W]) Release(l *Lease[W]) {
	l.used = time.Now()
	p.Return(l)
}

// Return is Release for a worker that was taken and not used: it is shut down
// no later for that.
func (p *Pool[W]) Return(l *Lease[W]) {
	p.mu.Lock()
	p.free = append(p.free, l)
	l.timer = time.AfterFunc(p.Idle-time.Since(l.used), func() { p.dismiss(l) })
	p.ProcessLimit.Rest(l.slot, l.used, func() bool { return p.dismiss(l) })
	p.mu.Unlock()
	<-p.slots
}

// Discard ends a worker that cannot be trusted any more.
func (p *Pool[W]) Discard(l *Lease[W]) {
	l.Worker.Kill()
	<-p.slots
}

// Crashed counts one more crash in a row.
func (p *Pool[W]) Crashed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Crashes.Fail(time.Now())
}

// Answered ends the row: a worker has answered a call. That it could be started
// is not enough, as it may well die of every call.
func (p *Pool[W]) Answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Crashes.Succeed()
}

// dismiss has a worker shut down that nobody uses, and does not wait for that.
// False: somebody has taken it.
func (p *Pool[W]) dismiss(l *Lease[W]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.free, l)
	if i < 0 { // taken, or the pool is closed
		return false
	}
	p.free = slices.Delete(p.free, i, i+1)
	l.timer.Stop()
	p.log.Debug("shutting down an idle process")
	p.work.Go(func() { l.Worker.Shutdown(p.ctx) })
	return true
}

// Close shuts the workers down, all at once, by force when ctx is done, and waits
// until nothing is left. Nobody has one by then, nor waits for one.
func (p *Pool[W]) Close(ctx context.Context) {
	p.mu.Lock()
	free := p.free
	p.free = nil
	for _, l := range free {
		l.timer.Stop()
	}
	p.mu.Unlock()
	p.stop()
	for _, l := range free {
		p.work.Go(func() { l.Worker.Shutdown(ctx) })
	}
	p.work.Wait()
}

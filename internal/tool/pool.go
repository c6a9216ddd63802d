package tool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// IdleTime is how long a living process is kept without being used.
const IdleTime = 10 * time.Minute

// errStopping is the cause of a call's end when its pool is closed.
var errStopping = errors.New("the daemon is stopping")

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
}

// Pool keeps the workers of one module: at most so many, started at first use,
// each taken by one caller at a time, shut down when they have not been used
// for a while, and left alone when they keep crashing (tools.md §1, §3, §4).
// All methods may be called from any goroutine, between Enter and leave.
type Pool[W Worker] struct {
	// Idle and Crashes may be changed before the first use. Crashes is guarded
	// by the pool from then on.
	Idle    time.Duration
	Crashes Backoff
	// View, where it is set, tells what a new worker would see. One that was
	// started when it said something else is shut down, not used again. It may be
	// set before the first use.
	View func() string

	name  string
	log   *zap.Logger
	start func() (W, error)
	ready func(context.Context, W) error
	slots chan struct{} // one per worker that may be in use
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup // callers, workers, and goroutines that end workers

	mu     sync.Mutex
	closed bool
	free   []*Lease[W] // the most recently used last
}

// NewPool makes a pool of at most size workers of the module called name. start
// makes a worker and does not wait for it; ready waits until it can be used,
// and an error means that it never will. The pool starts nothing by itself.
func NewPool[W Worker](name string, size int, log *zap.Logger, start func() (W, error), ready func(context.Context, W) error) *Pool[W] {
	ctx, stop := context.WithCancel(context.Background())
	return &Pool[W]{
		Idle: IdleTime, Crashes: Backoff{Free: 2, Base: time.Second, Max: time.Minute},
		name: name, log: log, start: start, ready: ready, slots: make(chan struct{}, size), ctx: ctx, stop: stop,
	}
}

// Enter binds ctx to the pool's life and counts the caller until leave, which
// must be called: Close waits for it. The error is a [Fault], aborted, once the
// pool is closed.
func (p *Pool[W]) Enter(ctx context.Context) (_ context.Context, leave func(), _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, Faultf(Aborted, "%v", errStopping)
	}
	p.work.Add(1)
	ctx, abort := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(p.ctx, func() { abort(errStopping) })
	return ctx, func() {
		unbind()
		abort(nil)
		p.work.Done()
	}, nil
}

// Acquire waits, as long as ctx, for a worker that nobody uses, or for a new
// one. The lease ends with Release, Return or Discard. Errors are those of
// start and ready, and unreachable while a module that keeps crashing is left
// alone.
func (p *Pool[W]) Acquire(ctx context.Context) (*Lease[W], error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, Interrupted(ctx)
	}
	if l := p.take(); l != nil {
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
	if l := p.take(); l != nil {
		return l, nil
	}
	if len(p.slots) > 1 {
		<-p.slots
		return nil, nil
	}
	return p.spawn(ctx)
}

// take returns the most recently used worker that still lives.
func (p *Pool[W]) take() *Lease[W] {
	view := p.view()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.free) > 0 {
		l := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		l.timer.Stop()
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
		return nil, Faultf(Unreachable, "%s crashed %d times in a row; it can be started again in %v",
			p.name, failures, wait.Round(100*time.Millisecond))
	}
	view := p.view() // before the worker has it
	w, err := p.start()
	if err != nil {
		return nil, err
	}
	p.work.Go(func() { <-w.Ended() })
	if err := p.ready(ctx, w); err != nil {
		w.Kill()
		return nil, err
	}
	return &Lease[W]{Worker: w, used: time.Now(), view: view}, nil
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
	if p.closed {
		l.Worker.Kill()
	} else {
		p.free = append(p.free, l)
		l.timer = time.AfterFunc(p.Idle-time.Since(l.used), func() { p.retire(l) })
	}
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

// retire shuts a worker down that nobody has used for a long time.
func (p *Pool[W]) retire(l *Lease[W]) {
	p.mu.Lock()
	i := slices.Index(p.free, l)
	if i < 0 || p.closed {
		p.mu.Unlock()
		return
	}
	p.free = slices.Delete(p.free, i, i+1)
	p.work.Add(1)
	p.mu.Unlock()
	defer p.work.Done()
	p.log.Debug("shutting down an idle process")
	l.Worker.Shutdown(p.ctx)
}

// Close ends the contexts of all callers, shuts the free workers down, all at
// once, by force when ctx is done, and waits until nothing is left.
func (p *Pool[W]) Close(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
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

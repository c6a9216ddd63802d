// Package work does the jobs of a fleet in this daemon (remote.md §2): it takes those
// that its labels fit, as many at a time as it has slots, has the daemon run each in a
// session of its own, and tells its end.
//
// What a job has come to is in a file of its own in the state folder, from when its
// session is made until its end was told. So a daemon that was killed goes on with it,
// and one that was away for longer than the timeout of claims learns that the job is
// another's, and aborts its run.
//
// Concurrency: a Worker may be used by any number of goroutines, Serve by one at a time.
// Each job has a goroutine of its own, which ends with the job, or with Close. Runs do
// not need the connection: they go on without one.
//
// It refuses to begin with a job whose claim is not its own, to tell an end twice, to ask
// anybody what a run may do, and to hold up the daemon for NATS.
package work

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"noused/internal/event"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

// Options is what a Worker needs; all of it must be set, Labels aside.
type Options struct {
	Prefix   fleet.Prefix
	Name     string // the daemon's in the fleet
	Instance string // as in fleet.Presence
	Labels   map[string]string
	Slots    int
	Timeout  time.Duration // of claims, where the bucket for them is made

	Dir    string // for what must outlive the daemon; made if it is missing
	Trees  string // where worktrees are made
	Git    worktree.Runner
	Mux    *protocol.Mux
	Events *event.Log
	Audit  func(model.AuditEvent) // must not block
	Log    *zap.Logger
}

// Worker does jobs. New makes one.
type Worker struct {
	o      Options
	ctx    context.Context
	stop   context.CancelFunc
	all    sync.WaitGroup
	begun  bool          // what the daemon before this one had begun goes on; Serve's
	warned time.Duration // of this timeout of the bucket; Serve's

	mu     sync.Mutex
	active map[string]*task // by the job's id
	queue  *job.Queue       // nil while there is no connection
	online chan struct{}    // closed when queue is set
	freed  chan struct{}    // holds one: a slot is free
}

// New makes a Worker. It does nothing until Serve.
func New(o Options) *Worker {
	w := &Worker{o: o, active: map[string]*task{}, online: make(chan struct{}), freed: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// start goes on with the jobs that the daemon before this one had begun.
func (w *Worker) start() error {
	if w.begun {
		return nil
	}
	before, err := w.load()
	if err != nil {
		return fmt.Errorf("the jobs that were begun before cannot be read, and none is taken: %w", err)
	}
	ends, _, _ := w.o.Events.Begin("", nil, event.Filter{Types: []string{protocol.AgentEnd{}.Type()}})
	for _, r := range before {
		w.startTask(r, 0)
	}
	w.begun = true
	w.all.Go(func() { w.hear(ends) })
	return nil
}

// compare warns of a job_timeout that is not the bucket's, which counts.
func (w *Worker) compare(q *job.Queue) {
	if q.Timeout == w.o.Timeout || q.Timeout == w.warned {
		return
	}
	w.warned = q.Timeout
	w.o.Log.Warn("job_timeout does not count, as the bucket of claims was made with another; change one of the two",
		zap.Duration("job_timeout", w.o.Timeout), zap.String("bucket", w.o.Prefix.ClaimBucket()),
		zap.Duration("bucket_ttl", q.Timeout))
}

// Close ends its goroutines. Serve must have returned. Runs are the daemon's to end.
func (w *Worker) Close() {
	w.stop()
	w.all.Wait()
}

// startTask has a goroutine work at a job. 0 is the revision of a claim that has to be
// looked at.
func (w *Worker) startTask(r record, revision uint64) {
	t := &task{w: w, record: r, revision: revision, hold: make(chan struct{}), ended: make(chan struct{}, 1)}
	t.told.SessionID, t.told.RunID = r.SessionID, r.RunID
	t.ctx, t.quit = context.WithCancelCause(w.ctx)
	if revision != 0 {
		close(t.hold)
	}
	w.mu.Lock()
	w.active[r.ID] = t
	w.mu.Unlock()
	w.all.Go(func() {
		defer w.survive()
		defer w.leave(t)
		t.work()
	})
}

func (w *Worker) leave(t *task) {
	t.quit(nil)
	w.mu.Lock()
	delete(w.active, t.ID)
	w.mu.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

func (w *Worker) task(id string) *task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active[id]
}

func (w *Worker) tasks() (all []*task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.active {
		all = append(all, t)
	}
	return all
}

// connection waits for the queue.
func (w *Worker) connection(ctx context.Context) (*job.Queue, error) {
	for {
		w.mu.Lock()
		q, online := w.queue, w.online
		w.mu.Unlock()
		if q != nil {
			return q, nil
		}
		select {
		case <-online:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (w *Worker) connected(q *job.Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
	if q != nil {
		close(w.online)
	} else {
		w.online = make(chan struct{})
	}
}

// survive keeps a panic here from ending the daemon.
func (w *Worker) survive() {
	if v := recover(); v != nil {
		w.o.Log.Error("panic", zap.Any("panic", v), zap.Stack("stack"))
	}
}

// hear wakes the tasks whose runs end. What it missed may be the end of any.
func (w *Worker) hear(ends event.Cursor) {
	defer w.survive()
	for {
		b := w.o.Events.Read(&ends, 64<<10, nil)
		if len(b.Lines) > 0 || b.To > 0 {
			for _, t := range w.tasks() {
				if b.To > 0 || t.isIn(b.Lines) {
					t.wake()
				}
			}
			continue
		}
		if b.End {
			return
		}
		select {
		case <-b.Wait:
		case <-w.ctx.Done():
			return
		}
	}
}

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Serve takes jobs over a connection, until ctx or the connection ends. It calls well
// when it can.
func (w *Worker) Serve(ctx context.Context, js jetstream.JetStream, well func()) error {
	q, err := job.Open(ctx, js, w.o.Prefix, w.o.Timeout)
	if err != nil {
		return err
	}
	s := &serving{w: w, q: q, places: map[string]*place{}, hints: make(chan string, 64)}
	sub, err := q.Submitted(s.hint)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	watcher, err := q.Watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	if err := w.start(); err != nil {
		return err
	}
	w.compare(q)
	if err := s.reclaim(ctx); err != nil {
		return err
	}
	w.connected(q)
	defer w.connected(nil)
	well()
	return s.loop(ctx, watcher)
}

package amplifier

import (
	"context"
	"time"

	"go.uber.org/zap"

	"noused/internal/tool"
	"noused/internal/tool/worker"
)

// check is a question after the module's health.
type check struct {
	done     chan struct{}
	answered bool // health is; guarded by the host's mutex
}

// judge keeps what an answer to health, or its absence, says of the module.
func (h *host) judge(problem error) {
	if aborted(problem) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if (problem == nil) != (h.problem == nil) {
		h.log.Info("module's health", zap.Bool("healthy", problem == nil), zap.Error(problem))
	}
	h.problem, h.checked = problem, time.Now()
	if h.check != nil {
		h.check.answered = true
	}
}

// inquire returns the check that Describe has to wait for, starting it where
// none is running; nil where the last one will do.
func (h *host) inquire() (*check, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.manifest != nil && !h.checked.IsZero() && (h.problem == nil || time.Since(h.checked) < h.every) {
		return nil, nil
	}
	if h.check != nil {
		return h.check, nil
	}
	if h.closed {
		return nil, tool.Faultf(tool.Aborted, "the daemon is stopping")
	}
	if h.checked.IsZero() {
		h.inUse()
	}
	c := h.startCheck()
	acquire := h.pool.Spare
	if h.manifest == nil {
		acquire = h.pool.Acquire
	}
	h.checks.Go(func() { h.run(h.ctx, c, acquire) }) // ends with the module's answer, or startTime
	return c, nil
}

func (h *host) await(ctx context.Context, c *check, late <-chan time.Time) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return tool.Interrupted(ctx)
	case <-late:
	}
	h.mu.Lock()
	answered := c.answered
	h.mu.Unlock()
	if !answered {
		return tool.Faultf(tool.Timeout, "health: no answer within %v", h.health)
	}
	select { // it describes itself
	case <-c.done:
		return nil
	case <-ctx.Done():
		return tool.Interrupted(ctx)
	}
}

// startCheck notes that a check is running. The mutex is held.
func (h *host) startCheck() *check {
	h.check = &check{done: make(chan struct{})}
	return h.check
}

// run asks for the module's health once, unless it is busy answering.
func (h *host) run(ctx context.Context, c *check, acquire func(context.Context) (*worker.Lease[link], error)) {
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.check = nil
		close(c.done)
	}()
	asked := time.Now()
	l, err := acquire(ctx)
	switch {
	case err != nil:
		h.judge(err)
		return
	case l == nil:
		return
	}
	if h.judgedSince(asked) { // it is new, and was asked when it started
		h.pool.Return(l)
		return
	}
	if _, usable := h.examine(ctx, l); !usable {
		h.pool.Discard(l)
		return
	}
	h.pool.Return(l)
}

// examine asks a worker for the module's health. One that does not answer cannot
// be asked anything more.
func (h *host) examine(ctx context.Context, l *worker.Lease[link]) (problem error, usable bool) {
	ctx, cancel := tool.WithTimeout(ctx, h.health)
	defer cancel()
	o, err := l.Worker.exchange(ctx, request{Method: methodHealth})
	if err == nil {
		err = o.healthy()
	}
	err = prefixed(methodHealth, err)
	h.judge(err)
	return err, ctx.Err() == nil && l.Worker.Alive()
}

// recheck asks the worker for a call, taken since, for the module's health again
// where that was bad before. Where it still is, the error says so, and the
// worker is given back.
func (h *host) recheck(ctx context.Context, l *worker.Lease[link], since time.Time) error {
	h.mu.Lock()
	problem, fresh := h.problem, h.checked.After(since)
	h.mu.Unlock()
	if problem == nil {
		return nil
	}
	usable := true
	if !fresh {
		problem, usable = h.examine(ctx, l)
	}
	switch {
	case problem == nil:
		return nil
	case usable:
		h.pool.Return(l)
	default:
		h.pool.Discard(l)
	}
	if aborted(problem) {
		return problem
	}
	return tool.Faultf(tool.Unreachable, "%s is not well, and was not called: %v", h.desc.Name, problem)
}

func (h *host) judgedSince(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checked.After(t)
}

// inUse has the module's health asked for from now on. The mutex is held.
func (h *host) inUse() {
	h.used = time.Now()
	if h.timer == nil && !h.closed {
		h.timer = time.AfterFunc(h.every, h.tick)
	}
}

// tick asks for the module's health while it is in use.
func (h *host) tick() {
	h.mu.Lock()
	if h.closed || time.Since(h.used) > h.pool.Idle {
		h.timer = nil
		h.mu.Unlock()
		return
	}
	h.checks.Add(1)
	defer h.checks.Done()
	var c *check
	if h.check == nil {
		c = h.startCheck()
	}
	h.mu.Unlock()
	if c != nil {
		h.run(h.ctx, c, h.pool.Spare)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.timer.Reset(h.every)
	}
}

// Package gevals runs extensions that speak the gevals extension protocol
// 0.0.1: living processes, JSON-RPC 2.0 as JSON lines over stdio.
//
// Concurrency properties: a host keeps at most the descriptor's concurrency in
// processes; each answers one call at a time, and a call waits for a free one
// as long as its context. One goroutine reads each process for as long as it
// lives. Logs reach the caller in order, before the result, in the caller's
// goroutine; while it blocks, the process is not read.
//
// It refuses to let an answer reach any call but its own: a process whose call
// was given up is killed. It does not retry a call, as nobody knows what the
// first attempt did.
package gevals

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/tool"
)

const (
	protocolVersion = "0.0.1"
	// requirementNotMet is the protocol's code for a missing command.
	requirementNotMet = "-32002"
)

// waits are how long things may take (tools.md §3).
type waits struct {
	init time.Duration // for the manifest
	idle time.Duration // before an unused process is shut down
	ack  time.Duration // for the answer to shutdown
}

type host struct {
	desc       *tool.Descriptor
	supervisor *tool.Supervisor
	log        *zap.Logger
	slots      chan struct{} // one per process that may be in use
	ctx        context.Context
	stop       context.CancelFunc
	waits      waits
	// These go into every request.
	env     jsontext.Value
	timeout string
	work    sync.WaitGroup // calls, and goroutines that end processes

	mu       sync.Mutex
	closed   bool
	free     []*conn // the most recently used last
	manifest *tool.Manifest
	requires []string
	crashes  tool.Backoff
}

// Dialect makes the host of a gevals extension. It is a [tool.Dialect].
func Dialect(d *tool.Descriptor, s *tool.Supervisor, log *zap.Logger) tool.Host {
	ctx, stop := context.WithCancel(context.Background())
	return &host{
		desc: d, supervisor: s, log: log, ctx: ctx, stop: stop,
		env: encodeEnv(d.Env), timeout: d.Timeout.String(),
		waits:   waits{init: 10 * time.Second, idle: 10 * time.Minute, ack: 5 * time.Second},
		slots:   make(chan struct{}, d.Concurrency),
		crashes: tool.Backoff{Free: 2, Base: time.Second, Max: time.Minute},
	}
}

// encodeEnv is the env of every context. A value that is not UTF-8, which the
// environment of the daemon may have, becomes what JSON can say of it.
func encodeEnv(env map[string]string) jsontext.Value {
	if len(env) == 0 {
		return nil
	}
	text, err := jsonx.Marshal(env, jsontext.AllowInvalidUTF8(true), jsonx.Deterministic(true))
	if err != nil {
		return nil // a name that is the same as another once it is UTF-8
	}
	return text
}

// Describe returns the manifest of the latest process, starting the first one
// where there was none. A requirement that is not met is an error beside it.
func (h *host) Describe(ctx context.Context) (*tool.Manifest, error) {
	if m := h.known(); m != nil {
		return m, h.unmet()
	}
	ctx, leave, err := h.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := h.acquire(ctx)
	if err != nil {
		return nil, err
	}
	h.release(c)
	return h.known(), h.unmet()
}

func (h *host) known() *tool.Manifest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.manifest
}

// unmet looks for the commands that the extension requires (gevals:
// Requirement Object), anew each time, as they can be installed meanwhile.
func (h *host) unmet() error {
	h.mu.Lock()
	requires := h.requires
	h.mu.Unlock()
	for _, command := range requires {
		if _, err := h.desc.LookPath(command); err != nil {
			return tool.Faultf(requirementNotMet, "requires the command %s: %v", command, err)
		}
	}
	return nil
}

// enter binds ctx to the host's life and counts the caller until leave.
func (h *host) enter(ctx context.Context) (_ context.Context, leave func(), _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, tool.Faultf(tool.Aborted, "the daemon is stopping")
	}
	h.work.Add(1)
	ctx, abort := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(h.ctx, func() { abort(errors.New("the daemon is stopping")) })
	return ctx, func() {
		unbind()
		abort(nil)
		h.work.Done()
	}, nil
}

// Call executes an operation (gevals: Execute). Its timeout does not count the
// wait for a free process, nor the start of a new one.
func (h *host) Call(ctx context.Context, op string, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	if err := h.unmet(); err != nil {
		return tool.Failure(err)
	}
	ctx, leave, err := h.enter(ctx)
	if err != nil {
		return tool.Failure(err)
	}
	defer leave()
	c, err := h.acquire(ctx)
	if err != nil {
		return tool.Failure(err)
	}
	healthy := false
	defer func() { // also where progress panics
		if !healthy {
			c.kill()
			<-h.slots
			return
		}
		h.release(c)
	}()

	ctx, cancel := tool.WithTimeout(ctx, h.desc.Timeout)
	defer cancel()
	reply, err := c.request(ctx, "execute", h.params(op, inv), progress)
	healthy = ctx.Err() == nil && c.alive()
	h.count(err)
	if err != nil {
		return h.failure(c, op, inv.ID, err)
	}
	result, warnings := decodeResult(reply)
	for _, w := range warnings {
		progress(model.ToolUpdate{Delta: w, Warning: tool.InvalidEvent})
	}
	return result
}

type execute struct {
	Operation string         `json:"operation"`
	Args      jsontext.Value `json:"args"`
	Context   execContext    `json:"context"`
}

type execContext struct {
	Workdir string         `json:"workdir"`
	Phase   string         `json:"phase"`
	Env     jsontext.Value `json:"env,omitzero"`
	Timeout string         `json:"timeout"`
	Agent   *agent         `json:"agent,omitzero"`
}

type agent struct {
	Prompt string `json:"prompt"`
	Output string `json:"output"`
}

func (h *host) params(op string, inv model.Invocation) execute {
	e := execute{op, jsontext.Value(inv.Arguments), execContext{
		Workdir: h.desc.Workdir, Phase: inv.Phase, Env: h.env, Timeout: h.timeout,
	}}
	switch e.Context.Phase {
	case "":
		e.Context.Phase = "setup"
	case "verify":
		e.Context.Agent = &agent{inv.Prompt, inv.Output}
	}
	return e
}

// count keeps score of crashes in a row. Only an answer ends the row: an
// extension may well initialize and then die of every call.
func (h *host) count(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var f *tool.Fault
	switch {
	case !errors.As(err, &f) || isNumber(f.Code):
		h.crashes.Succeed()
	case f.Code == tool.Crashed:
		h.crashes.Fail(time.Now())
	}
}

// isNumber tells a code of the extension's from one of ours.
func isNumber(code string) bool {
	return code != "" && (code[0] == '-' || code[0] >= '0' && code[0] <= '9')
}

func (h *host) failure(c *conn, op, id string, err error) model.ToolResult {
	r := tool.Failure(err)
	fields := []zap.Field{
		zap.String("operation", op), zap.String("tool_call_id", id),
		zap.String("code", r.Error.Code), zap.String("error", r.Error.Message),
	}
	stderr := c.proc.Stderr(shownStderr)
	if stderr != "" && !isNumber(r.Error.Code) {
		fields = append(fields, zap.String("stderr", stderr))
		r.Text += "\nstderr:\n" + stderr
	}
	h.log.Warn("tool failed", fields...)
	return r
}

// acquire waits for a slot and returns a process in it, ready for a request.
// On success the slot is held until release, or until the caller gives it back.
func (h *host) acquire(ctx context.Context) (*conn, error) {
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, tool.Interrupted(ctx)
	}
	if c := h.takeFree(); c != nil {
		return c, nil
	}
	c, err := h.spawn(ctx)
	if err != nil {
		<-h.slots
		return nil, err
	}
	return c, nil
}

// takeFree returns the most recently used process that still lives.
func (h *host) takeFree() *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.free) > 0 {
		c := h.free[len(h.free)-1]
		h.free = h.free[:len(h.free)-1]
		c.idle.Stop()
		if c.alive() {
			return c
		}
		h.log.Info("extension ended while it was idle")
		c.kill()
	}
	return nil
}

// release keeps the process for the next call and frees the slot.
func (h *host) release(c *conn) {
	h.mu.Lock()
	if h.closed {
		c.kill()
	} else {
		h.free = append(h.free, c)
		if c.idle == nil {
			c.idle = time.AfterFunc(h.waits.idle, func() { h.retire(c) })
		} else {
			c.idle.Reset(h.waits.idle)
		}
	}
	h.mu.Unlock()
	<-h.slots
}

// retire shuts a process down that nobody has taken for a long time.
func (h *host) retire(c *conn) {
	h.mu.Lock()
	i := slices.Index(h.free, c)
	if i < 0 || h.closed {
		h.mu.Unlock()
		return
	}
	h.free = slices.Delete(h.free, i, i+1)
	h.work.Add(1)
	h.mu.Unlock()
	defer h.work.Done()
	h.log.Debug("shutting down an idle extension")
	c.shutdown(h.ctx, h.waits.ack)
}

// spawn starts a process and initializes it (gevals: Initialize).
func (h *host) spawn(ctx context.Context) (*conn, error) {
	h.mu.Lock()
	wait, failures := h.crashes.Wait(time.Now()), h.crashes.Failures()
	h.mu.Unlock()
	if wait > 0 {
		return nil, tool.Faultf(tool.Unreachable, "%s crashed %d times in a row; it can be started again in %v",
			h.desc.Name, failures, wait.Round(100*time.Millisecond))
	}
	cmd, err := h.desc.Command()
	if err != nil {
		return nil, err
	}
	p, err := h.supervisor.Start(context.Background(), cmd)
	if err != nil {
		return nil, err
	}
	c := newConn(p, h.log)
	h.work.Go(func() { <-c.dead })
	init, cancel := tool.WithTimeout(ctx, h.waits.init)
	defer cancel()
	reply, err := c.request(init, "initialize", struct {
		Version string         `json:"protocolVersion"`
		Config  jsontext.Value `json:"config,omitzero"`
	}{protocolVersion, jsontext.Value(h.desc.Config)}, nil)
	var m *manifest
	if err == nil {
		m, err = decodeManifest(reply)
	}
	if err != nil {
		h.countStart(err)
		c.kill()
		var f *tool.Fault
		if errors.As(err, &f) && f.Code != tool.Aborted {
			err = &tool.Fault{Code: f.Code, Message: "initialize: " + f.Message, Details: f.Details}
			h.log.Warn("extension did not start", zap.Error(err), zap.String("stderr", p.Stderr(shownStderr)))
		}
		return nil, err
	}
	h.learn(m)
	return c, nil
}

// countStart counts a start that failed as a crash.
func (h *host) countStart(err error) {
	var f *tool.Fault
	if errors.As(err, &f) && f.Code == tool.Aborted {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.crashes.Fail(time.Now())
}

// learn keeps the manifest of a new process; the old pointer where it offers
// the same.
func (h *host) learn(m *manifest) {
	for _, w := range m.Warnings {
		h.log.Warn("extension's manifest: " + w)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requires = m.Requires
	if h.manifest == nil || !same(h.manifest.Operations, m.Operations) {
		h.manifest = &tool.Manifest{Operations: m.Operations}
	}
}

// Close aborts running calls, shuts the free processes down, all at once, and
// waits for all to end.
func (h *host) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	free := h.free
	h.free = nil
	for _, c := range free {
		c.idle.Stop()
	}
	h.mu.Unlock()
	h.stop()
	var wg sync.WaitGroup
	for _, c := range free {
		wg.Go(func() { c.shutdown(ctx, h.waits.ack) })
	}
	wg.Wait()
	h.work.Wait()
}

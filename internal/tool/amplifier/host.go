// Package module runs modules that speak the Amplifier module protocol v1:
// health, describe and invoke, over the stdio of living processes (framing flat
// or jsonrpc) or over HTTP (http, https, and unix for a socket's path).
//
// A module is asked for its health when its first process starts or its
// address is first used, and every 30 seconds for as long as it has been used
// within the last 10 minutes. One that is not well is described together with
// what is wrong; that it is well again is noticed by itself, and by a call, which
// asks again before it is made.
//
// Concurrency properties: a host keeps at most the descriptor's concurrency in
// processes, each of which answers one call at a time; over HTTP it bounds the
// calls in flight. A call waits for its turn as long as its context. One
// goroutine reads each process for as long as it lives. Health is asked by one
// goroutine at a time, and never of a process that is answering a call.
//
// It refuses to let an answer reach any call but its own: a process whose call
// was given up is killed. It does not retry a call, as nobody knows what the
// first attempt did. It does not follow redirects. It does not compare results
// with the outputs that a module describes, as nothing would follow from it.
package amplifier

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

const (
	// healthTime is how long a module has for its answer to health.
	healthTime = 2 * time.Second
	// startTime is how long a new process has for its answers to health and
	// describe. One that takes longer than healthTime is reported as unhealthy
	// meanwhile, and not killed: a slow start is no reason to start again.
	startTime   = 10 * time.Second
	healthEvery = 30 * time.Second

	shownStderr = 4 << 10 // how much of stderr goes into a failure's text, bytes
)

// link is a way to ask a module: a living process, or its address. One request
// at a time; the pool sees to that.
type link interface {
	worker.Worker
	// ask sends one request and waits for its reply. The error is a *[tool.Fault]
	// of our own making; what the module has to say is in the reply.
	exchange(ctx context.Context, r request) (object, error)
	Stderr(limit int) string
}

// host is a [tool.Host] and a [tool.Invoker].
type host struct {
	desc *tool.Descriptor
	log  *zap.Logger
	pool *worker.Pool[link]
	// Times; tests shorten them.
	health, start, every time.Duration

	// checks are those of the module's health, which belong to no call, and end
	// with ctx.
	checks sync.WaitGroup
	ctx    context.Context
	stop   context.CancelFunc

	mu       sync.Mutex
	closed   bool
	manifest *tool.Manifest // nil until a tool has been described
	problem  error          // why it is unhealthy
	checked  time.Time      // when that was found out
	used     time.Time
	check    *check      // the one that is running, if any
	timer    *time.Timer // of the next check, while the module is in use
}

// Dialect makes the host of a module, which is a [tool.Invoker], too. It is a
// [tool.Dialect].
func Dialect(d *tool.Descriptor, s *proc.Supervisor, log *zap.Logger) tool.Host {
	ctx, stop := context.WithCancel(context.Background())
	h := &host{desc: d, log: log, ctx: ctx, stop: stop, health: healthTime, start: startTime, every: healthEvery}
	h.pool = worker.NewPool(d.Name, d.Concurrency, log, func() (link, error) { return h.dial(s) }, h.ready)
	switch d.Kind {
	case "tool":
	case "agent":
		h.manifest = &tool.Manifest{Operations: []tool.Operation{plan(d)}}
	default:
		h.manifest = &tool.Manifest{}
	}
	return h
}

// plan is the one operation of an agent (tools.md §4).
func plan(d *tool.Descriptor) tool.Operation {
	o := tool.Operation{Name: "run", Description: d.Description, Params: jsontext.Value(planSchema)}
	for _, known := range d.Operations {
		if known.Name == o.Name && known.Description != "" {
			o.Description = known.Description
		}
	}
	return o
}

// dial starts a process, or takes down the module's address.
func (h *host) dial(s *proc.Supervisor) (link, error) {
	if h.desc.Transport.Type == "http" {
		return newRemote(h.desc)
	}
	cmd, err := h.desc.Command()
	if err != nil {
		return nil, err
	}
	p, err := tool.Start(context.Background(), s, cmd)
	if err != nil {
		return nil, err
	}
	return newProcess(p, h.desc.Framing == tool.FramingJSONRPC, h.log), nil
}

// ready asks a new link for its health, and a tool for its operations. A module
// that says it is not well is kept, to be asked again.
func (h *host) ready(ctx context.Context, l link) error {
	ctx, cancel := tool.WithTimeout(ctx, h.start)
	defer cancel()
	err := h.greet(ctx, l)
	if err == nil {
		return nil
	}
	h.judge(err)
	if h.desc.Transport.Type == "stdio" && !aborted(err) {
		h.pool.Crashed()
		h.log.Warn("module did not start", zap.Error(err), zap.String("stderr", l.Stderr(shownStderr)))
	}
	return err
}

func (h *host) greet(ctx context.Context, l link) error {
	o, err := l.exchange(ctx, request{Method: methodHealth})
	if err != nil {
		return prefixed(methodHealth, err)
	}
	h.judge(prefixed(methodHealth, o.healthy()))
	if h.desc.Kind != "tool" {
		return nil
	}
	return prefixed(methodDescribe, h.describe(ctx, l))
}

// describe learns the operations. Where the module does not describe itself,
// its descriptor does, if it can.
func (h *host) describe(ctx context.Context, l link) error {
	o, err := l.exchange(ctx, request{Method: methodDescribe})
	if err != nil && (ctx.Err() != nil || !l.Alive() || code(err) == tool.Unreachable) {
		return err
	}
	if err == nil {
		o, err = o.payload("capabilities", "name", "version", "kind", "inputs", "outputs")
	}
	ops, warnings := operations(h.desc, o)
	if err != nil {
		if len(ops) == 0 {
			return err
		}
		h.log.Warn("module does not describe itself; its descriptor does", zap.Error(err))
	}
	h.learn(ops, warnings)
	return nil
}

// prefixed says what a fault came of, and leaves the fault as it was.
func prefixed(what string, err error) error {
	var f *tool.Fault
	if !errors.As(err, &f) || aborted(err) {
		return err
	}
	return &tool.Fault{Code: f.Code, Message: what + ": " + f.Message, Details: f.Details}
}

// code is a fault's, "" for no fault.
func code(err error) string {
	var f *tool.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

func aborted(err error) bool { return code(err) == tool.Aborted }

// learn keeps the operations; the old pointer where they are the same.
func (h *host) learn(ops []tool.Operation, warnings []string) {
	for _, w := range warnings {
		h.log.Warn("module's description: " + w)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.manifest == nil || !reflect.DeepEqual(h.manifest.Operations, ops) {
		h.manifest = &tool.Manifest{Operations: ops}
	}
}

// Describe returns the operations that the module has as a tool: those it
// described itself with, `run` of an agent, none of the other kinds (tools.md
// §4). It asks at first, and again where the module was unhealthy half a minute
// ago; it waits 2 seconds for its health. An error says why it is unhealthy.
func (h *host) Describe(ctx context.Context) (*tool.Manifest, error) {
	late := time.NewTimer(h.health)
	defer late.Stop()
	c, err := h.inquire()
	if err != nil {
		return nil, err
	}
	if c != nil {
		if err := h.await(ctx, c, late.C); err != nil {
			return h.known(), err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.manifest, h.problem
}

func (h *host) known() *tool.Manifest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.manifest
}

// Call invokes an operation (amplifier-protocols §2). A result that is a string
// is the text; anything else is the value, and its compact JSON the text. The
// timeout does not count the wait for a free process, nor the start of one.
func (h *host) Call(ctx context.Context, op string, inv model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
	o, stderr, err := h.invoke(ctx, op, jsontext.Value(inv.Arguments), inv.SessionID)
	if err == nil {
		var value jsontext.Value
		if value, err = o.outcome(); err == nil {
			return o.shown(resultOf(value))
		}
	}
	r := tool.Failure(err)
	fields := []zap.Field{
		zap.String("operation", op), zap.String("tool_call_id", inv.ID),
		zap.String("code", r.Error.Code), zap.String("error", r.Error.Message),
	}
	if stderr != "" {
		fields = append(fields, zap.String("stderr", stderr))
		r.Text += "\nstderr:\n" + stderr
	}
	h.log.Warn("tool failed", fields...)
	return r
}

// Invoke runs any operation of any kind of module: generate, transform,
// before_turn, on_event (tools.md §4). args is a JSON object, or empty for one
// without members; sessionID may be empty. The result is any JSON value. Errors
// are Faults: the module's own, or with the codes of tools.md §4, crashed or
// aborted. It blocks as Call does.
func (h *host) Invoke(ctx context.Context, op string, args jsontext.Value, sessionID string) (jsontext.Value, error) {
	o, _, err := h.invoke(ctx, op, args, sessionID)
	if err != nil {
		return nil, err
	}
	return o.outcome()
}

// invoke returns the module's reply, and the end of its stderr with an error of our own
// making.
func (h *host) invoke(ctx context.Context, op string, args jsontext.Value, sessionID string) (_ object, stderr string,
	_ error,
) {
	if len(args) == 0 {
		args = jsontext.Value("{}")
	}
	if v := jsontext.Value(args); !v.IsValid() || v.Kind() != '{' {
		return nil, "", tool.Faultf(tool.BadRequest, "the arguments are not a JSON object: %s", quote(v))
	}
	h.mu.Lock()
	h.inUse()
	h.mu.Unlock()
	since := time.Now()
	l, err := h.pool.Acquire(ctx)
	if err == nil {
		err = h.recheck(ctx, l, since)
	}
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := tool.WithTimeout(ctx, h.desc.Timeout)
	defer cancel()
	o, err := l.Worker.exchange(ctx, request{
		Method: methodInvoke, Op: op, Args: jsontext.Value(args), SessionID: sessionID,
	})
	h.count(err)
	if ctx.Err() != nil || !l.Worker.Alive() {
		h.pool.Discard(l)
	} else {
		h.pool.Release(l)
	}
	if err != nil {
		return nil, l.Worker.Stderr(shownStderr), err
	}
	return o, "", nil
}

// count keeps score of crashes in a row.
func (h *host) count(err error) {
	switch code(err) {
	case "":
		h.pool.Answered()
	case tool.Crashed, tool.OOM:
		h.pool.Crashed()
	}
}

// Share has the host's processes count among those of others. It may be called
// before the first use.
func (h *host) Share(c *worker.ProcessLimit) { h.pool.ProcessLimit = c }

// Close ends the processes, and waits for all to end: their input is closed, and
// they have 2 seconds, or as long as ctx. A question after the module's health is
// aborted.
func (h *host) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	h.stop()
	h.checks.Wait()
	h.pool.Close(ctx)
}

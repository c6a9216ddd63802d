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
	"sync"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

const (
	protocolVersion = "0.0.1"
	// requirementNotMet is the protocol's code for a missing command.
	requirementNotMet = "-32002"
)

// waits are how long answers may take (tools.md §3).
type waits struct {
	init time.Duration // the manifest
	ack  time.Duration // that to shutdown
}

type host struct {
	desc    *tool.Descriptor
	log     *zap.Logger
	pool    *worker.Pool[*conn]
	crashes *worker.Backoff // the pool's
	waits   waits
	// These go into every request.
	env     jsontext.Value
	timeout string

	mu       sync.Mutex
	manifest *tool.Manifest
	requires []string
	heard    bool // the manifest is a process's own, not the descriptor's
	failed   bool // no process could be started the last time
}

// Dialect makes the host of a gevals extension. It is a [tool.Dialect].
func Dialect(d *tool.Descriptor, s *proc.Supervisor, log *zap.Logger) tool.Host {
	h := &host{
		desc: d, log: log, waits: waits{init: 10 * time.Second, ack: 5 * time.Second},
		env: encodeEnv(d.Env), timeout: d.Timeout.String(),
	}
	h.pool = worker.NewPool(d.Name, d.Concurrency, log, func() (*conn, error) { return h.start(s) }, h.initialize)
	h.crashes = &h.pool.Crashes
	if d.Stateless {
		h.pool.View = s.View
	}
	if len(d.Manifest) > 0 {
		if m, err := decodeManifest(d.Manifest); err == nil { // else a process is asked
			h.manifest, h.requires = &tool.Manifest{Operations: m.Operations}, m.Requires
		}
	}
	return h
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

// Describe returns the manifest of the latest process, or the descriptor's. If
// there is neither, or only the descriptor's and no process could be started since, it starts one.
// A requirement that is not met is an error beside the manifest.
func (h *host) Describe(ctx context.Context) (*tool.Manifest, error) {
	if m := h.known(); m != nil {
		return m, h.unmet()
	}
	l, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	h.pool.Release(l)
	return h.known(), h.unmet()
}

// Try starts the first process of an extension that is known only by the manifest of its
// descriptor, so that Describe can say why it does not start.
func (h *host) Try(ctx context.Context) {
	h.mu.Lock()
	heard := h.heard
	h.mu.Unlock()
	if heard {
		return
	}
	l, err := h.pool.Spare(ctx)
	if h.noteFailedStart(ctx, err); l != nil {
		h.pool.Release(l)
	}
}

// noteFailedStart records that no process could be started, unless ctx was the cause.
func (h *host) noteFailedStart(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		h.mu.Lock()
		h.failed = true
		h.mu.Unlock()
	}
}

func (h *host) known() *tool.Manifest {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed && !h.heard {
		return nil
	}
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

// Call executes an operation (gevals: Execute). Its timeout does not count the
// wait for a free process, nor the start of a new one.
func (h *host) Call(ctx context.Context, op string, inv model.Invocation,
	progress func(model.ToolUpdate),
) model.ToolResult {
	if err := h.unmet(); err != nil {
		return tool.Failure(err)
	}
	l, err := h.pool.Acquire(ctx)
	if h.noteFailedStart(ctx, err); err != nil {
		return tool.Failure(err)
	}
	healthy := false
	defer func() { // also where progress panics
		if healthy {
			h.pool.Release(l)
		} else {
			h.pool.Discard(l)
		}
	}()

	ctx, cancel := tool.WithTimeout(ctx, h.desc.Timeout)
	defer cancel()
	c := l.Worker
	reply, err := c.request(ctx, "execute", h.params(op, inv), progress)
	healthy = ctx.Err() == nil && c.Alive()
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
	// KeepIn is the file that has what output notifications have; the built-in tools'
	// alone.
	KeepIn string `json:"keep_in,omitzero"`
	// Path is where the call's path led when it was judged; the built-in tools' alone.
	Path string `json:"path,omitzero"`
}

type agent struct {
	Prompt string `json:"prompt"`
	Output string `json:"output"`
}

func (h *host) params(op string, inv model.Invocation) execute {
	e := execute{op, jsontext.Value(inv.Arguments), execContext{
		Workdir: h.desc.Workdir, Phase: inv.Phase, Env: h.env, Timeout: h.timeout, KeepIn: inv.KeepIn, Path: inv.Path,
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
	var f *tool.Fault
	switch {
	case !errors.As(err, &f) || isNumber(f.Code):
		h.pool.Answered()
	case f.Code == tool.Crashed:
		h.pool.Crashed()
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
	stderr := c.Stderr(shownStderr)
	if stderr != "" && !isNumber(r.Error.Code) {
		fields = append(fields, zap.String("stderr", stderr))
		r.Text += "\nstderr:\n" + stderr
	}
	h.log.Warn("tool failed", fields...)
	return r
}

// start starts a process.
func (h *host) start(s *proc.Supervisor) (*conn, error) {
	cmd, err := h.desc.Command()
	if err != nil {
		return nil, err
	}
	p, err := tool.Start(context.Background(), s, cmd)
	if err != nil {
		return nil, err
	}
	return newConn(p, h.waits.ack, h.log), nil
}

// initialize makes a new process ready for requests (gevals: Initialize). That
// it fails counts as a crash, unless the caller gave up.
func (h *host) initialize(ctx context.Context, c *conn) error {
	ctx, cancel := tool.WithTimeout(ctx, h.waits.init)
	defer cancel()
	reply, err := c.request(ctx, "initialize", struct {
		Version string         `json:"protocolVersion"`
		Config  jsontext.Value `json:"config,omitzero"`
	}{protocolVersion, jsontext.Value(h.desc.Config)}, nil)
	var m *manifest
	if err == nil {
		m, err = decodeManifest(reply)
	}
	var f *tool.Fault
	switch {
	case err == nil:
		h.learn(m)
		return nil
	case errors.As(err, &f) && f.Code != tool.Aborted:
		h.pool.Crashed()
		err = &tool.Fault{Code: f.Code, Message: "initialize: " + f.Message, Details: f.Details}
		h.log.Warn("extension did not start", zap.Error(err), zap.String("stderr", c.Stderr(shownStderr)))
	}
	return err
}

// learn keeps the manifest of a new process; the old pointer where it offers
// the same.
func (h *host) learn(m *manifest) {
	for _, w := range m.Warnings {
		h.log.Warn("extension's manifest: " + w)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requires, h.heard = m.Requires, true
	if h.manifest == nil || !same(h.manifest.Operations, m.Operations) {
		h.manifest = &tool.Manifest{Operations: m.Operations}
	}
}

// Share has the host's processes count among those of others. It may be called
// before the first use.
func (h *host) Share(c *worker.ProcessLimit) { h.pool.ProcessLimit = c }

// Close shuts the processes down, all at once, and waits for all to end.
func (h *host) Close(ctx context.Context) { h.pool.Close(ctx) }

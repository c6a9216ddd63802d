// Package mcp runs the tools of MCP servers, of the Model Context Protocol
// 2025-11-25 and 2026-07-28, on its Go SDK. A server over stdio is a living
// process of the daemon's; one over streamable HTTP runs elsewhere, and people
// may log in at it (package oauth).
//
// Concurrency properties: a host keeps one connection for its folder, which all
// calls share. A server is read by one goroutine, which waits for no call: what a
// call does not take in time is left out. Progress reaches the caller in order,
// before the result, in the caller's goroutine.
//
// It refuses to let a server choose what the daemon does: it offers neither
// sampling nor roots, and has the SDK resolve no schema that a server wrote. It
// does not retry a call, as nobody knows what the first attempt did, unless the
// server says that it did not take it. What is meant for one server goes to no
// other, a redirect notwithstanding.
package mcp

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/oauth"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

// Options are what all servers have in common.
type Options struct {
	// Version is the daemon's own, which servers are told.
	Version string
	// OutputDir has the files that results come with. Empty: the system's temporary
	// directory.
	OutputDir string
	// CacheDir keeps what servers have said that they can do. Empty: nothing does.
	CacheDir string
	// Logins are what people were granted at servers; nil: nobody can log in.
	Logins *oauth.Store
}

// waits are how long things may take (mcp.md §2).
type waits struct {
	first  time.Duration // the answer to a first handshake
	second time.Duration // to the other one, and a list of tools
	ping   time.Duration
	idle   time.Duration // a connection without a call is kept
	times  time.Duration // how many times its timeout a call may take that makes progress
}

type host struct {
	desc          *tool.Descriptor
	o             Options
	log           *zap.Logger
	dialer        dialer
	manifestCache *manifestCache
	files         *files
	processLimit  *worker.ProcessLimit
	waits         waits
	ctx           context.Context // ends with the host
	stop          context.CancelFunc
	work          sync.WaitGroup // starts, links, pings

	changed func()

	mu      sync.Mutex
	link    *link
	start   *start         // under way
	crashes worker.Backoff // starts and connections that failed, in a row
	failure string         // of the last of them, "" once one went well
	unknown bool           // it was that nobody has logged in
	idle    *time.Timer
}

// Dialect makes the hosts of MCP servers.
func Dialect(o Options) tool.Dialect {
	lib := &library{dir: o.CacheDir, room: budget.New(maxAllDefinitions), manifests: map[string]*manifestCache{}}
	kept := newFiles(o.OutputDir)
	return func(d *tool.Descriptor, s *proc.Supervisor, log *zap.Logger) tool.Host {
		ctx, stop := context.WithCancel(context.Background())
		return &host{
			desc: d, o: o, log: log, dialer: newDialer(d, s, o, log), manifestCache: lib.open(d), files: kept, ctx: ctx,
			stop: stop, changed: func() {},
			waits: waits{
				first: 10 * time.Second, second: time.Minute, ping: 5 * time.Second, idle: worker.IdleTime,
				times: 10,
			},
			crashes: worker.Backoff{Free: 2, Base: time.Second, Max: time.Minute},
		}
	}
}

// Share has the host's process count among those of others. It may be called
// before the first use.
func (h *host) Share(c *worker.ProcessLimit) { h.processLimit = c }

// Watch is [tool.Server].
func (h *host) Watch(changed func()) { h.changed = changed }

// Known is [tool.Server].
func (h *host) Known() bool {
	m, _ := h.manifestCache.known()
	return m != nil
}

// Status is [tool.Server].
func (h *host) Status() (state, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	missing := h.dialer.waiting()
	switch {
	case h.start != nil:
		return model.ServerStarting, ""
	case missing != "":
		return model.ServerNeedsLogin, missing
	case h.link != nil && h.link.alive():
		return model.ServerReady, ""
	case h.failure != "":
		return model.ServerFailed, h.failure
	}
	return model.ServerConfigured, ""
}

// Describe returns what the server has said last that it can do, starting it
// where it has said nothing yet.
func (h *host) Describe(ctx context.Context) (*tool.Manifest, error) {
	if m, _ := h.manifestCache.known(); m != nil {
		return m, nil
	}
	l, err := h.use(ctx)
	if err != nil {
		return nil, err
	}
	h.leave(l)
	m, _ := h.manifestCache.known()
	return m, nil
}

// Call runs a tool of the server.
func (h *host) Call(ctx context.Context, op string, inv model.Invocation,
	progress func(model.ToolUpdate),
) model.ToolResult {
	l, err := h.useSoon(ctx)
	if err != nil {
		return tool.Failure(err)
	}
	r, gone := l.call(ctx, op, inv, progress)
	if !gone {
		return r
	}
	if l, err = h.useSoon(ctx); err != nil { // the server has ended the session, and not taken the call
		return tool.Failure(err)
	}
	r, _ = l.call(ctx, op, inv, progress)
	return r
}

// Close ends the connection, and waits until nothing is left of it.
func (h *host) Close(ctx context.Context) {
	h.stop()
	h.mu.Lock()
	l := h.link
	if h.idle != nil {
		h.idle.Stop()
	}
	h.mu.Unlock()
	if l != nil {
		l.shutdown(ctx)
	}
	h.work.Wait()
	h.manifestCache.close()
}

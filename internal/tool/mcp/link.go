package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

// The protocol versions of the two handshakes: initialize, and server/discover,
// which falls back to the other where the server refuses it.
const (
	initialize = "2025-11-25"
	discover   = "2026-07-28"
)

// link is a living connection to a server, which many calls share.
type link struct {
	h       *host
	log     *zap.Logger
	wire    wire
	session *sdk.ClientSession
	slot    *worker.Slot // in the host's processLimit
	users   int          // guarded by the host's mutex, as are
	begun   bool         // and this: its start went well
	spent   bool         // and this: it was told to end

	tools, texts atomic.Bool // a list_changed of tools, of prompts, is on its way through the SDK

	mu      sync.Mutex
	calls   map[string]*call // by progress token
	count   int
	proving bool // a ping is under way
	stale   bool // the server's tools have changed
	listing bool
	tasks   map[string]bool // names of tools that can only be called as tasks
}

// start is the making of a link, for all who wait for it.
type start struct {
	done chan struct{}
	err  error
}

// use returns the living link, or makes one, and keeps it until leave. The error
// is a [tool.Fault].
func (h *host) use(ctx context.Context) (*link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if l := h.link; l != nil && !l.spent && l.alive() {
			l.users++
			h.rouse(l)
			return l, nil
		}
		s, err := h.starting()
		if err != nil {
			return nil, err
		}
		h.mu.Unlock()
		select {
		case <-s.done:
			err = s.err
		case <-ctx.Done():
			err = tool.Interrupted(ctx)
		}
		h.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// useSoon is use for a call, which waits for a start no longer than its timeout. The start
// goes on.
func (h *host) useSoon(ctx context.Context) (*link, error) {
	soon, cancel := tool.WithTimeout(ctx, h.desc.Timeout)
	defer cancel()
	l, err := h.use(soon)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		return nil, tool.Faultf(tool.Timeout, "%s has been started, and has said nothing within %v (its timeout)",
			h.desc.Name, h.desc.Timeout)
	}
	return l, err
}

// starting is the start that is under way, or a new one. The mutex is held.
func (h *host) starting() (*start, error) {
	if h.start != nil {
		return h.start, nil
	}
	if h.ctx.Err() != nil {
		return nil, tool.Faultf(tool.Aborted, "the daemon is stopping")
	}
	if h.unknown && h.dialer.waiting() == "" {
		h.unknown = false
		h.crashes.Succeed()
	}
	if wait := h.crashes.Wait(time.Now()); wait > 0 {
		return nil, tool.Faultf(tool.Unreachable, "%s failed %d times in a row; it can be started again in %v: %s",
			h.desc.Name, h.crashes.Failures(), wait.Round(100*time.Millisecond), h.failure)
	}
	s := &start{done: make(chan struct{})}
	h.start = s
	h.work.Go(func() { h.beginStart(s) })
	return s, nil
}

// beginStart makes a link, which outlives its first caller.
func (h *host) beginStart(s *start) {
	l, err := h.connect(h.ctx)
	h.begun(s, l, err)
}

// begun tells those who wait for a start how it went. A host that was closed in
// this moment has not seen the link, which then ends here.
func (h *host) begun(s *start, l *link, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(s.done)
	h.start, s.err = nil, err
	switch {
	case err == nil:
		h.link, h.failure, l.begun = l, "", true
		h.work.Go(func() { h.watch(l) })
		if h.ctx.Err() != nil || l.spent {
			l.wire.close(h.ctx)
			return
		}
		h.rest(l)
	case h.ctx.Err() == nil:
		h.failed(err)
		h.log.Warn("server did not start", zap.Error(err))
	}
}

// failed counts a failure in a row. The mutex is held.
func (h *host) failed(err error) {
	h.crashes.Fail(time.Now())
	h.failure = err.Error()
	var f *tool.Fault
	h.unknown = errors.As(err, &f) && f.Code == tool.NeedsLogin
}

// connect makes a link, with one handshake or the other, and has the server say
// what it can do.
func (h *host) connect(ctx context.Context) (*link, error) {
	slot, err := h.processLimit.Enter(ctx, h.desc.Name)
	if err != nil {
		return nil, err
	}
	versions := []string{initialize, discover}
	if _, newer := h.manifestCache.known(); newer {
		versions = []string{discover, initialize}
	}
	l, first, again := h.attempt(ctx, versions[0], min(h.waits.first, h.desc.Timeout))
	if first != nil && again && ctx.Err() == nil {
		h.log.Info("server did not take the first handshake; it is started once more for the other", zap.Error(first))
		l, err, _ = h.attempt(ctx, versions[1], min(h.waits.second, h.desc.Timeout))
	} else {
		err = first
	}
	if err != nil {
		h.processLimit.Leave(slot)
		return nil, err
	}
	l.slot = slot
	return l, nil
}

// attempt tries one handshake. again says that the other one may go well.
func (h *host) attempt(ctx context.Context, version string, wait time.Duration) (_ *link, err error, again bool) {
	ctx, cancel := tool.WithTimeout(ctx, wait)
	defer cancel()
	l := &link{h: h, log: h.log, calls: map[string]*call{}}
	if l.wire, err = h.dialer.dial(ctx, l); err != nil {
		return nil, err, false
	}
	unbind := context.AfterFunc(ctx, func() { l.wire.stop(tool.Interrupted(ctx)) })
	defer unbind()
	err = l.guarded(func() (err error) {
		l.session, err = l.client().Connect(ctx, l.wire, &sdk.ClientSessionOptions{ProtocolVersion: version})
		return err
	})
	if err != nil {
		l.wire.stop(nil)
		<-l.wire.ended()
		f := l.refused(ctx, err)
		return nil, f, f.Code != tool.NeedsLogin && f.Code != tool.Unreachable
	}
	l.wire.established()
	err = l.guarded(func() error { return l.list(ctx, unbind) })
	if err == nil && h.forgotten(l) {
		err = errGone
	}
	if err != nil {
		l.wire.stop(nil)
		<-l.wire.ended()
		_ = l.session.Close()
		return nil, l.refused(ctx, err), false
	}
	return l, nil, false
}

// client is the SDK's, for this connection alone. It offers nothing but to ask the
// user.
func (l *link) client() *sdk.Client {
	c := sdk.NewClient(&sdk.Implementation{Name: "noused", Version: l.h.o.Version}, &sdk.ClientOptions{
		Capabilities:             &sdk.ClientCapabilities{},
		ElicitationHandler:       noForms,
		MultiRoundTrip:           &sdk.MultiRoundTripOptions{Disabled: true}, // callTool asks
		ToolListChangedHandler:   func(context.Context, *sdk.ToolListChangedRequest) { l.changed(&l.tools) },
		PromptListChangedHandler: func(context.Context, *sdk.PromptListChangedRequest) { l.changed(&l.texts) },
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			l.progressed(r.Params)
		},
		//lint:ignore SA1019 servers of 2025 log this way
		LoggingMessageHandler: func(_ context.Context, r *sdk.LoggingMessageRequest) { l.logged(r.Params) },
	})
	c.AddReceivingMiddleware(l.asksUser)
	return c
}

// refused is the fault of a handshake, or of a list of tools, that came to nothing.
// Nothing is left of the wire.
func (l *link) refused(ctx context.Context, err error) *tool.Fault {
	f := l.fault(err)
	if missing := l.h.dialer.waiting(); missing != "" { // the SDK may have tried the other handshake since
		f = tool.Faultf(tool.NeedsLogin, "%s", missing)
	}
	if cause := tool.Interrupted(ctx); ctx.Err() != nil {
		f.Code, f.Message = cause.Code, cause.Message
	}
	return &tool.Fault{
		Code: f.Code, Message: fmt.Sprintf("cannot start %s: %s", l.h.desc.Name, f.Message),
		Details: f.Details,
	}
}

// fault makes a fault of an error of the SDK's. It waits for the wire where that
// has broken.
func (l *link) fault(err error) *tool.Fault {
	var ours *tool.Fault
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.Is(err, errGone):
		return tool.Faultf(tool.Unreachable, "%v", errGone)
	}
	var said *jsonrpc.Error
	if errors.As(err, &said) {
		f := &tool.Fault{Code: fmt.Sprint(said.Code), Message: said.Message}
		if len(said.Data) > 0 && said.Data[0] == '{' {
			f.Details = []byte(said.Data)
		}
		return f
	}
	if !cutOff(err) {
		return tool.Faultf(tool.ProtocolError, "the server's answer cannot be read: %v", err)
	}
	<-l.wire.ended()
	f := *l.wire.epitaph()
	return &f
}

// cutOff reports that an error of the SDK's is that its wire has broken, and says
// nothing of an answer.
func cutOff(err error) bool {
	return errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, os.ErrClosed)
}

func (l *link) alive() bool {
	select {
	case <-l.wire.ended():
		return false
	default:
		return true
	}
}

// watch waits for the end of a link.
func (h *host) watch(l *link) {
	<-l.wire.ended()
	_ = l.session.Close()
	h.processLimit.Leave(l.slot)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == l {
		h.link = nil
	}
	if !l.spent && h.ctx.Err() == nil {
		h.failed(l.wire.epitaph())
	}
}

// leave ends a use.
func (h *host) leave(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	if l.spent {
		l.wire.close(h.ctx)
		return
	}
	h.rest(l)
}

// forget has the next call make another link; the calls of this one go on.
func (h *host) forget(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == l {
		h.link = nil
	}
	if l.spent = true; l.users == 0 && l.begun { // else who starts it closes it, and hears first what was wrong
		l.wire.close(h.ctx)
	}
}

// forgotten reports a link that nobody can use any more.
func (h *host) forgotten(l *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.spent
}

// rest says that nobody uses a link. The mutex is held.
func (h *host) rest(l *link) {
	if l.spent || h.link != l {
		return
	}
	if h.idle != nil {
		h.idle.Stop()
	}
	h.idle = time.AfterFunc(h.waits.idle, func() { h.dismiss(l) })
	h.processLimit.Rest(l.slot, time.Now(), func() bool { return h.dismiss(l) })
}

// rouse says that somebody uses it. The mutex is held.
func (h *host) rouse(l *link) {
	if h.idle != nil {
		h.idle.Stop()
	}
	h.processLimit.Wake(l.slot)
}

// dismiss ends a link that nobody uses, and does not wait for that. False:
// somebody does.
func (h *host) dismiss(l *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.users > 0 || h.link != l {
		return false
	}
	h.link, l.spent = nil, true
	l.wire.close(h.ctx)
	return true
}

// shutdown ends a link, by force when ctx is done, and waits for that.
func (l *link) shutdown(ctx context.Context) {
	l.wire.close(ctx)
	<-l.wire.ended()
}

// answered ends the row of failures.
func (h *host) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.crashes.Succeed()
}

// prove ends a link that does not answer a ping, and does not wait for that.
func (l *link) prove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proving {
		return
	}
	l.proving = true
	l.h.work.Go(func() {
		ctx, cancel := tool.WithTimeout(l.h.ctx, l.h.waits.ping)
		defer cancel()
		_ = l.session.Ping(ctx, nil) // an error is an answer, too
		if ctx.Err() != nil && l.h.ctx.Err() == nil {
			l.wire.stop(tool.Faultf(tool.Crashed, "the server did not answer a ping within %v and was ended", l.h.waits.ping))
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.proving = false
	})
}

// call makes a call and ends its use of the link. gone says that the server did not
// take it, as it has ended the session.
func (l *link) call(ctx context.Context, op string, inv model.Invocation, progress func(model.ToolUpdate)) (
	r model.ToolResult, gone bool,
) {
	defer l.h.leave(l)
	c := l.beginCall(inv, progress)
	defer l.end(c)
	r = c.run(ctx, op)
	return r, c.gone
}

// beginCall keeps a call until end, so that it hears what is said of it.
func (l *link) beginCall(inv model.Invocation, progress func(model.ToolUpdate)) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	c := &call{
		l: l, inv: inv, progress: progress, token: fmt.Sprint("call-", l.count),
		said: make(chan model.ToolUpdate, maxSaid), number: l.count, asking: make(chan int), over: make(chan struct{}),
	}
	l.calls[c.token] = c
	return c
}

func (l *link) end(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, c.token)
}

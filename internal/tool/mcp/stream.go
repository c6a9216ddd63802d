package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.uber.org/zap"

	"noused/internal/proc"
	"noused/internal/sse"
	"noused/internal/tool"
)

const (
	// maxTries is how often a stream is taken up again without anything new.
	maxTries = 5
	// drainTime and maxDrain bound what is read after the last message, so that the
	// connection can be used again.
	drainTime = 100 * time.Millisecond
	maxDrain  = 4 << 10
	// lastWait is the longest wait between attempts to take up a stream, where the server
	// does not say how long it is.
	lastWait = time.Minute
)

// firstWait is the first of these waits.
var firstWait = time.Second

// follow reads the stream that answers a call, and takes it up again where it ends
// too early and the server has said how.
func (r *remote) follow(ctx context.Context, resp *http.Response, req *jsonrpc.Request, cancel func()) error {
	s := &stream{r: r, req: req, cancel: cancel}
	for tries := 0; ; {
		before := s.last
		done, err := s.read(ctx, resp)
		if done || err != nil {
			return err
		}
		if tries++; s.last != before {
			tries = 0
		}
		if s.last == "" || tries > maxTries {
			return brokenOff{tool.Faultf(tool.Crashed, "the server ended its answer before the result")}
		}
		if resp, err = s.again(ctx); err != nil {
			return err
		}
	}
}

// stream is a stream of events, over as many connections as it takes.
type stream struct {
	r      *remote
	req    *jsonrpc.Request // that it answers, or nil
	cancel func()
	open   bool          // the server has answered GET with a stream; listen's
	last   string        // id of the last event
	wait   time.Duration // that the server asked for before a connection is made again
}

// read reads one connection to its end; done: there is nothing to wait for any
// more. A connection that breaks off has ended.
func (s *stream) read(ctx context.Context, resp *http.Response) (done bool, err error) {
	held := s.r.s.Hold(resp.Body, s.r.desc.MaxOutput, s.cancel)
	defer func() {
		held.Close()
		_ = resp.Body.Close()
	}()
	events := sse.NewReader(held, sse.Options{Most: s.r.desc.MaxOutput})
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, sse.ErrLong):
			return false, tool.Faultf(tool.ProtocolError, "the server's answer: %v", err)
		case errors.Is(err, proc.ErrStalled) || ctx.Err() != nil:
			return false, s.r.broken(ctx, err)
		case err != nil:
			return false, nil
		}
		if e.ID != "" {
			s.last = e.ID
		}
		if e.Retry > 0 {
			s.wait = e.Retry
		}
		if len(e.Data) > 0 && (e.Type == "" || e.Type == "message") {
			if done, err := s.r.deliver(ctx, e.Data, s.req, held); done || err != nil {
				drain(resp.Body)
				return done, err
			}
		}
		held.Drop()
	}
}

// drain reads the end of an answer, if it comes soon.
func drain(body io.ReadCloser) {
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, maxDrain)
}

// again takes the stream up where it ended.
func (s *stream) again(ctx context.Context) (*http.Response, error) {
	wait := s.wait
	if wait == 0 {
		wait = firstWait
	}
	if !pause(ctx, wait) {
		return nil, ctx.Err()
	}
	resp, err := s.r.send(ctx, http.MethodGet, nil, nil, s)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || kindOf(resp) != "text/event-stream" {
		defer func() { _ = resp.Body.Close() }()
		return nil, brokenOff{tool.Faultf(tool.Crashed,
			"the server ended its answer before the result, and the rest cannot be read: %v", s.r.refusal(resp, s.req))}
	}
	return resp, nil
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen hears what the server says outside of calls, until it will not or the
// connection ends. It calls heard once the server has answered.
func (r *remote) listen(heard func()) {
	defer heard()
	s := &stream{r: r}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		before := s.last
		more, err := s.hear(heard)
		switch {
		case err != nil && r.ctx.Err() == nil:
			r.log.Warn("the server's stream cannot be read; it is taken up again", zap.Error(err))
		case s.last != before:
			wait = firstWait
		}
		if !more || !pause(r.ctx, max(wait, s.wait)) {
			return
		}
	}
}

// hear hears one connection to its end. more: another one may say something. The error is
// of what was said there.
func (s *stream) hear(heard func()) (more bool, err error) {
	ctx, cancel := context.WithCancel(s.r.ctx)
	defer cancel()
	s.cancel = cancel
	resp, err := s.r.send(ctx, http.MethodGet, nil, nil, s)
	heard()
	if err != nil {
		needs := (*tool.Fault)(nil)
		return !errors.As(err, &needs) || needs.Code != tool.NeedsLogin, nil
	}
	if resp.StatusCode == http.StatusOK && kindOf(resp) == "text/event-stream" {
		s.open = true
		_, err = s.read(ctx, resp)
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	if passing(resp.StatusCode) {
		return true, nil
	}
	if s.open { // else it has none, whatever it says of that
		_ = s.r.refusal(resp, nil)
	}
	return false, nil
}

// passing reports a status that is not for good. 409 is one, of servers that have not
// noticed yet that the stream before it broke off.
func passing(status int) bool {
	return status == http.StatusConflict || status == http.StatusTooManyRequests ||
		status >= 500 && status != http.StatusNotImplemented
}

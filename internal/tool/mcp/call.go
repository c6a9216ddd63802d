package mcp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/tool"
)

const (
	// maxSaid is how many updates of a call may wait to be told.
	maxSaid = 32
	// maxDelta and maxUpdate bound one of them, in bytes.
	maxDelta, maxUpdate = 2 << 10, 8 << 10
)

// call is one call of a tool.
type call struct {
	l        *link
	inv      model.Invocation
	progress func(model.ToolUpdate)
	token    string
	said     chan model.ToolUpdate
	lost     atomic.Int64 // updates that found no room
	moved    atomic.Bool  // it has made progress that the clock does not know of
	answer   replyGate
	number   int      // in the order of the link's calls
	asking   chan int // forms that wait for the user, more or less
	over     chan struct{}
	gone     bool // the server did not take it
}

type outcome struct {
	result *sdk.CallToolResult
	err    error
}

// run makes the call and tells what is said of it meanwhile.
func (c *call) run(ctx context.Context, op string) model.ToolResult {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.answer.end()
	done := make(chan outcome, 1)
	go func() { done <- c.perform(c.answer.with(ctx), op) }() // ends with ctx
	defer close(c.over)
	timeout := c.l.h.desc.Timeout
	most := c.l.h.waits.times * timeout
	clock := newClock(timeout, most)
	defer clock.stop()
	for {
		select {
		case u := <-c.said:
			c.report(u)
			if c.moved.Swap(false) {
				clock.progress()
			}
		case n := <-c.asking:
			clock.wait(n)
		case o := <-done:
			c.drain()
			return c.result(ctx, o)
		case <-clock.idle.C:
			cancel(tool.Faultf(tool.Timeout, "no result and no progress within %v (a call that makes progress has %v in all)",
				timeout, most))
		case <-clock.whole.C:
			cancel(tool.Faultf(tool.Timeout, "no result within %v in all (%v without progress)", most, timeout))
		}
	}
}

// perform has the SDK make the call.
func (c *call) perform(ctx context.Context, op string) (o outcome) {
	params := &sdk.CallToolParams{Name: op, Arguments: jsontext.Value(c.inv.Arguments)}
	params.SetProgressToken(c.token)
	o.err = c.l.guarded(func() (err error) {
		o.result, err = c.callTool(ctx, params)
		return err
	})
	return o
}

// guarded does something with what a server says. A panic is an error, and costs
// nobody else anything.
func (l *link) guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("an answer of the server's led to a panic", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			err = tool.Faultf(tool.Internal, "it failed inside the daemon; its log has the details")
		}
	}()
	return do()
}

// report hands an update on, and says how many before it were left out.
func (c *call) report(u model.ToolUpdate) {
	if n := c.lost.Swap(0); n > 0 {
		c.progress(model.ToolUpdate{Delta: fmt.Sprintf("[%d updates were left out]", n)})
	}
	c.progress(u)
}

func (c *call) drain() {
	for {
		select {
		case u := <-c.said:
			c.report(u)
		default:
			return
		}
	}
}

// hears queues an update, and does not wait: other calls are read with this one.
func (c *call) hears(u model.ToolUpdate) {
	select {
	case c.said <- u:
	default:
		c.lost.Add(1)
	}
}

// result is the call's, as ours.
func (c *call) result(ctx context.Context, o outcome) model.ToolResult {
	var fault *tool.Fault
	c.gone = errors.Is(o.err, errGone)
	switch {
	case o.err == nil:
		c.l.h.answered()
		r, assets := c.made(o.result)
		c.answer.taken() // telling may take its time
		for _, a := range assets {
			c.progress(model.ToolUpdate{Asset: &a, Delta: a.Kind + " " + a.Path})
		}
		return r
	case ctx.Err() != nil:
		c.l.prove()
		if fault = tool.Interrupted(ctx); !errors.As(context.Cause(ctx), &fault) {
			fault = tool.Interrupted(ctx)
		}
	case errors.As(o.err, &fault):
	default:
		fault = c.l.fault(o.err)
	}
	c.l.log.Warn("tool failed", zap.String("tool_call_id", c.inv.ID), zap.String("code", fault.Code),
		zap.String("error", fault.Message))
	return tool.Failure(fault)
}

// hear takes in a notification that the SDK is not asked about. It does not wait.
func (l *link) hear(method string, params []byte) {
	switch method {
	case "notifications/progress":
		var p sdk.ProgressNotificationParams
		if jsonx.Unmarshal(params, &p) == nil {
			l.progressed(&p)
		}
	case "notifications/message":
		//lint:ignore SA1019 servers of 2025 log this way
		var p sdk.LoggingMessageParams
		if jsonx.Unmarshal(params, &p) == nil {
			l.logged(&p)
		}
	default:
		l.log.Debug("server said something nobody asked for", zap.String("method", method),
			zap.String("params", tool.Shorten(params)))
	}
}

// progressed hands progress to the call that it belongs to.
func (l *link) progressed(p *sdk.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	l.mu.Lock()
	c := l.calls[token]
	l.mu.Unlock()
	if c == nil {
		return
	}
	delta := fmt.Sprint(p.Progress)
	if p.Total > 0 {
		delta += fmt.Sprint(" of ", p.Total)
	}
	if p.Message != "" {
		delta += ": " + p.Message
	}
	c.moved.Store(true)
	c.hears(update(delta, p))
}

// logged hands a message of the server's to the only call there is, or to the log.
//
//lint:ignore SA1019 servers of 2025 log this way
func (l *link) logged(p *sdk.LoggingMessageParams) {
	var only *call
	l.mu.Lock()
	if len(l.calls) == 1 {
		for _, only = range l.calls {
		}
	}
	l.mu.Unlock()
	text, ok := p.Data.(string)
	if !ok {
		raw, _ := jsonx.Marshal(p.Data)
		text = string(raw)
	}
	if only == nil {
		l.log.Info("server says", zap.String("level", string(p.Level)), zap.String("message", format.Clip(text, maxDelta)))
		return
	}
	only.hears(update(text, p))
}

// update is what a server said, with as much of it as is told.
func update(delta string, raw any) model.ToolUpdate {
	u := model.ToolUpdate{Delta: format.Clip(delta, maxDelta)}
	if text, err := jsonx.Marshal(raw); err == nil && len(text) <= maxUpdate {
		u.Update = []byte(text)
	}
	return u
}

package gevals

import (
	"context"
	"errors"
	"fmt"
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
	// sdkLine is the longest line that the common SDK reads.
	sdkLine = 65_535
	// shownStderr is how much of stderr goes into a failure's text, in bytes.
	shownStderr = 4 << 10
)

// conn is one living extension process, and JSON-RPC 2.0 spoken with it. One
// request at a time; the pool sees to that.
//
// creachadair/jrpc2 was the plan and cannot meet the contract (v1.3.6): its
// client hands each incoming message to a goroutine of its own, so logs may
// overtake each other and the result, and a flood of them is buffered without
// bound; and it holds its lock while it writes, so that a child that does not
// read also stops the timeout of the call. With both worked around in the
// channel nothing was left for it to do but to count.
type conn struct {
	*worker.Conn[*message]
	log *zap.Logger
	ack time.Duration // how long the answer to shutdown is waited for

	nextID int64 // the requester's
}

func newConn(p *proc.Process, ack time.Duration, log *zap.Logger) *conn {
	c := &conn{log: log, ack: ack}
	c.Conn = worker.NewConn(p, worker.Dialogue[*message]{
		Who: "extension", Code: tool.ProtocolError, Decode: decode,
		Noise: "is not JSON-RPC", Noises: "are not JSON-RPC", Unasked: c.ignore,
	}, log)
	return c
}

func (c *conn) ignore(m *message) {
	c.log.Debug("extension said something nobody asked for",
		zap.String("method", m.method()), zap.String("id", tool.Shorten(m.ID)), zap.String("params", tool.Shorten(m.Params)))
}

// request sends one request and waits for its reply, for the process to end,
// or for ctx. Logs go to progress, in order. An error is a *[tool.Fault].
func (c *conn) request(ctx context.Context, method string, params any, progress func(model.ToolUpdate)) (jsontext.Value,
	error,
) {
	c.nextID++
	id := c.nextID
	line, err := jsonx.Marshal(struct {
		Version string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", id, method, params}, jsontext.AllowInvalidUTF8(true), jsonx.Deterministic(true))
	if err != nil {
		return nil, tool.Faultf(tool.BadRequest, "%s: %v", method, err)
	}
	line = append(line, '\n')
	size := len(line)
	var reply *message
	err = c.Ask(ctx, line, false, func(m *message) (last bool) {
		switch {
		case m.answers(id):
			reply = m
		case m.isOutput() && progress != nil:
			if text, ok := m.kept(); ok && ctx.Err() == nil {
				progress(model.ToolUpdate{Kept: text})
			}
		case !m.isLog() || progress == nil:
			c.ignore(m)
		case ctx.Err() == nil:
			progress(logUpdate(m.Params))
		}
		return reply != nil
	})
	if err != nil {
		return nil, c.tooLong(err, size)
	}
	return reply.outcome()
}

// tooLong adds to a crash right after a long request what it may have come of
// (tools.md §3).
func (c *conn) tooLong(err error, size int) error {
	var f *tool.Fault
	if _, ended := c.Exit(); ended && size > sdkLine && errors.As(err, &f) && f.Code == tool.Crashed {
		f.Message += fmt.Sprintf("; the request was a line of %d bytes, and many extensions cannot read more than %d", size,
			sdkLine)
	}
	return err
}

// Shutdown asks the process to end and waits until it has: so long for its
// answer, [worker.ExitGrace] for the exit, then by force; by force at once when
// ctx is done (gevals: Shutdown).
func (c *conn) Shutdown(ctx context.Context) {
	ack, cancel := context.WithTimeout(ctx, c.ack)
	_, err := c.request(ack, "shutdown", struct{}{}, nil)
	cancel()
	if err != nil && c.Alive() {
		c.log.Debug("extension did not acknowledge its shutdown", zap.Error(err))
	}
	c.Conn.Shutdown(ctx)
}

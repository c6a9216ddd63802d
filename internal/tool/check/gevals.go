package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

// gevalsRun checks one extension. The sheet is that of the whole extension; a
// called operation has its own.
type gevalsRun struct {
	*runner
	sheet *sheet
	calls *sheet // of the operation that is being called, nil outside execute
	last  *sheet // of the operation called last
	id    int
	ops   []tool.Operation
	left  []string
}

func (r *runner) gevals(ctx context.Context) ([]Finding, error) {
	g := &gevalsRun{runner: r, sheet: newSheet(gevalsClauses)}
	called, err := g.lifecycle(ctx)
	if err != nil {
		return nil, err
	}
	if !g.sheet.failed(gInit) {
		for _, probe := range []func(context.Context) error{g.unknown, g.noise, g.garbage, g.oneShot} {
			if err := probe(ctx); err != nil {
				return nil, err
			}
		}
	}
	g.sheet.test(gLeft, strings.Join(g.left, ", "))
	return slices.Concat(g.sheet.findings("", "the process did not get that far"), called), nil
}

func (g *gevalsRun) exchange() *exchange {
	g.id++
	return &exchange{sheet: g.sheet, rules: gRPC, id: g.id, notify: func(method string, params jsontext.Value) string {
		switch {
		case method != "log":
			return "the protocol has no notification of this name from an extension"
		case g.calls != nil:
			checkLog(g.calls, params)
		case g.last != nil:
			g.last.fail(gLogs, "it came after the result: %s", quote(params))
		default:
			return "log is for progress during execute"
		}
		return ""
	}}
}

// request sends a request and reads until its reply.
func (g *gevalsRun) request(ctx context.Context, c *child, method string, params any, limit time.Duration) (*exchange,
	error,
) {
	x := g.exchange()
	if err := c.send(wire{"2.0", x.id, method, params}); err != nil {
		return x, err
	}
	return x, c.await(ctx, x, limit)
}

// initialize starts a process and initializes it. An error means that it cannot be
// started; one that fails to initialize is ended, and nil is returned.
func (g *gevalsRun) initialize(ctx context.Context) (*child, error) {
	g.id = 0
	c, err := g.start(ctx)
	if err != nil {
		return nil, err
	}
	params := struct {
		Version string         `json:"protocolVersion"`
		Config  jsontext.Value `json:"config,omitzero"`
	}{"0.0.1", jsontext.Value(g.desc.Config)}
	x, err := g.request(ctx, c, "initialize", params, startTime)
	switch {
	case err != nil:
		g.sheet.fail(gInit, "%s", g.end(c, 0, err))
	case x.code != "":
		g.sheet.fail(gInit, "error %s: %s", x.code, quote(tool.Shorten(x.failure["message"])))
		g.end(c, exitTime, nil)
	default:
		g.sheet.hold(gInit)
		g.ops = checkManifest(g.sheet, x.result, g.desc.LookPath)
		return c, nil
	}
	return nil, nil
}

// end ends a process and says how it went, with the reason why it was ended.
func (g *gevalsRun) end(c *child, grace time.Duration, reason error) string {
	if errors.Is(reason, errEnded) {
		grace = exitTime
	}
	e := c.finish(grace)
	g.left = append(g.left, e.left...)
	if reason == nil || errors.Is(reason, errEnded) {
		return fmt.Sprintf("the process ended: %v", e)
	}
	return reason.Error()
}

// lifecycle runs a correct session (initialize, calls, shutdown) for each operation that is
// to be called, or a single one if there is none. It returns the findings of the
// called operations.
func (g *gevalsRun) lifecycle(ctx context.Context) ([]Finding, error) {
	c, err := g.initialize(ctx)
	if c == nil || err != nil {
		return nil, err
	}
	targets, err := g.targets(g.ops, nil)
	if err != nil {
		g.end(c, exitTime, nil)
		return nil, err
	}
	if len(targets) == 0 {
		g.shutdown(ctx, c)
		return newSheet(gevalsCallClauses).findings("", uncalled), nil
	}
	var called []Finding
	for _, t := range targets {
		s := newSheet(gevalsCallClauses)
		if c == nil {
			if c, err = g.initialize(ctx); err != nil {
				return nil, err
			}
		}
		if c != nil {
			if err := g.call(ctx, c, t, s); err != nil {
				return nil, err
			}
			c = nil
		}
		called = append(called, s.findings(t.name, first(t.reason, "nothing of the kind came"))...)
	}
	return called, nil
}

// call calls an operation without an argument that it requires, and then twice
// as it should be, and ends the process. An error means that a further process
// cannot be started.
func (g *gevalsRun) call(ctx context.Context, c *child, t target, s *sheet) (err error) {
	if t.args == nil {
		g.shutdown(ctx, c)
		return nil
	}
	if c, err = g.missing(ctx, c, t, s); c == nil || err != nil {
		return err
	}
	for range 2 {
		x, err := g.execute(ctx, c, t.name, t.args, s)
		switch {
		case err != nil:
			s.fail(gTwice, "%s", g.end(c, 0, err))
			return nil
		case x.code == "":
			checkResult(s, x.result)
		default:
			s.skip(gResult, "the call was refused: "+x.outcome())
		}
		s.hold(gTwice)
	}
	g.shutdown(ctx, c)
	return nil
}

// missing leaves out an argument. It returns a process that lives.
func (g *gevalsRun) missing(ctx context.Context, c *child, t target, s *sheet) (*child, error) {
	args, name, ok := lacking(t.schema, t.args)
	if !ok {
		s.skip(gMissing, "no argument is required")
		return c, nil
	}
	x, err := g.execute(ctx, c, t.name, args, s)
	if err != nil {
		s.fail(gMissing, "without %s: %s", quote(name), g.end(c, 0, err))
		return g.initialize(ctx)
	}
	s.test(gMissing, ifNot(x.code == "-32602", fmt.Sprintf("without %s: %s", quote(name), x.outcome())))
	return c, nil
}

// outcome is a reply in words.
func (x *exchange) outcome() string {
	if x.result != nil {
		return "result " + quote(x.result)
	}
	return fmt.Sprintf("error %s: %s", x.code, quote(tool.Shorten(x.failure["message"])))
}

func (g *gevalsRun) execute(ctx context.Context, c *child, op string, args jsontext.Value, s *sheet) (*exchange,
	error,
) {
	g.calls, g.last = s, s
	defer func() { g.calls = nil }()
	return g.request(ctx, c, "execute", g.params(op, args), g.desc.Timeout)
}

func (g *gevalsRun) params(op string, args jsontext.Value) any {
	type callContext struct {
		Workdir string            `json:"workdir"`
		Phase   string            `json:"phase"`
		Env     map[string]string `json:"env,omitempty"`
		Timeout string            `json:"timeout"`
	}
	return struct {
		Operation string         `json:"operation"`
		Args      jsontext.Value `json:"args"`
		Context   callContext    `json:"context"`
	}{op, jsontext.Value(args), callContext{g.desc.Workdir, "setup", g.desc.Env, g.desc.Timeout.String()}}
}

// shutdown ends a process as the daemon does.
func (g *gevalsRun) shutdown(ctx context.Context, c *child) {
	_, err := g.request(ctx, c, "shutdown", struct{}{}, ackTime)
	e := c.finish(exitTime)
	g.left = append(g.left, e.left...)
	switch {
	case errors.Is(err, errEnded):
		g.sheet.fail(gShutdown, "the process ended without an answer: %v", e)
	case err != nil:
		g.sheet.fail(gShutdown, "%v", err)
	default:
		g.sheet.hold(gShutdown)
	}
	switch {
	case e.exit.Stopped:
		g.sheet.fail(gExit, "still running; it was stopped")
	case !e.exit.OK():
		g.sheet.fail(gExit, "%v", e)
	default:
		g.sheet.hold(gExit)
	}
}

// wants notes whether a reply is an error of that code.
func (g *gevalsRun) wants(c *clause, x *exchange, code string) {
	g.sheet.test(c, ifNot(x.code == code, x.outcome()))
}

// unknown asks for something that does not exist.
func (g *gevalsRun) unknown(ctx context.Context) error {
	c, err := g.initialize(ctx)
	if c == nil || err != nil {
		return err
	}
	x, err := g.request(ctx, c, unknownName, struct{}{}, startTime)
	if err != nil {
		g.sheet.fail(gMethod, "%s", g.end(c, 0, err))
		if c, err = g.initialize(ctx); c == nil || err != nil {
			return err
		}
	} else {
		g.wants(gMethod, x, "-32601")
	}
	x, err = g.request(ctx, c, "execute", g.params(unknownName, jsontext.Value("{}")), startTime)
	if err != nil {
		g.sheet.fail(gUnknown, "%s", g.end(c, 0, err))
		return nil
	}
	g.wants(gUnknown, x, "-32601")
	g.end(c, exitTime, nil)
	return nil
}

// noise sends what has to be ignored, and a request behind it.
func (g *gevalsRun) noise(ctx context.Context) error {
	c, err := g.initialize(ctx)
	if c == nil || err != nil {
		return err
	}
	_ = c.proc.Send([]byte("\n  \n")) // a process that has ended shows below
	_ = c.send(wire{Version: "2.0", Method: unknownName, Params: struct{}{}})
	_, err = g.request(ctx, c, unknownName, struct{}{}, startTime)
	if err != nil {
		g.sheet.fail(gBlank, "%s", g.end(c, 0, err))
		return nil
	}
	g.sheet.hold(gBlank)
	g.end(c, exitTime, nil)
	return nil
}

// garbage sends what cannot be parsed.
func (g *gevalsRun) garbage(ctx context.Context) error {
	c, err := g.initialize(ctx)
	if c == nil || err != nil {
		return err
	}
	_ = c.proc.Send([]byte("this is not JSON\n"))
	// Its id cannot be known: the exchange has a sheet of its own.
	x := &exchange{sheet: newSheet(nil), rules: gRPC, notify: func(string, jsontext.Value) string { return "" }}
	limit, cancel := tool.WithTimeout(ctx, startTime)
	defer cancel()
	line, err := c.next(limit)
	if err != nil {
		g.sheet.fail(gInvalid, "%s", g.end(c, 0, err))
		return nil
	}
	if m, ok := object(line); ok {
		x.reply(m, line)
	}
	g.sheet.test(gInvalid, ifNot(x.code == "-32700", quote(line)))
	g.end(c, exitTime, nil)
	return nil
}

// oneShot makes a single request without initialize.
func (g *gevalsRun) oneShot(ctx context.Context) error {
	g.id, g.last = 0, nil
	c, err := g.start(ctx)
	if err != nil {
		return err
	}
	x := g.exchange()
	if err := c.send(wire{"2.0", x.id, "execute", g.params(unknownName, jsontext.Value("{}"))}); err != nil {
		return err
	}
	c.proc.CloseInput()
	if err := c.await(ctx, x, startTime); err != nil {
		g.sheet.fail(gOneShot, "%s", g.end(c, 0, err))
		return nil
	}
	e := c.finish(exitTime)
	g.left = append(g.left, e.left...)
	switch {
	case e.exit.Stopped:
		g.sheet.fail(gOneShot, "still running 2s after the end of stdin; it was stopped")
	case x.code == "":
		g.sheet.fail(gOneShot, "an unknown operation got %s", x.outcome())
	default:
		g.sheet.hold(gOneShot)
	}
	return nil
}

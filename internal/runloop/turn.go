package runloop

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// callModel streams one assistant message into the loop.
func (l *loop) callModel(ctx context.Context, gen int, call modelCall) {
	if call.req.Summary {
		l.env.Audit(model.AuditEvent{Event: "context:pre_compact", Component: "context", SessionID: l.id})
	}
	err := l.stream(ctx, gen, call)
	if call.req.Summary {
		status := "ok"
		if err != nil {
			status = "error"
		}
		l.env.Audit(model.AuditEvent{Event: "context:post_compact", Component: "context", SessionID: l.id, Status: status})
	}
	_ = l.post(context.Background(), modelDoneIn{gen, err})
}

func (l *loop) stream(ctx context.Context, gen int, call modelCall) (err error) {
	defer func() {
		if v := recover(); v != nil {
			l.env.Fault(l.id, fmt.Errorf("panic in the model provider: %v\n%s", v, debug.Stack()))
			err = fmt.Errorf("internal error; the daemon's log has the detail")
		}
	}()
	req := call.req
	req.SessionID = l.id
	var o offer
	if call.any() {
		if err := l.ready(ctx, gen, call.from); err != nil {
			return err
		}
		if o, err = l.offer(ctx, gen, call.toolset); err != nil {
			return err
		}
		req.Tools, req.Deferred = o.tools, o.deferred
	}
	if l.env.Instructions != nil && !req.Summary {
		if req.System, err = l.system(ctx, gen, call, o.servers); err != nil {
			return err
		}
	}
	if modules := l.env.Modules; modules != nil && modules.Transforms() && !req.Summary {
		messages, err := modules.Transform(ctx, l.id, call.from.Workdir, req.Messages)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if err := l.post(ctx, noticeIn{gen, protocol.WarningContextFailed, err.Error()}); err != nil {
				return err
			}
		}
		req.Messages = session.Answered(messages)
	}
	if !req.Summary { // that is told of images, and shown none
		if req.Messages, err = l.show(ctx, gen, req.Messages); err != nil {
			return err
		}
	}
	answering, err := l.env.model(call.choice)
	if err != nil {
		return err
	}
	for delta, err := range answering.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if err := l.post(ctx, deltaIn{gen, delta}); err != nil {
			return err
		}
	}
	return nil
}

// model is the one that was chosen.
func (e *env) model(choice model.Choice) (Model, error) {
	switch {
	case choice.Provider == "":
		return e.Model, nil
	case e.Models == nil:
		return nil, fmt.Errorf("model %s/%s: this daemon has one model only", choice.Provider, choice.Name)
	}
	return e.Models.Model(choice)
}

// callTool runs one tool operation and hands its progress to the loop. With search
// set it finds tools.
func (l *loop) callTool(ctx context.Context, gen int, inv model.Invocation, search *toolset) {
	if search != nil {
		res, found := l.env.searchTools(ctx, inv, *search)
		_ = l.post(context.Background(), foundIn{gen, found})
		_ = l.post(context.Background(), toolDoneIn{gen, res})
		return
	}
	var images []model.Attachment
	inv.KeepImage, inv.Ask = l.keeper(&images), l.asks(ctx, gen)
	res := l.env.callTool(ctx, l.id, inv, func(u model.ToolUpdate) {
		_ = l.post(ctx, toolUpdateIn{gen, u})
	})
	res.Attachments = images
	_ = l.post(context.Background(), toolDoneIn{gen, res})
}

// lookTime is how long a question waits for the disk to say what it is about.
const lookTime = 2 * time.Second

// look finds out what has to be known of a call before it is decided.
func (l *loop) look(ctx context.Context, gen int, at inquiry) {
	in := lookedIn{gen: gen}
	if at.guarded {
		in.guard = l.env.Policy.Guard(ctx, at.inv)
	}
	if at.change {
		in.diff = l.preview(ctx, at.inv)
	}
	_ = l.post(context.Background(), in)
}

// preview is what a call would change in a file. A disk that hangs is not waited
// for.
func (l *loop) preview(ctx context.Context, inv model.Invocation) string {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	seen := make(chan string, 1)
	go func() { // ends when the disk answers
		defer func() {
			if v := recover(); v != nil {
				l.env.Fault(l.id, fmt.Errorf("panic in the preview of %s: %v\n%s", inv.Name, v, debug.Stack()))
				seen <- ""
			}
		}()
		seen <- l.env.Policy.Preview(inv)
	}()
	select {
	case diff := <-seen:
		return diff
	case <-ctx.Done():
		return ""
	}
}

// callTool runs a tool; a panic in it is a failed call.
func (e *env) callTool(ctx context.Context, sessionID string, inv model.Invocation, progress func(model.ToolUpdate)) (res model.ToolResult) {
	defer func() {
		if v := recover(); v != nil {
			e.Fault(sessionID, fmt.Errorf("panic in tool %s: %v\n%s", inv.Name, v, debug.Stack()))
			res = model.Failed(model.Internal, "the tool's host failed; the daemon's log has the detail")
		}
	}()
	return e.Tools.Call(ctx, inv, progress)
}

// Waits for tools that have not yet said what they can do.
const (
	// offerWait is how long a model call waits, which goes without them then: an
	// extension has as long to start (tools.md §3), and so has the daemon's own on a
	// machine that is busy.
	offerWait = 10 * time.Second
	// chooseWait is how long somebody waits who chooses among tools.
	chooseWait = 2 * time.Second
)

// tools lists the operations of all tools, and of one that has not yet said what
// it can do within that time only that.
func (e *env) tools(ctx context.Context, from model.Scope, wait time.Duration) []model.ToolInfo {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return e.Tools.List(ctx, from)
}

// resolveTools turns the names of operations and modules into the operations'
// names. The second result is a name that nothing has.
func resolveTools(known []model.ToolInfo, names []string) (operations []string, unknown string) {
	operations = []string{}
	for _, name := range names {
		found := false
		for _, t := range known {
			if !model.Means(name, t.Name) && t.Module != name {
				continue
			}
			found = true
			if !slices.Contains(operations, t.Name) {
				operations = append(operations, t.Name)
			}
		}
		if !found {
			return nil, name
		}
	}
	return operations, ""
}

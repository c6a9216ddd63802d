package runloop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// callModel streams one assistant message into the loop.
func (l *loop) callModel(ctx context.Context, gen int, call modelCall) {
	if call.req.Summary {
		l.env.Audit(model.AuditEvent{Event: "context:pre_compact", Component: "context", SessionID: l.id})
	}
	part := l.env.answers.Begin()
	err := l.stream(ctx, gen, call, part)
	if call.req.Summary {
		status := "ok"
		if err != nil {
			status = "error"
		}
		l.env.Audit(model.AuditEvent{Event: "context:post_compact", Component: "context", SessionID: l.id, Status: status})
	}
	if l.post(context.Background(), answerDoneIn{modelDoneIn{gen, err}, part}) != nil {
		part.End()
	}
}

func (l *loop) stream(ctx context.Context, gen int, call modelCall, part *budget.Part) (err error) {
	defer func() {
		if v := recover(); v != nil {
			l.env.Fault(l.id, fmt.Errorf("panic in the model provider: %v\n%s", v, debug.Stack()))
			err = fmt.Errorf("internal error; the daemon's log has the detail")
		}
	}()
	req := call.req
	req.SessionID = l.id
	req.Room = l.room(ctx, part)
	if call.agent != nil {
		return l.streamAgent(ctx, gen, call, req, part)
	}
	if call.warm {
		l.warm(call.from.Workdir)
	}
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
	if err := l.tellHooks(ctx, gen, call); err != nil {
		return err
	}
	if l.env.Instructions != nil && !req.Summary {
		if req.System, err = l.system(ctx, gen, call, o.servers); err != nil {
			return err
		}
	}
	req.Load = func(bytes int) ([]model.Message, func(), error) { return l.load(ctx, gen, call, bytes) }
	answering, err := l.env.model(call.choice)
	if err != nil {
		return err
	}
	for delta, err := range answering.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if err := grow(ctx, part, len(delta.Text)+len(delta.Thinking)); err != nil {
			return err
		}
		if err := l.post(ctx, deltaIn{gen, delta}); err != nil {
			return err
		}
	}
	return nil
}

// room is what a provider has for a request, and for the answer.
func (l *loop) room(ctx context.Context, part *budget.Part) model.Room {
	return model.Room{
		Hold:  func(bytes int) error { return grow(ctx, part, bytes) },
		Aside: func() (model.File, error) { return l.env.Store.Aside() },
	}
}

// load reads the messages of a call, once there is room for them and for a request of so
// many bytes, until done.
func (l *loop) load(ctx context.Context, gen int, call modelCall, bytes int) (messages []model.Message, done func(),
	err error,
) {
	size, most := call.history.Bytes(), 0
	if call.req.Summary {
		most = maxSummarised
		size = min(size, most)
	}
	size = max(bytes, requestCost*size)
	making := l.env.requests.Begin()
	defer func() {
		if err != nil {
			making.End()
		}
	}()
	switch err := making.Grow(ctx, size); {
	case errors.Is(err, budget.ErrTaken):
		return nil, nil, fmt.Errorf("the request would take %d KiB of memory, and those of other sessions have it: prompt "+
			"again when they have been sent", size>>10)
	case err != nil:
		return nil, nil, err
	}
	if messages, err = l.env.Store.Messages(ctx, l.id, call.history, most); err != nil {
		if ctx.Err() == nil {
			err = &unreadError{err}
		}
		return nil, nil, err
	}
	if messages = call.fit(messages); call.req.Summary { // which gets images described, and is shown none
		return messages, making.End, nil
	}
	if messages, err = l.transform(ctx, gen, call, messages); err != nil {
		return nil, nil, err
	}
	messages, err = l.withImages(ctx, gen, messages)
	return messages, making.End, err
}

// unreadError says that the conversation could not be read, which is no model's fault.
type unreadError struct{ err error }

func (e *unreadError) Error() string {
	return fmt.Sprintf("the session's journal cannot be read: %v", e.err)
}
func (e *unreadError) Unwrap() error { return e.err }

// transform has the modules change the messages that want to.
func (l *loop) transform(ctx context.Context, gen int, call modelCall, messages []model.Message) ([]model.Message,
	error,
) {
	modules := l.env.Modules
	if modules == nil || !modules.Transforms() {
		return messages, nil
	}
	messages, err := modules.Transform(ctx, l.id, call.from.Workdir, messages)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		if err := l.post(ctx, noticeIn{gen, protocol.WarningContextFailed, err.Error()}); err != nil {
			return nil, err
		}
	}
	return session.Answered(messages), nil
}

// requestCost is how many bytes are in memory for each of a conversation while a
// request is made of it.
const requestCost = 2

// grow takes room for so many bytes of an answer before they are kept.
func grow(ctx context.Context, part *budget.Part, bytes int) error {
	err := part.Grow(ctx, bytes)
	if errors.Is(err, budget.ErrTaken) {
		return fmt.Errorf("the model's answer has %d KiB so far, and the answers of other sessions have the memory for "+
			"more: prompt again when they have ended", part.Size()>>10)
	}
	return err
}

// own is the daemon's own model.
func (e *env) own() model.Choice {
	if e.Models == nil {
		return e.ModelInfo
	}
	return e.Models.Own()
}

// model is the one that was chosen.
func (e *env) model(choice model.Choice) (Model, error) {
	switch {
	case e.Models != nil:
		return e.Models.Model(choice)
	case choice.Provider != e.ModelInfo.Provider || choice.Name != e.ModelInfo.Name:
		return nil, fmt.Errorf("model %s/%s: this daemon has one model only", choice.Provider, choice.Name)
	}
	return e.Model, nil
}

// cannotAnswer says why a model cannot be asked, nil where it can.
func (e *env) cannotAnswer(choice model.Choice) error {
	_, err := e.model(choice)
	return err
}

// callTool runs one tool operation and hands its progress to the loop. With search
// set it finds tools.
func (l *loop) callTool(ctx context.Context, w work) {
	inv, gen := *w.tool, w.gen
	if w.made != nil {
		done, err := l.argue(ctx, &inv, w)
		if err != nil {
			_ = l.post(context.Background(), toolDoneIn{gen, model.Failed(model.Internal, err.Error())})
			return
		}
		defer done()
	}
	l.recordBefore(ctx, inv.Workdir, w.before)
	if w.before != "" && ctx.Err() != nil { // nothing is changed that is not recorded
		_ = l.post(context.Background(), toolDoneIn{gen, model.Failed("aborted", "not run: "+context.Cause(ctx).Error())})
		return
	}
	if w.search != nil {
		res, found := l.env.searchTools(ctx, inv, *w.search)
		_ = l.post(context.Background(), foundIn{gen, found})
		_ = l.post(context.Background(), toolDoneIn{gen, res})
		return
	}
	var res model.ToolResult
	if l.agent == nil || l.agent.Serves(inv.ID) {
		res = l.callOurs(ctx, gen, inv)
	} else {
		res = l.callTheirs(ctx, gen, inv)
	}
	_ = l.post(context.Background(), toolDoneIn{gen, res})
}

// callOurs runs a tool of the daemon's.
func (l *loop) callOurs(ctx context.Context, gen int, inv model.Invocation) model.ToolResult {
	ctx, outputID, done := l.outsiders.join(ctx, inv.ID)
	defer done()
	var images []model.Attachment
	inv.KeepImage, inv.Ask = l.keeper(&images), l.asks(ctx, gen)
	res := l.env.callTool(ctx, l.id, inv, func(u model.ToolUpdate) {
		_ = l.post(ctx, outsideUpdateIn{toolUpdateIn{gen, u}, outputID})
	})
	res.Attachments = images
	return l.afterTool(ctx, gen, inv, res)
}

const (
	// longArguments is how long a call's arguments are, in bytes, that are read when there
	// is room for them.
	longArguments = 64 << 10
	// argumentsCost is how many bytes are in memory for each of them while the call runs.
	argumentsCost = 2
)

// argue gives a call its arguments, once there is room for them until done.
func (l *loop) argue(ctx context.Context, inv *model.Invocation, w work) (done func(), err error) {
	room := l.env.arguments.Begin()
	if err = room.Grow(ctx, argumentsCost*w.size); err == nil {
		inv.Arguments, err = l.env.Store.Arguments(ctx, l.id, w.made, inv.ID)
	}
	if errors.Is(err, budget.ErrTaken) {
		err = fmt.Errorf("not run: the arguments have %d KiB, and those of other calls have the memory: try again when "+
			"they have ended, or with less", w.size>>10)
	}
	if err != nil {
		room.End()
		return nil, err
	}
	return room.End, nil
}

// lookTime is how long a question waits for the disk to say what it is about.
const lookTime = 2 * time.Second

// runPrecheck finds out what has to be known of a call before it is decided.
func (l *loop) runPrecheck(ctx context.Context, gen int, at precheck) {
	if at.trees {
		l.env.hub.awaitTakenUp(ctx)
		_ = l.post(context.Background(), treesKnownIn{gen})
		return
	}
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
func (e *env) callTool(ctx context.Context, sessionID string, inv model.Invocation, progress func(model.ToolUpdate)) (
	res model.ToolResult,
) {
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

package registry

import (
	"cmp"
	"context"
	"iter"
	"os"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/tool"
)

// Call runs one operation, by the name that List gives it or that name with
// "__" for each dot, and blocks until it has ended and its progress is told.
// Whatever goes wrong is in the result. A call goes one way, and ends where a step
// fails:
//
//	resolve   the name is looked up: the module and its operation
//	filled    defaults are filled in, and the arguments are checked: once, and here,
//	          since a reload may have replaced the module that Judge saw
//	allowed   the policy is asked, unless the call was judged before ([Registry.Judge])
//	run       what the policy was asked about runs: in the process of its folder, or
//	          outside the sandbox in one of its own, or as a job
//	show      images that the tool has named are kept
//	bound     what is too long for a model is kept in a file
func (r *Registry) Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) (
	result model.ToolResult,
) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("tool call panicked", zap.String("tool", inv.Name), zap.String("tool_call_id", inv.ID),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			result = model.Failed(tool.Internal, "the call failed inside the daemon; its log has the details")
		}
	}()
	start := time.Now()
	module, op := "", inv.Name // as the audit has a call that is not let in
	c, err := r.resolve(ctx, inv)
	if err == nil {
		defer c.module.leave()
		var wrong error
		inv, wrong = c.filled(inv)
		if err = cmp.Or(r.allowed(c, inv), c.op.problem); err == nil {
			module, op, err = c.module.desc.Name, c.op.Name, wrong
		}
	}
	if err != nil {
		result = tool.Failure(err)
	} else {
		result = r.run(ctx, c, inv, progress)
	}
	r.invoked(module, op, inv.SessionID, inv.ID, time.Since(start), result.Error)
	return r.keep.bound(result, inv.SessionID, inv.MaxResult)
}

// readable is what of the hidden a module can read for a session: the built-in tools,
// what was kept for it. While that is nothing, sessions of a folder share processes.
func (r *Registry) readable(m *module, session string) string {
	kept := r.keep.files.Of(session)
	if _, err := os.Lstat(kept); err != nil || !m.desc.Builtin() {
		return ""
	}
	return kept
}

// artifacts are the built-in operations that read or write a file.
var artifacts = map[string]string{"read": "artifact:read", "write": "artifact:write", "edit": "artifact:write"}

func pathOf(arguments []byte) string {
	var a struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal(arguments, &a) // they fit the operation's schema
	return a.Path
}

// run runs a call that was let in.
func (r *Registry) run(ctx context.Context, c candidate, inv model.Invocation,
	progress func(model.ToolUpdate),
) model.ToolResult {
	m, op := c.module, c.op.Name
	own, leave, err := m.at(inv.Workdir, r.readable(m, inv.SessionID))
	if err != nil {
		return tool.Failure(err)
	}
	defer leave()
	p, end, err := m.outside(own, c.op, inv)
	if err != nil {
		return tool.Failure(err)
	}
	defer end()
	ctx, unbind := m.bind(ctx)
	defer unbind()
	if ctx.Err() != nil {
		return tool.Failure(tool.Interrupted(ctx))
	}
	kept := keeping{keep: r.keep}
	if m.desc.Builtin() {
		kept.path = r.keep.files.NewName(inv.SessionID, tool.KeptResult, ".txt")
		inv.KeepIn = kept.path
	}
	artifact := func(event string, data ...string) {
		r.o.Audit.Record(model.AuditEvent{
			Event: event, Component: "tool", Module: m.desc.Name, SessionID: inv.SessionID, RequestID: inv.ID,
			Data: object(data...),
		})
	}
	told := func(u model.ToolUpdate) {
		if u.Kept != nil {
			kept.add(u.Kept)
			return
		}
		if a := u.Asset; a != nil {
			artifact("artifact:write", "path", a.Path, "media_type", a.MediaType, "asset_id", a.ID)
		}
		if progress != nil {
			progress(tidy(u))
		}
	}
	result, ok := r.jobs.call(ctx, p.desc, op, inv, told)
	if !ok {
		result = p.host.Call(ctx, op, inv, told)
		kept.end(&result)
	}
	r.show(own.desc, inv, &result)
	if event := artifacts[op]; event != "" && m.desc.Bare && result.OK {
		artifact(event, "path", pathOf(inv.Arguments))
	}
	return result
}

// invoked audits the call of a module (amplifier-protocols §3). Of a failure it
// tells the code and how the message begins: the rest can be a tool's output.
func (r *Registry) invoked(module, op, sessionID, requestID string, took time.Duration, failure *model.ToolError) {
	status := "ok"
	if failure != nil {
		status = "error"
		line, _, _ := strings.Cut(failure.Message, "\n")
		failure = &model.ToolError{Code: failure.Code, Message: format.Cut(line, maxAudited)}
	}
	r.o.Audit.Record(model.AuditEvent{
		Event: "module:invoke", Component: "tool", Module: module, Status: status, Duration: took,
		SessionID: sessionID, RequestID: requestID, Data: object("op", op), Error: failure,
	})
}

// tidy makes sure that an update can be put on the wire.
func tidy(u model.ToolUpdate) model.ToolUpdate {
	if !utf8.ValidString(u.Delta) {
		u.Delta = strings.ToValidUTF8(u.Delta, "\uFFFD")
	}
	if u.Update != nil && !jsontext.Value(u.Update).IsValid() {
		u.Update = nil
	}
	return u
}

// resolve finds the operation that a name means, and keeps its module until
// leave. Names as List gives them come before those with "__"; a module that
// has not been heard of is asked only when the name begins with its own, and
// not at all when the policy denies the call.
func (r *Registry) resolve(ctx context.Context, inv model.Invocation) (c candidate, problem error) {
	for m, spell := range meaning(r.seen(inv.Scope), inv.Name) {
		// However it is spelled: what is denied is not even asked for.
		if d, denies := r.rules().Denies(inv.Name); denies {
			return c, r.judged(inv.Name, d, denied(inv.Name, d.Pattern), inv)
		}
		switch err := m.enter(); {
		case err == errRetired:
			return r.resolve(ctx, inv) // it has just been replaced
		case err != nil:
			return c, err
		}
		op, err := m.find(ctx, inv.Name, spell)
		if op != nil {
			return candidate{m, m.callName(op.Name), op}, nil
		}
		m.leave()
		if ctx.Err() != nil {
			return c, tool.Interrupted(ctx)
		}
		problem = cmp.Or(err, problem)
	}
	return c, cmp.Or(problem, r.unmountedServer(inv.Scope, inv.Name),
		error(tool.Faultf(tool.UnsupportedOp, "there is no tool %q", inv.Name)))
}

// meaning yields the modules that may have an operation of that name, with how the name
// is spelled: as List gives it first, then with "__" for each dot.
func meaning(modules []*module, name string) iter.Seq2[*module, func(string) string] {
	return func(yield func(*module, func(string) string) bool) {
		for _, spell := range []func(string) string{asIs, model.Undotted} {
			for _, m := range modules {
				if m.mayHave(name, spell) && m.desc.Offers() && !yield(m, spell) {
					return
				}
			}
		}
	}
}

func asIs(name string) string { return name }

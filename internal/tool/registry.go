package tool

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/model"
)

// Options configure a Registry. The zero value has no tools.
type Options struct {
	// Dirs are read for descriptors, *.json, in this order; a missing one holds
	// none.
	Dirs []string
	// Descriptors come before those of Dirs; they are made by ParseDescriptor.
	Descriptors []*Descriptor
	// Workdir is where tools run unless their descriptor says otherwise. Empty:
	// the daemon's own.
	Workdir string
	// OutputDir keeps results that are too long for a model. Empty: a directory
	// of the system's temporary one.
	OutputDir string
	// MaxText and MaxLines bound the text of a result that a model gets. Zero:
	// 50 KiB and 2000.
	MaxText, MaxLines int
	// Dialects has a factory for each protocol that is spoken.
	Dialects map[string]Dialect
	// Environ is the daemon's environment. Nil: the process's.
	Environ []string
	// Helper is a program whose main calls [Helper] first: the daemon's own.
	// Empty: nothing ends the tools of a daemon that is killed, and a tool that
	// asks for a sandbox is refused.
	Helper string
	// Hidden is what no sandboxed tool can read.
	Hidden Hidden
	// Policy says which operations may be called. The zero value: all.
	Policy Policy
	// Audit may be nil.
	Audit Auditor
	// Logger may be nil.
	Logger *zap.Logger
}

// maxAudited is how much of a failure's message the audit journal gets, in bytes.
const maxAudited = 200

type noAudit struct{}

func (noAudit) Record(model.AuditEvent)                             {}
func (noAudit) AddHook(string, func(context.Context, []byte) error) {}
func (noAudit) RemoveHook(string)                                   {}

// Auditor keeps the audit journal and feeds the hooks. None of its methods
// waits for either.
type Auditor interface {
	Record(model.AuditEvent)
	// AddHook hands every later event to deliver, in order.
	AddHook(name string, deliver func(ctx context.Context, event []byte) error)
	// RemoveHook waits a moment for deliver to take what it is owed.
	RemoveHook(name string)
}

// Registry knows the tools and runs them. It satisfies the run loop's Tools and
// Modules.
type Registry struct {
	o          Options
	log        *zap.Logger
	supervisor *Supervisor
	keep       keeper
	jobs       *jobs
	ctx        context.Context
	stop       context.CancelFunc

	reloading sync.Mutex
	modules   atomic.Pointer[[]*module] // sorted by name; replaced, never changed
	errs      []error                   // of the last reload
	retiring  sync.WaitGroup
	close     sync.Once
}

// New loads all descriptors. It starts no tool and does not fail: a descriptor
// that cannot be used is left out and reported by [Registry.Errors]. The
// registry must be closed.
func New(o Options) *Registry {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Audit == nil {
		o.Audit = noAudit{}
	}
	if abs, err := filepath.Abs(o.Workdir); err == nil {
		o.Workdir = abs
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Registry{
		o: o, log: o.Logger, supervisor: NewSupervisor(o.Helper, o.Logger), ctx: ctx, stop: stop,
		keep: newKeeper(o.OutputDir, o.MaxText, o.MaxLines),
	}
	r.supervisor.Hide(o.Hidden)
	r.jobs = newJobs(r.keep.dir, r.supervisor)
	r.modules.Store(&[]*module{})
	r.Reload()
	return r
}

func (r *Registry) all() []*module { return *r.modules.Load() }

// Errors returns why descriptors were left out, one error each.
func (r *Registry) Errors() []error {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	return slices.Clone(r.errs)
}

// Unused returns the policy's patterns that no tool fits, as [Policy.Unused]
// has it.
func (r *Registry) Unused() []string {
	var all []*Descriptor
	for _, m := range r.all() {
		all = append(all, m.desc)
	}
	return r.o.Policy.Unused(all)
}

// List returns every operation, sorted by name. A module that has not said yet
// what it can do is asked, all of them at once, within their own deadlines; one
// that failed is left alone for a while. Such a module is one unhealthy entry
// with the module's name. When ctx ends first, those not heard of yet are
// unhealthy too.
func (r *Registry) List(ctx context.Context) []model.ToolInfo {
	modules := r.all()
	lists := make([][]model.ToolInfo, len(modules))
	var wg sync.WaitGroup
	for i, m := range modules {
		if m.desc.offers() {
			wg.Go(func() { lists[i] = m.list(ctx, r.o.Policy) })
		}
	}
	wg.Wait()
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b model.ToolInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Has reports whether Call knows a name: that of an operation, of a module that
// cannot say now what it has, or one that the policy denies. It asks no module
// that the name cannot belong to.
func (r *Registry) Has(ctx context.Context, name string) bool {
	if _, denies := r.o.Policy.denies(name); denies {
		return true
	}
	for _, spell := range []func(string) string{asIs, undotted} {
		for _, m := range r.all() {
			if m.mayHave(name, spell) && m.desc.offers() && m.has(ctx, name, spell) {
				return true
			}
		}
	}
	return false
}

// Call runs one operation, by the name that List gives it or that name with
// "__" for each dot, and blocks until it has ended and its progress is told.
// Whatever goes wrong is in the result.
func (r *Registry) Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) (result model.ToolResult) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("tool call panicked", zap.String("tool", inv.Name), zap.String("tool_call_id", inv.ID),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			result = model.Failed(Internal, "the call failed inside the daemon; its log has the details")
		}
	}()
	start := time.Now()
	m, op, err := r.resolve(ctx, inv)
	if err != nil {
		result = Failure(err)
		r.invoked("", inv.Name, inv.SessionID, inv.ID, time.Since(start), result.Error)
		return r.keep.bound(result, inv.MaxResult)
	}
	defer m.leave()
	result = r.run(ctx, m, op, inv, progress)
	r.show(m, inv, &result)
	if event := artifacts[op.Name]; event != "" && m.desc.Bare && result.OK {
		r.o.Audit.Record(model.AuditEvent{
			Event: event, Component: "tool", Module: m.desc.Name, SessionID: inv.SessionID, RequestID: inv.ID,
			Data: object("path", pathOf(inv.Arguments)),
		})
	}
	r.invoked(m.desc.Name, op.Name, inv.SessionID, inv.ID, time.Since(start), result.Error)
	return r.keep.bound(result, inv.MaxResult)
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

func (r *Registry) run(ctx context.Context, m *module, op *operation, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	var err error
	if inv.Arguments, err = prepareArguments(op.schema, inv.Arguments); err != nil {
		return Failure(err)
	}
	if ctx.Err() != nil {
		return Failure(Interrupted(ctx))
	}
	told := func(u model.ToolUpdate) {
		if a := u.Asset; a != nil {
			r.o.Audit.Record(model.AuditEvent{
				Event: "artifact:write", Component: "tool", Module: m.desc.Name, SessionID: inv.SessionID, RequestID: inv.ID,
				Data: object("path", a.Path, "media_type", a.MediaType, "asset_id", a.ID),
			})
		}
		if progress != nil {
			progress(tidy(u))
		}
	}
	if result, ok := r.jobs.call(ctx, m.desc, op.Name, inv, told); ok {
		return result
	}
	return m.host.Call(ctx, op.Name, inv, told)
}

// invoked audits the call of a module (amplifier-protocols §3). Of a failure it
// tells the code and how the message begins: the rest can be a tool's output.
func (r *Registry) invoked(module, op, sessionID, requestID string, took time.Duration, failure *model.ToolError) {
	status := "ok"
	if failure != nil {
		status = "error"
		line, _, _ := strings.Cut(failure.Message, "\n")
		failure = &model.ToolError{Code: failure.Code, Message: strings.ToValidUTF8(line[:min(len(line), maxAudited)], "")}
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
func (r *Registry) resolve(ctx context.Context, inv model.Invocation) (*module, *operation, error) {
	var problem error
	for _, spell := range []func(string) string{asIs, undotted} {
		for _, m := range r.all() {
			if !m.mayHave(inv.Name, spell) || !m.desc.offers() {
				continue
			}
			// However it is spelled: what is denied is not even asked for.
			if pattern, denies := r.o.Policy.denies(inv.Name); denies {
				return nil, nil, r.judged(inv.Name, pattern, false, inv)
			}
			if !m.enter() {
				return r.resolve(ctx, inv) // it has just been replaced
			}
			op, err := m.find(ctx, inv.Name, spell)
			if op != nil {
				name := m.callName(op.Name)
				pattern, ok := r.o.Policy.decide(m.desc.Name, name)
				if err = r.judged(name, pattern, ok, inv); err == nil {
					err = op.problem
				}
				if err == nil {
					return m, op, nil
				}
			}
			m.leave()
			if op != nil {
				return nil, nil, err
			}
			if ctx.Err() != nil {
				return nil, nil, Interrupted(ctx)
			}
			if err != nil {
				problem = err
			}
		}
	}
	if problem != nil {
		return nil, nil, problem
	}
	return nil, nil, Faultf(UnsupportedOp, "there is no tool %q", inv.Name)
}

// judged audits what the policy says of a call, and makes an error of a no.
func (r *Registry) judged(name, pattern string, ok bool, inv model.Invocation) error {
	ev := model.AuditEvent{
		Event: "policy:decision", Component: "policy", Status: "ok", SessionID: inv.SessionID, RequestID: inv.ID,
		Data: object("tool", name, "decision", "allow", "pattern", pattern),
	}
	var err *Fault
	if !ok {
		err = denied(name, pattern)
		ev.Status, ev.Data = "error", object("tool", name, "decision", "deny", "pattern", pattern)
	}
	r.o.Audit.Record(ev)
	if err != nil {
		return err
	}
	return nil
}

func asIs(name string) string { return name }

// undotted is the name for providers that forbid dots (tools.md §1).
func undotted(name string) string { return strings.ReplaceAll(name, ".", "__") }

// Close aborts what runs and ends all processes: in order while ctx lasts, by
// force then. No call may be made after it.
func (r *Registry) Close(ctx context.Context) {
	r.close.Do(func() {
		r.reloading.Lock() // and no reload follows
		defer r.reloading.Unlock()
		r.unmount(r.all())
		r.stop()
		var wg sync.WaitGroup
		for _, m := range r.all() {
			wg.Go(func() { m.close(ctx) })
		}
		wg.Go(func() { r.jobs.close(ctx) })
		wg.Wait()
		r.retiring.Wait()
		r.supervisor.Close()
	})
}

// mount makes a descriptor's host. What this version cannot run, or not with
// the isolation asked for, is refused.
func mount(d *Descriptor, o Options, s *Supervisor, log *zap.Logger) Host {
	dialect := o.Dialects[d.Protocol]
	pattern, excluded := o.Policy.excludes(d)
	switch {
	case excluded && d.offers():
		f := denied(d.Name, pattern)
		return refuse(d, f.Code, "%s", f.Message)
	case dialect == nil:
		return refuse(d, UnsupportedOp, "protocol %s is not supported by this version", d.Protocol)
	case d.Sandbox != SandboxNone:
		confined, err := s.Sandboxed(d)
		if err != nil {
			return refuse(d, Forbidden, "%v", err)
		}
		s = confined
	}
	return dialect(d, s, log.Named(d.Protocol).With(zap.String("module", d.Name)))
}

// refusal is the host of a module that is known and not run.
type refusal struct {
	manifest *Manifest
	reason   *Fault
}

func refuse(d *Descriptor, code, format string, args ...any) Host {
	h := &refusal{reason: Faultf(code, format, args...)}
	if len(d.Operations) > 0 {
		h.manifest = &Manifest{Operations: d.Operations}
	}
	return h
}

func (h *refusal) Describe(context.Context) (*Manifest, error) { return h.manifest, h.reason }

func (h *refusal) Call(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
	return Failure(h.reason)
}

func (h *refusal) Close(context.Context) {}

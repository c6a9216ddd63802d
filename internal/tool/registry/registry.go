// Package registry knows the daemon's tools and runs them: it loads their
// descriptors, mounts a host for each, finds the operation that a call means,
// checks its arguments, and turns whatever happens into one result that a model
// can read. Jobs, commands that go on in the background, are its own.
//
// A [Registry] holds one [tool.Host] per descriptor, made by one of the dialects
// that main hands in. All child processes are started by its one
// [proc.Supervisor], whatever they speak.
//
// # Concurrency properties
//
// A Registry may be used from any goroutine. The progress function of a call is
// called as package tool says. Every goroutine is waited for by
// [Registry.Close].
//
// # What it refuses to do
//
// It decides nothing of what may be called: that is a [policy.Set]'s. It runs no
// module with less isolation than its descriptor asks for, and one that this
// version cannot run is known and refused.
package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

// Options configure a Registry. The zero value has no tools.
type Options struct {
	// Dirs are read for descriptors, *.json, in this order; a missing one holds
	// none.
	Dirs []string
	// Descriptors come before those of Dirs; they are made by ParseDescriptor.
	Descriptors []*tool.Descriptor
	// ConfigDir has the user's mcp.json, and what the user trusts of projects. Empty:
	// there are only the servers that sessions bring.
	ConfigDir string
	// Workdir is where tools run unless their descriptor or the call says otherwise.
	// Empty: the daemon's own.
	Workdir string
	// WorkdirNamed says that the user has named Workdir, and so trusts it: programs of
	// descriptors start there.
	WorkdirNamed bool
	// Neutral is the empty folder in which programs start that are not to find a
	// session's around them; it is made. Empty: the folder /.
	Neutral string
	// OutputDir keeps results that are too long for a model. Empty: a directory
	// of the system's temporary one.
	OutputDir string
	// MaxText and MaxLines bound the text of a result that a model gets. Zero:
	// 50 KiB and 2000.
	MaxText, MaxLines int
	// Dialects has a factory for each protocol that is spoken.
	Dialects map[string]tool.Dialect
	// Environ is the daemon's environment. Nil: the process's.
	Environ []string
	// Helper is a program whose main calls [Helper] first: the daemon's own.
	// Empty: nothing ends the tools of a daemon that is killed, and a tool that
	// asks for a sandbox is refused.
	Helper string
	// Left is what a former program of this process has left. Nil: nothing.
	Left *proc.Left
	// CacheDir has the caches of sandboxed tools, one for each folder. Empty: they have
	// none.
	CacheDir string
	// Hidden is what no sandboxed tool can read.
	Hidden proc.Hidden
	// Offline has no sandboxed tool use the network.
	Offline bool
	// Policy returns the rules of now on what may be called. Nil: there are none.
	Policy func() *policy.Set
	// Changed is told the name of each MCP server that has said by itself that it has
	// other tools now. It may be called from any goroutine, and nil.
	Changed func(server string)
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
	o            Options
	log          *zap.Logger
	home         string // of the user, as far as the environment says
	supervisor   *proc.Supervisor
	keep         keeper
	jobs         *jobs
	processLimit *worker.ProcessLimit
	ctx          context.Context
	stop         context.CancelCauseFunc

	groups    groups
	warm      sync.Once
	reloading sync.Mutex
	modules   atomic.Pointer[[]*module] // sorted by name; replaced, never changed
	errs      []error                   // of the last reload
	retiring  sync.WaitGroup
	close     sync.Once
}

// errStopping is the cause of a call's end when the registry is closed.
var errStopping = errors.New("the daemon is stopping")

// New loads all descriptors, and leaves the user's mcp.json to [Registry.Warm]. It starts no tool
// and does not fail: a descriptor that cannot be used is left out and reported by
// [Registry.Errors]. The registry must be closed.
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
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if abs, err := filepath.Abs(o.Workdir); err == nil {
		o.Workdir = abs
	}
	ctx, stop := context.WithCancelCause(context.Background())
	r := &Registry{
		o: o, log: o.Logger, supervisor: proc.TakeOver(o.Helper, o.Left, o.Logger), ctx: ctx, stop: stop,
		keep: newKeeper(o.OutputDir, o.MaxText, o.MaxLines), processLimit: worker.NewProcessLimit(maxLiving),
	}
	for _, v := range o.Environ {
		if home, ok := strings.CutPrefix(v, "HOME="); ok {
			r.home = home
		}
	}
	r.supervisor.Hide(o.Hidden)
	r.supervisor.StartIn(o.Neutral)
	if o.CacheDir != "" {
		if err := r.supervisor.KeepCaches(o.CacheDir); err != nil {
			r.log.Warn("tools in the sandbox have no cache", zap.Error(err))
		}
	}
	if o.Offline {
		r.supervisor.CloseNetwork()
	}
	r.groups.of = map[string]*group{}
	r.jobs = newJobs(r.keep.files, r.supervisor)
	r.modules.Store(&[]*module{})
	r.reload(false)
	return r
}

func (r *Registry) all() []*module { return *r.modules.Load() }

// Start starts a program of the user's that is no tool, with the same care. It may
// be called until Close is.
func (r *Registry) Start(ctx context.Context, c proc.Command) (*proc.Process, error) {
	return r.supervisor.Start(ctx, c)
}

// Claim returns a process that a former program has left; EndUnclaimed ends the others.
func (r *Registry) Claim(k proc.Kept) (*proc.Process, error) { return r.supervisor.Claim(k) }

// EndUnclaimed ends those of the processes that nobody has claimed.
func (r *Registry) EndUnclaimed(left []proc.Kept) { r.supervisor.EndUnclaimed(left) }

// Leave, Exec and EndKept are the [proc.Supervisor]'s, once Close has returned.
func (r *Registry) Leave(children []proc.Kept) *proc.Left { return r.supervisor.Leave(children) }

// Exec has another program take this one's place.
func (r *Registry) Exec(left *proc.Left, path string, args, env []string) error {
	return r.supervisor.Exec(left, path, args, env)
}

// EndKept ends the processes that were kept, where no other program is executed.
func (r *Registry) EndKept() { r.supervisor.EndKept() }

// StartConfined is Start in a sandbox, with what of the daemon's environment tools get,
// and then the command's own.
func (r *Registry) StartConfined(ctx context.Context, box proc.Sandbox, c proc.Command) (*proc.Process, error) {
	view, err := r.supervisor.Sandboxed(box)
	if err != nil {
		return nil, err
	}
	c.Env = append(tool.Environ(r.o.Environ), c.Env...)
	return view.Start(ctx, c)
}

// Errors returns why descriptors were left out, one error each.
func (r *Registry) Errors() []error {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	return slices.Clone(r.errs)
}

// Ignored names the fields of descriptors that do nothing, with their files.
func (r *Registry) Ignored() (list []string) {
	for _, m := range r.all() {
		for _, what := range m.desc.Ignored {
			list = append(list, "tool descriptor "+m.desc.File+": "+what)
		}
	}
	return list
}

// Unused returns the rules that no tool fits, as [tool.Unused] has it.
func (r *Registry) Unused() []policy.Rule {
	var all []*tool.Descriptor
	for _, m := range r.all() {
		all = append(all, m.desc)
	}
	return tool.Unused(r.rules(), all)
}

// List returns every operation that is seen from there, sorted by name. A module that has not said yet
// what it can do is asked, all of them at once, within their own deadlines; one
// that failed is left alone for a while. Such a module is one unhealthy entry
// with the module's name. When ctx ends first, those not heard of yet are
// unhealthy too.
func (r *Registry) List(ctx context.Context, from model.Scope) []model.ToolInfo {
	modules := r.seen(from)
	lists, rules := make([][]model.ToolInfo, len(modules)), r.rules()
	var wg sync.WaitGroup
	for i, m := range modules {
		if m.desc.Offers() {
			wg.Go(func() { lists[i] = m.list(ctx, rules) })
		}
	}
	wg.Wait()
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b model.ToolInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Try has List include modules that are known without a process, too, whether one can be
// started. It blocks until that is known, or ctx ends.
func (r *Registry) Try(ctx context.Context, from model.Scope) {
	for _, m := range r.seen(from) {
		m.try(ctx)
	}
}

// Has reports whether Call knows a name: that of an operation, of a module that
// cannot say now what it has, or one that the policy denies or that is not trusted. It
// asks no module that the name cannot belong to.
func (r *Registry) Has(ctx context.Context, from model.Scope, name string) bool {
	if _, denies := r.rules().Denies(name); denies {
		return true
	}
	for m, spell := range meaning(r.seen(from), name) {
		if m.has(ctx, name, spell) {
			return true
		}
	}
	return r.unmountedServer(from, name) != nil
}

// TellJobEnds has tell called, from any goroutine, with each job that has ended, and the
// session that it is of.
func (r *Registry) TellJobEnds(tell func(session string, ended model.Job)) { r.jobs.tell.Store(&tell) }

// Close aborts what runs and ends all processes: in order while ctx lasts, by
// force then. No call may be made after it.
func (r *Registry) Close(ctx context.Context) {
	r.close.Do(func() {
		r.reloading.Lock() // and no reload follows
		defer r.reloading.Unlock()
		modules := slices.Concat(r.all(), r.closeGroups())
		r.unmount(modules)
		r.stop(errStopping)
		var wg sync.WaitGroup
		for _, m := range modules {
			wg.Go(func() { m.close(ctx) })
		}
		wg.Go(func() { r.jobs.close(ctx) })
		wg.Wait()
		r.retiring.Wait()
		r.supervisor.Close()
	})
}

// excluded is why no operation of a module may be called, so that it need not even
// be started to say which it has; nil where one may.
func excluded(d *tool.Descriptor, o Options) *tool.Fault {
	if o.Policy == nil || !d.Offers() {
		return nil
	}
	decision, excluded := o.Policy().Excludes(d.Name, d.Bare)
	if !excluded {
		return nil
	}
	return denied(d.Name, decision.Pattern)
}

// mount makes a descriptor's host. What this version cannot run, or not with
// the isolation asked for, is refused.
func mount(d *tool.Descriptor, o Options, s *proc.Supervisor, log *zap.Logger) tool.Host {
	dialect := o.Dialects[d.Protocol]
	switch f := excluded(d, o); {
	case f != nil:
		return refuse(d, f.Code, "%s", f.Message)
	case dialect == nil:
		return refuse(d, tool.UnsupportedOp, "protocol %s is not supported by this version", d.Protocol)
	case d.Sandbox != tool.SandboxNone:
		confined, err := d.Confine(s)
		if err != nil {
			return refuse(d, tool.Forbidden, "%v", err)
		}
		s = confined
	}
	return dialect(d, s, log.Named(d.Protocol).With(zap.String("module", d.Name)))
}

// refusal is the host of a module that is known and not run.
type refusal struct {
	manifest *tool.Manifest
	reason   *tool.Fault
}

func refuse(d *tool.Descriptor, code, format string, args ...any) tool.Host {
	h := &refusal{reason: tool.Faultf(code, format, args...)}
	if len(d.Operations) > 0 {
		h.manifest = &tool.Manifest{Operations: d.Operations}
	}
	return h
}

func (h *refusal) Describe(context.Context) (*tool.Manifest, error) { return h.manifest, h.reason }

func (h *refusal) Call(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
	return tool.Failure(h.reason)
}

func (h *refusal) Close(context.Context) {}

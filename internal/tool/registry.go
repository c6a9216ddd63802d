package tool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

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
	// Logger may be nil.
	Logger *zap.Logger
}

// Registry knows the tools and runs them. It satisfies the run loop's Tools.
type Registry struct {
	log        *zap.Logger
	supervisor *Supervisor
	modules    []*module // sorted by name, never changed
	errs       []error
	keep       keeper

	stop  context.CancelFunc
	close sync.Once
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
	if abs, err := filepath.Abs(o.Workdir); err == nil {
		o.Workdir = abs
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Registry{
		log: o.Logger, supervisor: NewSupervisor(), stop: stop,
		keep: newKeeper(o.OutputDir, o.MaxText, o.MaxLines),
	}
	found := slices.Clone(o.Descriptors)
	for _, dir := range o.Dirs {
		found = append(found, r.loadDir(dir, o.Workdir, o.Environ)...)
	}
	byName := make(map[string]*Descriptor)
	for _, d := range found {
		if first := byName[d.Name]; first != nil {
			r.errs = append(r.errs, fmt.Errorf("tool descriptor %s: %w", d.File,
				field("name", "%q is taken by %s", d.Name, origin(first))))
			continue
		}
		byName[d.Name] = d
		r.modules = append(r.modules, newModule(ctx, d, mount(d, o.Dialects, r.supervisor, r.log)))
	}
	slices.SortFunc(r.modules, func(a, b *module) int { return strings.Compare(a.desc.Name, b.desc.Name) })
	return r
}

func origin(d *Descriptor) string {
	if d.File == "" {
		return "a built-in tool"
	}
	return d.File
}

func (r *Registry) loadDir(dir, workdir string, environ []string) []*Descriptor {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !os.IsNotExist(err) {
			r.errs = append(r.errs, fmt.Errorf("read tools directory: %w", err))
		}
		return nil
	}
	var found []*Descriptor
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		d, err := LoadDescriptor(filepath.Join(dir, e.Name()), workdir, environ)
		if err != nil {
			r.errs = append(r.errs, err)
			continue
		}
		found = append(found, d)
	}
	return found
}

// Errors returns why descriptors were left out, one error each.
func (r *Registry) Errors() []error { return slices.Clone(r.errs) }

// List returns every operation, sorted by name. A module that has not said yet
// what it can do is asked, all of them at once, within their own deadlines; one
// that failed is left alone for a while. Such a module is one unhealthy entry
// with the module's name. When ctx ends first, those not heard of yet are
// unhealthy too.
func (r *Registry) List(ctx context.Context) []model.ToolInfo {
	lists := make([][]model.ToolInfo, len(r.modules))
	var wg sync.WaitGroup
	for i, m := range r.modules {
		wg.Go(func() { lists[i] = m.list(ctx) })
	}
	wg.Wait()
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b model.ToolInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
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
	m, op, err := r.resolve(ctx, inv.Name)
	if err != nil {
		return r.keep.bound(Failure(err))
	}
	if inv.Arguments, err = prepareArguments(op.schema, inv.Arguments); err != nil {
		return r.keep.bound(Failure(err))
	}
	if ctx.Err() != nil {
		return Failure(Interrupted(ctx))
	}
	return r.keep.bound(m.host.Call(ctx, op.Name, inv, func(u model.ToolUpdate) {
		if progress != nil {
			progress(tidy(u))
		}
	}))
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

// resolve finds the operation that a name means. Names as List gives them come
// before those with "__"; a module that has not been heard of is asked only
// when the name begins with its own.
func (r *Registry) resolve(ctx context.Context, name string) (*module, *operation, error) {
	var problem error
	for _, spell := range []func(string) string{asIs, undotted} {
		for _, m := range r.modules {
			if !m.mayHave(name, spell) {
				continue
			}
			ops, err := m.operations(ctx, true)
			if ops == nil && err != nil {
				if ctx.Err() != nil {
					return nil, nil, Interrupted(ctx)
				}
				problem = err
				continue
			}
			for _, op := range ops {
				if spell(m.callName(op.Name)) == name {
					if op.problem != nil {
						return nil, nil, op.problem
					}
					return m, op, nil
				}
			}
		}
	}
	if problem != nil {
		return nil, nil, problem
	}
	return nil, nil, Faultf(UnsupportedOp, "there is no tool %q", name)
}

func asIs(name string) string { return name }

// undotted is the name for providers that forbid dots (tools.md §1).
func undotted(name string) string { return strings.ReplaceAll(name, ".", "__") }

// Close aborts what runs and ends all processes: in order while ctx lasts, by
// force then. No call may be made after it.
func (r *Registry) Close(ctx context.Context) {
	r.close.Do(func() {
		r.stop()
		var wg sync.WaitGroup
		for _, m := range r.modules {
			wg.Go(func() { m.close(ctx) })
		}
		wg.Wait()
		r.supervisor.Close()
	})
}

// mount makes a descriptor's host. What this version cannot run, or not with
// the isolation asked for, is refused.
func mount(d *Descriptor, dialects map[string]Dialect, s *Supervisor, log *zap.Logger) Host {
	dialect := dialects[d.Protocol]
	switch {
	case dialect == nil:
		return refuse(d, UnsupportedOp, "protocol %s is not supported by this version", d.Protocol)
	case d.Sandbox != SandboxNone:
		return refuse(d, Forbidden, "sandbox %s is not supported by this version", d.Sandbox)
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

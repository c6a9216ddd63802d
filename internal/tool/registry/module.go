package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

// retireTime is what a module that was changed or removed gets to end in order.
const retireTime = 10 * time.Second

// errUnheard stands for an answer that a List did not wait for.
var errUnheard = errors.New("has not said yet what it can do")

// module is a host with what it has said of itself.
type module struct {
	desc  *tool.Descriptor
	shut  bool      // no operation may be called, and none is known
	host  tool.Host // in the daemon's folder, or the descriptor's own
	mount func(*tool.Descriptor) tool.Host
	// ctx is the registry's, and so is its cause; a question outlives who asked it.
	// life, of which calls are part, ends with it or with the module.
	ctx  context.Context
	life context.Context
	end  context.CancelCauseFunc

	mu       sync.Mutex
	closed   bool
	due      bool           // to be asked soon
	calls    int            // under way
	idle     chan struct{}  // non-nil once no call is let in; closed when the last has ended
	question chan struct{}  // non-nil while the host is asked; closed after
	manifest *tool.Manifest // what ops was made from
	ops      []*operation
	err      error // of the last answer
	retry    worker.Backoff
	late     bool              // the question that is open was waited for in vain
	silent   string            // what its program was like when it said nothing (mark), "" where it did not
	places   map[string]*place // by folder, and what can be read there
	calling  int               // counts calls in them
	leaving  sync.WaitGroup    // of places that are being ended
}

// anyParams stand for those of a module that has not said what it can do.
var anyParams = jsontext.Value(`{"type":"object"}`)

// operation is an Operation with its schema compiled.
type operation struct {
	tool.Operation
	schema  *tool.Schema
	problem error
}

// newModule makes the module of a descriptor. mount makes its host, in a folder.
func newModule(ctx context.Context, d *tool.Descriptor, shut bool, mount func(*tool.Descriptor) tool.Host) *module {
	life, end := context.WithCancelCause(ctx)
	return &module{
		desc: d, shut: shut, host: mount(d), mount: mount, places: map[string]*place{}, ctx: ctx, life: life, end: end,
		retry: worker.Backoff{Base: time.Second, Max: time.Minute},
	}
}

// callName is the name a model sees (tools.md §1).
func (m *module) callName(op string) string {
	if m.desc.Bare {
		return op
	}
	return m.desc.Name + "." + op
}

// mayHave reports whether a name could be one of the module's.
func (m *module) mayHave(name string, spell func(string) string) bool {
	return m.desc.Bare || strings.HasPrefix(name, spell(m.desc.Name+"."))
}

// find returns the operation that a name means. With neither an operation nor
// an error the module has none of that name.
func (m *module) find(ctx context.Context, name string, spell func(string) string) (*operation, error) {
	soon, cancel := m.patience(ctx)
	defer cancel()
	ops, err := m.operations(soon, true)
	if errors.Is(err, errUnheard) && soon.Err() != nil && ctx.Err() == nil {
		err = tool.Faultf(tool.Timeout, "%s has been started, and has not said within %v (its timeout) what it can do",
			m.desc.Name, m.desc.Timeout)
	}
	for _, op := range ops {
		if spell(m.callName(op.Name)) == name {
			return op, nil
		}
	}
	if ops == nil {
		return nil, err
	}
	return nil, nil
}

// patience is ctx for a call that wants to know what the module can do: a server may take
// longer to start than its calls may take.
func (m *module) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := m.host.(tool.Server); ok {
		return context.WithTimeout(ctx, m.desc.Timeout)
	}
	return ctx, func() {}
}

// has reports whether a name is, or may be, that of an operation. A server that was never
// heard is not asked: anyone who calls it waits for it then.
func (m *module) has(ctx context.Context, name string, spell func(string) string) bool {
	if s, ok := m.host.(tool.Server); ok && !s.Known() {
		return true
	}
	ops, err := m.operations(ctx, false)
	return err != nil && ops == nil && !m.desc.Bare ||
		slices.ContainsFunc(ops, func(op *operation) bool { return spell(m.callName(op.Name)) == name })
}

// errRetired is why a module that a reload has taken away takes no call.
var errRetired = errors.New("the module was replaced or removed")

// enter counts a call until leave, unless the module has been retired, which is
// errRetired, or the registry is being closed, a [tool.Fault].
func (m *module) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ctx.Err() != nil:
		return tool.Interrupted(m.ctx)
	case m.idle != nil:
		return errRetired
	}
	m.calls++
	return nil
}

func (m *module) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls--; m.calls == 0 && m.idle != nil {
		close(m.idle)
	}
}

// bind is ctx for what a call has the host do: it ends with the module, too.
func (m *module) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, abort := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(m.life, func() { abort(context.Cause(m.life)) })
	return ctx, func() {
		unbind()
		abort(nil)
	}
}

// bar lets no further call in, and returns what is closed when the last has
// ended.
func (m *module) bar() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle == nil {
		if m.idle = make(chan struct{}); m.calls == 0 {
			close(m.idle)
		}
	}
	return m.idle
}

// retire ends the module once its calls have ended, or the registry has.
func (m *module) retire() {
	select {
	case <-m.bar():
	case <-m.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), retireTime)
	defer cancel()
	m.close(ctx)
}

// operations asks the host, together with all others who ask, and waits as long
// as ctx. Known operations come back even where err says that they cannot be
// called now. A host that failed is asked again only after a while, or at once
// with insist. One that is well is asked right here: its answer is at hand.
func (m *module) operations(ctx context.Context, insist bool) ([]*operation, error) {
	if ops := m.unchanged(ctx); ops != nil {
		return ops, nil
	}
	alone := !insist && m.leftAlone()
	m.mu.Lock()
	if m.question == nil {
		if m.closed {
			defer m.mu.Unlock()
			return nil, tool.Faultf(tool.Aborted, "%v", errStopping)
		}
		if !insist && (alone || m.retry.Wait(time.Now()) > 0) {
			defer m.mu.Unlock()
			return m.ops, m.err
		}
		m.question = make(chan struct{})
		go m.describeAnew() // ends with the host's deadline; close waits for it
	}
	question := m.question
	m.mu.Unlock()

	select {
	case <-question:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.ops, errUnheard
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops, m.err
}

// unchanged returns the operations of a module that was well and is, nil for
// any other.
func (m *module) unchanged(ctx context.Context) []*operation {
	m.mu.Lock()
	known, ops := m.manifest, m.ops
	if m.question != nil || m.err != nil || m.closed {
		known = nil
	}
	m.mu.Unlock()
	if known == nil {
		return nil
	}
	if now, err := m.describe(ctx); err != nil || now != known {
		return nil
	}
	return ops
}

// try has the host start a process where it never has, and waits for that as long as ctx.
func (m *module) try(ctx context.Context) {
	h, ok := m.host.(tool.Tryer)
	if !ok || m.enter() != nil {
		return
	}
	tried := make(chan struct{})
	go func() { // ends with the host's deadline; close waits for it
		defer m.leave()
		defer close(tried)
		h.Try(m.life)
	}()
	select {
	case <-tried:
	case <-ctx.Done():
	}
}

func (m *module) describeAnew() {
	manifest, err := m.describe(m.life)
	silent := m.saidNothing(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case manifest == nil:
		if err == nil {
			err = errUnheard
		}
		m.manifest, m.ops = nil, nil
		m.retry.Fail(time.Now())
	case manifest != m.manifest:
		m.manifest, m.ops = manifest, compile(manifest)
		m.retry.Succeed()
	default:
		m.retry.Succeed()
	}
	m.err, m.silent = err, silent
	close(m.question)
	m.question, m.late = nil, false
}

// saidNothing is the mark of an extension that was waited for in vain, "" where it was not.
// The daemon's own is waited for each time.
func (m *module) saidNothing(err error) string {
	var f *tool.Fault
	if m.desc.Protocol != tool.Gevals || m.desc.Builtin() || !errors.As(err, &f) || f.Code != tool.Timeout {
		return ""
	}
	return m.mark()
}

// leftAlone reports that the module has said nothing, and is as it was then.
func (m *module) leftAlone() bool {
	m.mu.Lock()
	silent := m.silent
	m.mu.Unlock()
	return silent != "" && silent == m.mark()
}

// mark is another one when a file of the module's command line has changed.
func (m *module) mark() string {
	marks := []string{m.desc.Name}
	for i, word := range m.desc.Transport.Command {
		path := word
		if i == 0 {
			path, _ = m.desc.LookPath(word)
		} else if !filepath.IsAbs(word) {
			path = filepath.Join(m.desc.Workdir, word)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			marks = append(marks, fmt.Sprint(path, info.Size(), info.ModTime().UnixNano()))
		}
	}
	return strings.Join(marks, "\n")
}

// forgive has a module asked again that said nothing when it was.
func (m *module) forgive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = ""
}

// isSilent reports that the module has said nothing when it was asked, and is not asked
// again before its files have changed.
func (m *module) isSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent != ""
}

// close aborts calls and questions, and ends the host when they have ended.
func (m *module) close(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	question := m.question
	m.mu.Unlock()
	m.end(errStopping)
	<-m.bar()
	if question != nil {
		<-question
	}
	m.host.Close(ctx)
	m.closePlaces(ctx)
}

func (m *module) describe(ctx context.Context) (manifest *tool.Manifest, err error) {
	defer func() {
		if p := recover(); p != nil {
			manifest, err = nil, fmt.Errorf("describe %s: panic: %v", m.desc.Name, p)
		}
	}()
	return m.host.Describe(ctx)
}

// compile makes each schema ready. An operation whose schema is invalid stays
// known, and says so when it is called.
func compile(manifest *tool.Manifest) []*operation {
	ops := make([]*operation, 0, len(manifest.Operations))
	for _, o := range manifest.Operations {
		op := &operation{Operation: o}
		var err error
		if op.schema, op.Params, err = tool.CompileSchema(o.Params); err != nil {
			op.problem = tool.Faultf(tool.ProtocolError, "params of %s: %v", o.Name, err)
		}
		ops = append(ops, op)
	}
	slices.SortFunc(ops, func(a, b *operation) int { return strings.Compare(a.Name, b.Name) })
	return ops
}

func (m *module) list(ctx context.Context, rules *policy.Set) []model.ToolInfo {
	ops, err := m.offered(ctx)
	if _, ok := m.host.(tool.Server); ok && errors.Is(err, errUnheard) && len(ops) > 0 {
		err = nil // it has others now, which are being read: those of before are better than none
	}
	if len(ops) == 0 {
		if err == nil {
			err = errors.New("has no operations")
		}
		return []model.ToolInfo{m.info(m.desc.Name, m.desc.Description, anyParams, err)}
	}
	infos := make([]model.ToolInfo, 0, len(ops))
	for _, op := range ops {
		problem := err
		if problem == nil {
			problem = op.problem
		}
		name := m.callName(op.Name)
		if d, never := rules.Never(name, m.desc.Name); never {
			problem = denied(name, d.Pattern)
		}
		i := m.info(name, op.Description, op.Params, problem)
		i.ReadOnly = op.ReadOnly
		infos = append(infos, i)
	}
	return infos
}

func (m *module) info(name, description string, params jsontext.Value, problem error) model.ToolInfo {
	i := model.ToolInfo{
		ToolSpec: model.ToolSpec{Name: name, Description: description, Params: []byte(params)},
		Module:   m.desc.Name, Protocol: m.desc.Protocol, Healthy: problem == nil,
		Unheard:   errors.Is(problem, errUnheard),
		Delegates: m.desc.Builtin() && name == tool.Agent,
	}
	if problem != nil {
		i.Problem, i.Silent = problem.Error(), m.isSilent()
	}
	return i
}

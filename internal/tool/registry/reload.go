package registry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"noused/internal/mcpfile"
	"noused/internal/model"
	"noused/internal/tool"
)

// Change is what a reload did: the names of modules, sorted, and an error for
// each descriptor that cannot be used.
type Change struct {
	Added, Changed, Removed []string
	Errors                  []error
}

// Reload reads the descriptors again. What runs goes on: a module that was
// changed or removed ends when its last call has. One whose file has become
// unusable stays as it was. It waits for no process, but a moment for hooks.
func (r *Registry) Reload() Change {
	r.warm.Do(func() {})
	return r.reload(true)
}

// Warm reads the user's mcp.json, once: anyone who needs its servers has it read, and so
// a daemon's start need not wait for that. It blocks until that is done.
func (r *Registry) Warm() { r.warm.Do(func() { r.reload(true) }) }

// reload reads all, or what the way to the first answer needs.
func (r *Registry) reload(servers bool) Change {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	var c Change
	if r.ctx.Err() != nil {
		return c
	}
	old := map[string]*module{}
	for _, m := range r.all() {
		old[m.desc.Name] = m
	}
	r.errs = nil
	var next, gone []*module
	var fresh []*tool.Descriptor
	for _, d := range r.load(old, servers) {
		m := old[d.Name]
		delete(old, d.Name)
		switch {
		case m == nil:
			c.Added = append(c.Added, d.Name)
			fresh = append(fresh, d)
		case m.desc.Same(d) && m.shut == (excluded(d, r.o) != nil):
			m.forgive()
			next = append(next, m)
		default:
			c.Changed = append(c.Changed, d.Name)
			fresh, gone = append(fresh, d), append(gone, m)
		}
	}
	for name, m := range old {
		c.Removed = append(c.Removed, name)
		gone = append(gone, m)
	}
	r.unmount(gone)
	for _, d := range fresh {
		next = append(next, r.mounted(d))
	}
	slices.SortFunc(next, func(a, b *module) int { return strings.Compare(a.desc.Name, b.desc.Name) })
	r.modules.Store(&next)
	r.reconsider()
	for _, m := range gone {
		r.retiring.Go(m.retire)
	}
	for _, names := range [][]string{c.Added, c.Changed, c.Removed} {
		slices.Sort(names)
	}
	c.Errors = slices.Clone(r.errs)
	return c
}

// load reads the descriptors of all directories, one for each name. For a file
// that has become unusable it gives the descriptor that is mounted.
func (r *Registry) load(mounted map[string]*module, servers bool) []*tool.Descriptor {
	found := slices.Clone(r.o.Descriptors)
	for _, dir := range r.o.Dirs {
		found = append(found, r.loadDir(dir, mounted)...)
	}
	if servers {
		found = append(found, r.loadServers(mounted)...)
	}
	// Of two with one name the one that is in use stays.
	slices.SortStableFunc(found, func(a, b *tool.Descriptor) int {
		return cmp.Compare(unmounted(a, mounted), unmounted(b, mounted))
	})
	byName := make(map[string]*tool.Descriptor)
	return slices.DeleteFunc(found, func(d *tool.Descriptor) bool {
		first := byName[d.Name]
		if first == nil {
			byName[d.Name] = d
			return false
		}
		if d.File == r.serversFile() {
			r.errs = append(r.errs, &mcpfile.Error{
				Place: mcpfile.Place{File: d.File}, Server: d.Name,
				Reason: fmt.Sprintf("the name %s is taken by %s: give one of them another name", d.Name, origin(first)),
			})
			return true
		}
		r.errs = append(r.errs, fmt.Errorf("tool descriptor %s: %w", origin(d),
			&tool.FieldError{Field: "name", Reason: fmt.Sprintf("%q is taken by %s", d.Name, origin(first))}))
		return true
	})
}

// unmounted is 0 for a descriptor of a file that a module is mounted from, else
// 1.
func unmounted(d *tool.Descriptor, mounted map[string]*module) int {
	if m := mounted[d.Name]; m != nil && m.desc.File == d.File {
		return 0
	}
	return 1
}

// mounted makes the module of a descriptor and starts nothing.
func (r *Registry) mounted(d *tool.Descriptor) *module {
	m := newModule(r.ctx, d, excluded(d, r.o) != nil, func(d *tool.Descriptor) tool.Host {
		return r.adopt(mount(d, r.o, r.supervisor, r.log), d)
	})
	r.o.Audit.Record(model.AuditEvent{
		Event: "mount:add", Component: "tool", Module: d.Name,
		Data: object("kind", d.Kind, "protocol", d.Protocol, "version", d.Version),
	})
	if hook, ok := m.host.(tool.Invoker); ok && hears(d) {
		r.o.Audit.AddHook(d.Name, func(ctx context.Context, event []byte) error {
			if err := m.enter(); err != nil {
				return err
			}
			defer m.leave()
			ctx, unbind := m.bind(ctx)
			defer unbind()
			_, err := hook.Invoke(ctx, "on_event", event, "")
			return err
		})
		r.o.Audit.Record(model.AuditEvent{Event: "hook:register", Component: "tool", Module: d.Name})
	}
	if d.Protocol == tool.Amplifier { // tools.md §4: health at mount
		r.retiring.Go(func() {
			if _, err := m.operations(r.ctx, false); err != nil && r.ctx.Err() == nil {
				r.log.Warn("module is not healthy", zap.String("module", d.Name), zap.Error(err))
			}
		})
	}
	return m
}

// unmount takes the hooks among the modules out of the audit journal, all of
// them at once.
func (r *Registry) unmount(modules []*module) {
	var hooks sync.WaitGroup
	defer hooks.Wait()
	for _, m := range modules {
		r.o.Audit.Record(model.AuditEvent{Event: "mount:remove", Component: "tool", Module: m.desc.Name})
		if hears(m.desc) {
			hooks.Go(func() { r.o.Audit.RemoveHook(m.desc.Name) })
		}
	}
}

func origin(d *tool.Descriptor) string {
	if d.File == "" {
		return "the built-in tools"
	}
	return d.File
}

func (r *Registry) loadDir(dir string, mounted map[string]*module) []*tool.Descriptor {
	entries, err := os.ReadDir(dir)
	var found []*tool.Descriptor
	if err != nil && !os.IsNotExist(err) {
		r.errs = append(r.errs, fmt.Errorf("read tools directory: %w", err))
		for _, m := range mounted {
			if filepath.Dir(m.desc.File) == filepath.Clean(dir) {
				found = append(found, m.desc)
			}
		}
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		file := filepath.Join(dir, e.Name())
		d, err := tool.LoadDescriptor(file, r.o.Workdir, r.o.Environ)
		if err == nil && r.o.WorkdirNamed {
			d.TrustWorkdir()
		}
		if err == nil {
			found = append(found, d)
			continue
		}
		r.errs = append(r.errs, err)
		for _, m := range mounted {
			if m.desc.File == file {
				found = append(found, m.desc)
			}
		}
	}
	return found
}

package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"noused/internal/model"
	"noused/internal/tool"
)

// Servers are the MCP servers that are seen from there, by name. It blocks for no
// server.
func (r *Registry) Servers(from model.Scope) []model.ServerInfo {
	list := r.broken()
	own := r.all()
	for _, m := range r.seen(from) {
		if m.desc.Protocol == tool.MCP {
			info := m.server(from.Workdir)
			if !slices.Contains(own, m) {
				info.Workdir = from.Workdir
			}
			list = append(list, info)
		}
	}
	for _, g := range r.groupsOf(from) {
		for _, o := range g.out {
			if !slices.ContainsFunc(list, func(i model.ServerInfo) bool { return i.Name == o.Name }) {
				list = append(list, o.ServerInfo)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b model.ServerInfo) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// server is the module as people see it who are in a folder.
func (m *module) server(workdir string) model.ServerInfo {
	m.mu.Lock()
	host, ops, err, said := m.host, len(m.ops), m.err, ""
	var prompts []model.ServerPrompt
	var leftOut []string
	if m.manifest != nil {
		said, prompts, leftOut = m.manifest.Instructions, m.manifest.Prompts, m.manifest.LeftOut
	}
	if p := m.places[workdir]; p != nil {
		host = p.host
	}
	m.mu.Unlock()
	info := model.ServerInfo{
		Name: m.desc.Name, State: model.ServerConfigured, Tools: ops, Instructions: said,
		Prompts: prompts, LeftOut: leftOut,
	}
	switch watched, ok := host.(tool.Watched); {
	case ok:
		info.State, info.Message = watched.Status()
	case err != nil:
		info.State, info.Message = model.ServerFailed, err.Error()
	case ops > 0:
		info.State = model.ServerReady
	}
	if len(leftOut) > 0 && info.Message == "" {
		info.Message = "left out: " + leftOutNames(leftOut) + "; nous mcp get " + info.Name + " says why"
	}
	return info
}

func leftOutNames(leftOut []string) string {
	names := make([]string, len(leftOut))
	for i, why := range leftOut {
		names[i], _, _ = strings.Cut(why, ": ")
	}
	return strings.Join(names, ", ")
}

// prompts are those of the module's server, as far as it was ever heard.
func (m *module) prompts() []model.ServerPrompt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.manifest == nil {
		return nil
	}
	return m.manifest.Prompts
}

// impatient is a context that has ended.
var impatient = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// startDelay is how long after a list the servers are started that have never said what
// they can do: starting many takes the processors that the answer needs.
const startDelay = 50 * time.Millisecond

// offered are the operations for a list. It waits for a module as long as ctx, but not
// at all for an MCP server that would have to be started first (mcp.md §2): that is
// started soon after.
func (m *module) offered(ctx context.Context) ([]*operation, error) {
	if s, ok := m.host.(tool.Server); !ok || s.Known() {
		return m.operations(ctx, false)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.due && m.question == nil && !m.closed {
		m.due = true
		time.AfterFunc(startDelay, func() { // it blocks for nothing, and starts nothing once the module is closed
			_, _ = m.operations(impatient, false)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.due = false
		})
	}
	return m.ops, cmp.Or(m.err, errUnheard)
}

// Ready starts the MCP servers that are seen from there and have never said what they
// can do, all at once, and waits for them, as long as ctx. It returns the names of
// those that have not said it by then; they are waited for once, and named by every
// call. A server that has failed is left alone for a while.
func (r *Registry) Ready(ctx context.Context, from model.Scope) (missing []string) {
	modules := r.seen(from)
	late := make([]bool, len(modules))
	var all sync.WaitGroup
	for i, m := range modules {
		if s, ok := m.host.(tool.Server); ok && !s.Known() {
			all.Go(func() { late[i] = !m.heard(ctx) })
		}
	}
	all.Wait()
	for i, m := range modules {
		if late[i] {
			missing = append(missing, m.desc.Name)
		}
	}
	return missing
}

// heard waits until a module has said what it can do, or why it cannot. False: it
// did not within that time. It is waited for once; one that said nothing in all the time
// that it had is started again, and not waited for.
func (m *module) heard(ctx context.Context) bool {
	m.mu.Lock()
	late := m.late
	var f *tool.Fault
	silent := errors.As(m.err, &f) && f.Code == tool.Timeout
	m.mu.Unlock()
	switch {
	case late:
		return false
	case silent:
		_, _ = m.operations(impatient, false)
		return false
	}
	if _, err := m.operations(ctx, false); !errors.Is(err, errUnheard) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = m.question != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) // who gives up has not waited
	return false
}

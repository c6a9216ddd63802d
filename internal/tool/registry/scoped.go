package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"noused/internal/mcpfile"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool"
)

// maxGroups is how many folders and sessions with servers of their own are kept
// ready.
const maxGroups = 64

// groups are the servers that not all sessions see.
type groups struct {
	mu     sync.Mutex
	of     map[string]*group
	uses   int
	closed bool
}

// group is what a folder's file, or a client, brings to the sessions that see it.
type group struct {
	version string    // of what it was made from
	modules []*module // sorted by name
	out     []unmountedServer
	used    int // the higher, the later
}

// unmountedServer is a server that is known and not mounted, and why.
type unmountedServer struct {
	model.ServerInfo
	fault *tool.Fault
}

// folderKey and sessionKey tell the two kinds of groups apart; no id begins with a
// slash, as each folder does.
func folderKey(from model.Scope) string  { return from.Workdir }
func sessionKey(from model.Scope) string { return "session " + from.SessionID }

// seen are the modules that are there for anyone who asks, those of all sessions first:
// of two with one name the first is meant. It looks at the folder's file, and mounts what
// has changed.
func (r *Registry) seen(from model.Scope) []*module {
	r.Warm()
	r.refresh(from)
	return r.known(from)
}

// known is seen, of what was found last. It does not block.
func (r *Registry) known(from model.Scope) []*module {
	modules := r.all()
	for _, g := range r.groupsOf(from) {
		modules = slices.Clip(modules)
		for _, m := range g.modules {
			if !named(modules, m.desc.Name) {
				modules = append(modules, m)
			}
		}
	}
	return modules
}

func named(modules []*module, name string) bool {
	return slices.ContainsFunc(modules, func(m *module) bool { return m.desc.Name == name })
}

// groupsOf are those that are seen from there, the session's first: its servers are from
// the user's own editor.
func (r *Registry) groupsOf(from model.Scope) (found []*group) {
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	for _, key := range []string{sessionKey(from), folderKey(from)} {
		if g := r.groups.of[key]; g != nil {
			r.groups.uses++
			g.used = r.groups.uses
			found = append(found, g)
		}
	}
	return found
}

// refresh mounts what a session brings, and what its folder's file says now if the
// user trusts that.
func (r *Registry) refresh(from model.Scope) {
	if len(from.Servers) > 0 {
		r.regroup(sessionKey(from), "brought", func() ([]*tool.Descriptor, []unmountedServer) { return r.brought(from) })
	}
	if from.Workdir == "" || r.o.ConfigDir == "" {
		return
	}
	text, err := mcpfile.ReadProject(from.Workdir)
	version := ""
	switch hash := mcpfile.Hash(text); {
	case err != nil:
		version = "error " + err.Error()
	case text == nil:
	default:
		var trusted bool
		trusted, err = mcpfile.Trusted(r.o.ConfigDir, from.Workdir, hash)
		version = fmt.Sprint(hash, trusted, err)
		r.regroup(folderKey(from), version, func() ([]*tool.Descriptor, []unmountedServer) {
			return r.project(from.Workdir, text, trusted, err)
		})
		return
	}
	r.regroup(folderKey(from), version, func() ([]*tool.Descriptor, []unmountedServer) {
		if err == nil {
			return nil, nil
		}
		return nil, []unmountedServer{unusable(mcpfile.ProjectName, from.Workdir, err)}
	})
}

// regroup puts in the place of a group what has another version. What has not
// changed goes on; the rest ends when its last call has.
func (r *Registry) regroup(key, version string, load func() ([]*tool.Descriptor, []unmountedServer)) {
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	old := r.groups.of[key]
	if r.groups.closed || old == nil && version == "" || old != nil && old.version == version {
		return
	}
	next := &group{version: version}
	var descriptors []*tool.Descriptor
	descriptors, next.out = load()
	left := map[string]*module{}
	if old != nil {
		for _, m := range old.modules {
			left[m.desc.Name] = m
		}
	}
	for _, d := range descriptors {
		m := left[d.Name]
		if m != nil && m.desc.Same(d) && m.shut == (excluded(d, r.o) != nil) {
			delete(left, d.Name)
		} else {
			m = r.mounted(d)
		}
		next.modules = append(next.modules, m)
	}
	slices.SortFunc(next.modules, func(a, b *module) int { return strings.Compare(a.desc.Name, b.desc.Name) })
	r.groups.uses++
	next.used = r.groups.uses
	if r.groups.of[key] = next; version == "" {
		delete(r.groups.of, key)
	}
	for _, m := range left {
		r.dismiss(m)
	}
	r.thinGroups()
}

// dismiss ends a module of a group when its last call has ended.
func (r *Registry) dismiss(m *module) {
	r.unmount([]*module{m})
	r.retiring.Go(m.retire)
}

// thinGroups ends what was not used for longest where there is too much. r.groups.mu
// is held.
func (r *Registry) thinGroups() {
	for len(r.groups.of) > maxGroups {
		oldest := ""
		for key, g := range r.groups.of {
			if oldest == "" || g.used < r.groups.of[oldest].used {
				oldest = key
			}
		}
		for _, m := range r.groups.of[oldest].modules {
			r.dismiss(m)
		}
		delete(r.groups.of, oldest)
	}
}

// reconsider has all groups made again when they are used next: variables, rules and
// trust may be others.
func (r *Registry) reconsider() {
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	for _, g := range r.groups.of {
		g.version = "reloaded"
	}
}

// endServers ends those of a session, and waits for that.
func (r *Registry) endServers(ctx context.Context, session string) {
	key := sessionKey(model.Scope{SessionID: session})
	r.groups.mu.Lock()
	g := r.groups.of[key]
	delete(r.groups.of, key)
	r.groups.mu.Unlock()
	if g == nil {
		return
	}
	r.unmount(g.modules)
	var all sync.WaitGroup
	for _, m := range g.modules {
		all.Go(func() { m.close(ctx) })
	}
	all.Wait()
}

// closeGroups lets no group come, and returns the modules there are.
func (r *Registry) closeGroups() (modules []*module) {
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	r.groups.closed = true
	for _, g := range r.groups.of {
		modules = append(modules, g.modules...)
	}
	return modules
}

// brought describes the servers that a client gave to a session.
func (r *Registry) brought(from model.Scope) (found []*tool.Descriptor, out []unmountedServer) {
	for _, s := range from.Servers {
		d, err := tool.ServerDescriptor(clientServer(s), "", from.Workdir, from.Workdir, r.o.Environ)
		if err != nil {
			out = append(out, unusable(s.Name, from.Workdir, err))
			continue
		}
		found = append(found, d)
	}
	return found, out
}

// project describes the servers of a folder's file, or says why they are none.
func (r *Registry) project(workdir string, text []byte, trusted bool, problem error) (found []*tool.Descriptor,
	out []unmountedServer,
) {
	f, err := mcpfile.Parse(mcpfile.Project(workdir), text)
	if err != nil {
		return nil, []unmountedServer{unusable(mcpfile.ProjectName, workdir, err)}
	}
	for _, err := range f.Errors {
		out = append(out, unusable(err.Server, workdir, err))
	}
	for _, s := range f.Servers {
		switch {
		case s.Disabled:
		case problem != nil:
			out = append(out, unusable(s.Name, workdir, problem))
		case !trusted:
			out = append(out, untrusted(s.Name, workdir))
		default:
			if s.Trust == string(policy.TrustAll) { // only the user can say that nothing is asked
				s.Trust = ""
			}
			s.Cwd = cmp.Or(s.Cwd, mcpfile.CwdSession) // trusted are its programs in this folder
			d, err := tool.EntryDescriptor(s, workdir, workdir, r.o.Environ)
			if err != nil {
				out = append(out, unusable(s.Name, workdir, err))
				continue
			}
			found = append(found, d)
		}
	}
	return found, out
}

func clientServer(s model.Server) mcpfile.Server {
	return mcpfile.Server{Name: s.Name, Command: s.Command, Args: s.Args, Env: s.Env, URL: s.URL, Headers: s.Headers}
}

func unusable(name, workdir string, err error) unmountedServer {
	return unmountedServer{
		model.ServerInfo{Name: name, State: model.ServerFailed, Message: err.Error(), Workdir: workdir},
		tool.Faultf(tool.Unreachable, "%v", err),
	}
}

func untrusted(name, workdir string) unmountedServer {
	message := fmt.Sprintf("%s names it; nous mcp trust, in that folder, shows what it runs and asks you",
		mcpfile.Project(workdir))
	return unmountedServer{
		model.ServerInfo{Name: name, State: model.ServerUntrusted, Message: message, Workdir: workdir},
		tool.Faultf(tool.Forbidden, "the server %s is not trusted: %s", name, message),
	}
}

// unmountedServer finds why a name is not known that a server might have had which is not
// mounted.
func (r *Registry) unmountedServer(from model.Scope, name string) error {
	for _, g := range r.groupsOf(from) {
		for _, o := range g.out {
			if strings.HasPrefix(name, o.Name+".") || strings.HasPrefix(name, model.Undotted(o.Name+".")) {
				return o.fault
			}
		}
	}
	return nil
}

// Check says what is wrong with a server that a session is to have; the error begins
// with the field. It reads no file and starts nothing.
func (r *Registry) Check(s model.Server) error {
	server := clientServer(s)
	if err := server.Check(); err != nil {
		return err
	}
	_, err := tool.ServerDescriptor(server, "", "/", "/", r.o.Environ)
	return err
}

// serversFile has the user's own servers.
func (r *Registry) serversFile() string { return filepath.Join(r.o.ConfigDir, mcpfile.Name) }

// loadServers reads the user's own servers. Of an entry that has become unusable it
// gives what is mounted.
func (r *Registry) loadServers(mounted map[string]*module) (found []*tool.Descriptor) {
	if r.o.ConfigDir == "" {
		return nil
	}
	path := r.serversFile()
	keep := func(name string) {
		for _, m := range mounted {
			if m.desc.File == path && (name == "" || m.desc.Name == name) {
				found = append(found, m.desc)
			}
		}
	}
	f, err := mcpfile.Read(path)
	if err != nil {
		r.errs = append(r.errs, err)
		keep("")
		return found
	}
	for _, err := range f.Errors {
		r.errs = append(r.errs, err)
		keep(err.Server)
	}
	for _, s := range f.Servers {
		if s.Disabled {
			continue
		}
		d, err := tool.EntryDescriptor(s, r.o.ConfigDir, r.o.Workdir, r.o.Environ)
		if err != nil {
			r.errs = append(r.errs, err)
			keep(s.Name)
			continue
		}
		found = append(found, d)
	}
	return found
}

// mountsServer reports that an entry of the user's is mounted.
func (r *Registry) mountsServer(name string) bool {
	return slices.ContainsFunc(r.all(), func(m *module) bool {
		return m.desc.Name == name && m.desc.File == r.serversFile()
	})
}

// broken are the user's own servers that are not mounted since their entry is wrong.
func (r *Registry) broken() (list []model.ServerInfo) {
	for _, err := range r.Errors() {
		var entry *mcpfile.Error
		if errors.As(err, &entry) && entry.Server != "" && !r.mountsServer(entry.Server) {
			list = append(list, model.ServerInfo{Name: entry.Server, State: model.ServerFailed, Message: err.Error()})
		}
	}
	return list
}

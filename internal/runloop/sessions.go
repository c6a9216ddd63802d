package runloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (h *Hub) newSession(ctx context.Context, p protocol.NewSessionParams) (protocol.Session, error) {
	servers, err := h.brought(ctx, p.MCPServers)
	if err != nil {
		return protocol.Session{}, err
	}
	created := session.Created{
		SessionID: h.env.NewID("ses-"), Title: p.Title, Workdir: resolved(h.env.Workdir),
		Servers: servers,
	}
	if created.Agent, err = h.agentOf(p.Agent); err != nil {
		return protocol.Session{}, err
	}
	if created.Agent != "" && created.Agent != h.defaultAgent() {
		if _, err := personOf(ctx, protocol.NewSession.Name()+" with agent"); err != nil {
			return protocol.Session{}, err
		}
	}
	if p.Workdir != "" {
		if created.Workdir, err = h.folder(p.Workdir); err != nil {
			return protocol.Session{}, err
		}
	}
	activate := p.Activate == nil || *p.Activate
	return protocol.Session{SessionID: created.SessionID, Active: activate}, h.create(h.fresh(created), activate)
}

// brought are the servers that a client gives to a session. They are programs that
// run as the user, outside of any sandbox: no process that the daemon has started
// may name them.
func (h *Hub) brought(ctx context.Context, given []protocol.MCPServer) (servers []model.Server, err error) {
	if len(given) == 0 {
		return nil, nil
	}
	if _, err := personOf(ctx, protocol.NewSession.Name()+" with mcp_servers"); err != nil {
		return nil, err
	}
	for i, s := range given {
		server := model.Server(s)
		if err := h.env.Tools.Check(server); err != nil {
			return nil, protocol.Errorf(protocol.InvalidPayload, "mcp_servers.%d.%v", i, err)
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// Workdir is the folder that a session lives in. With "" it is that of the active
// session, the daemon's own before there is one.
func (h *Hub) Workdir(ctx context.Context, sessionID, folder string) (string, error) {
	if folder != "" {
		return h.folder(folder)
	}
	if sessionID == "" {
		var err error
		if sessionID, err = h.active(); sessionID == "" || err != nil {
			return h.env.Workdir, err
		}
	}
	info, err := h.sessionInfo(ctx, sessionID)
	switch {
	case gone(err):
		return "", notFound(sessionID)
	case err != nil:
		return "", cannotOpen(err)
	}
	return info.Workdir, nil
}

// folder is a folder that somebody wants a session to live in, without symlinks.
// Its tools may write there: it cannot be among the sessions themselves.
func (h *Hub) folder(path string) (string, error) {
	bad := func(err error) error {
		return protocol.Errorf(protocol.InvalidPayload, "workdir: %.300q: %v", path, reason(err))
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", bad(err)
	}
	info, err := os.Stat(real)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("is %s, want a folder", what(info.Mode()))
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, real, unix.X_OK, unix.AT_EACCESS)
	}
	if err == nil && h.env.Store.Holds(real) {
		err = errors.New("is in the daemon's state folder")
	}
	if err != nil {
		return "", bad(err)
	}
	return real, nil
}

// resolved is a path without symlinks, as far as that can be told.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// switchSession takes only a session that can be opened.
func (h *Hub) switchSession(ctx context.Context, p protocol.SwitchSessionParams) (protocol.Session, error) {
	switch _, err := h.sessionInfo(ctx, p.SessionID); {
	case gone(err):
		return protocol.Session{}, notFound(p.SessionID)
	case err != nil:
		return protocol.Session{}, cannotOpen(err)
	}
	h.choosing.Lock()
	defer h.choosing.Unlock()
	if !h.env.Store.Exists(p.SessionID) { // it was deleted meanwhile
		return protocol.Session{}, notFound(p.SessionID)
	}
	if err := h.env.Store.SetActive(p.SessionID, h.env.Now()); err != nil {
		return protocol.Session{}, &protocol.Error{
			Code:    protocol.SessionError,
			Message: "the active session cannot be changed", Cause: err.Error(),
		}
	}
	return protocol.Session{SessionID: p.SessionID, Active: true}, nil
}

// branchSession copies the path to a leaf, so that either session may be
// changed or deleted without a thought for the other.
func (h *Hub) branchSession(ctx context.Context, p protocol.BranchSessionParams) (protocol.Branch, error) {
	parent, id := p.Parent(), h.env.NewID("ses-")
	activate := p.Activate == nil || *p.Activate
	workdir := ""
	if p.Workdir != "" {
		var err error
		if workdir, err = h.folder(p.Workdir); err != nil {
			return protocol.Branch{}, err
		}
	}
	facts, err := readSession(ctx, h, parent, func(m *machine) ([]session.Record, error) {
		if m.s.ReadOnly != nil { // the branch would lack what is not known
			return nil, cannotOpen(m.s.ReadOnly)
		}
		if m.hosted() {
			return nil, m.unsupported("branch a session")
		}
		chain, ok := m.s.Chain(p.LeafID)
		if !ok {
			return nil, unknownLeaf(m.s.ID, p.LeafID)
		}
		created := session.Created{SessionID: id, Title: m.s.Title, ParentID: parent, Workdir: cmp.Or(workdir, m.workdir())}
		return append(h.fresh(created), copied(m.s, chain)...), nil
	})
	if err != nil {
		return protocol.Branch{}, err
	}
	if err := h.create(facts, activate); err != nil {
		return protocol.Branch{}, err
	}
	h.env.Audit(model.AuditEvent{
		Event: "session:fork", Component: "session", SessionID: id, Data: []byte(`{"parent_id":"` + parent + `"}`),
	})
	return protocol.Branch{SessionID: id, ParentID: parent, Active: activate}, nil
}

// copied are the facts that make a session's chain and settings again.
func copied(s *session.State, chain []*session.Entry) []session.Record {
	var facts []session.Record
	for _, e := range chain {
		facts = append(facts, session.Copy(e))
	}
	add := func(f session.Fact) { facts = append(facts, session.Record{At: s.UpdatedAt, Fact: f}) }
	add(session.ModeSet{Kind: protocol.KindSteer, Mode: s.SteeringMode})
	add(session.ModeSet{Kind: protocol.KindFollowUp, Mode: s.FollowUpMode})
	if s.ToolsChosen {
		add(session.ToolsSet{Tools: s.Tools})
	}
	if s.ApprovalMode == protocol.ApprovalsDeny { // what somebody allowed was allowed there
		add(session.ApprovalModeSet{Mode: s.ApprovalMode})
	}
	choice := s.Model
	if choice.Provider == "" && s.Answered.Provider != "" {
		choice = s.Answered
		choice.Effort = s.Model.Effort
	}
	if choice != (model.Choice{}) {
		add(session.ModelSet{Model: choice})
	}
	for _, key := range slices.Sorted(maps.Keys(s.Repairs)) { // the model would refuse what the chain has once more
		add(session.RequestRepaired{Model: key, Repair: s.Repairs[key]})
	}
	if s.Environment.Text != "" { // the prefix stays, for the provider's cache
		add(s.Environment)
	}
	if s.Deferred.Search != "" {
		add(s.Deferred)
	}
	add(session.Patched{Patch: s.Patched()})
	for _, a := range s.Assets {
		add(session.AssetAdded{Asset: a})
	}
	return facts
}

// workdir is the folder that the session lives in.
func (m *machine) workdir() string { return cmp.Or(m.s.Workdir, m.home) }

// scope is what tools learn of who uses them.
func (m *machine) scope() model.Scope {
	return model.Scope{SessionID: m.s.ID, Workdir: m.workdir(), Servers: m.s.Servers}
}

// scope reads that of a session.
func scope(m *machine) (model.Scope, error) { return m.scope(), nil }

package runloop

import (
	"context"
	"maps"
	"slices"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/queue"
	"noused/internal/session"
)

func (h *Hub) newSession(_ context.Context, p protocol.NewSessionParams) (protocol.Session, error) {
	id := h.env.NewID("ses-")
	return protocol.Session{SessionID: id, Active: true}, h.create(id, h.fresh(id, p.Title, ""))
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
		return protocol.Session{}, &protocol.Error{Code: protocol.SessionError, Message: "the active session cannot be changed", Cause: err.Error()}
	}
	return protocol.Session{SessionID: p.SessionID, Active: true}, nil
}

// branchSession copies the path to a leaf, so that either session may be
// changed or deleted without a thought for the other.
func (h *Hub) branchSession(ctx context.Context, p protocol.BranchSessionParams) (protocol.Branch, error) {
	parent, id := p.Parent(), h.env.NewID("ses-")
	facts, err := look(ctx, h, parent, func(m *machine) ([]session.Record, error) {
		chain, ok := m.s.Chain(p.LeafID)
		if !ok {
			return nil, unknownLeaf(m.s.ID, p.LeafID)
		}
		return append(h.fresh(id, m.s.Title, parent), copied(m.s, chain)...), nil
	})
	if err != nil {
		return protocol.Branch{}, err
	}
	if err := h.create(id, facts); err != nil {
		return protocol.Branch{}, err
	}
	h.env.Audit(model.AuditEvent{
		Event: "session:fork", Component: "session", SessionID: id, Data: []byte(`{"parent_id":"` + parent + `"}`),
	})
	return protocol.Branch{SessionID: id, ParentID: parent, Active: true}, nil
}

// copied are the facts that make a session's chain and settings again.
func copied(s *session.State, chain []*session.Entry) []session.Record {
	var facts []session.Record
	for _, e := range chain {
		if e.Compaction != nil {
			facts = append(facts, session.Record{At: e.CreatedAt, Fact: *e.Compaction})
			continue
		}
		facts = append(facts, session.Record{At: e.CreatedAt, Fact: e.MessageAdded})
	}
	add := func(f session.Fact) { facts = append(facts, session.Record{At: s.UpdatedAt, Fact: f}) }
	add(session.ModeSet{Kind: string(queue.Steer), Mode: s.SteeringMode})
	add(session.ModeSet{Kind: string(queue.FollowUp), Mode: s.FollowUpMode})
	if s.ToolsChosen {
		add(session.ToolsSet{Tools: s.Tools})
	}
	if s.Model != (model.Choice{}) {
		add(session.ModelSet{Model: s.Model})
	}
	for _, key := range slices.Sorted(maps.Keys(s.Repairs)) { // the model would refuse what the chain has once more
		add(session.RequestRepaired{Model: key, Repair: s.Repairs[key]})
	}
	if s.Environment != (session.EnvironmentTaken{}) { // the prefix stays, for the provider's cache
		add(s.Environment)
	}
	add(session.Patched{Patch: s.Patched()})
	for _, a := range s.Assets {
		add(session.AssetAdded{Asset: a})
	}
	return facts
}

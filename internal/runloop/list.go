package runloop

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// listReaders is how many journals one list_sessions reads at a time.
const listReaders = 2

// listSessions answers at once where every session is open or known; else when the
// journals of the others have been read.
func (h *Hub) listSessions(_ context.Context, p protocol.ListSessionsParams) (a protocol.Answer[protocol.Sessions],
	err error,
) {
	limit := 50
	if p.Limit != nil {
		limit = *p.Limit
	}
	ids, err := h.env.Store.IDs()
	if err != nil {
		return a, err
	}
	if p.Before != "" {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id >= p.Before })
	}
	l := listing{hub: h, limit: limit, ids: ids}
	if p.Workdir != "" {
		l.workdir, l.home = resolved(p.Workdir), resolved(h.env.Workdir)
	}
	if a.Reply, err = l.list(h.known); err == nil {
		return a, nil
	}
	a.Later = func(ctx context.Context) (protocol.Sessions, error) { return l.read(ctx) }
	return a, nil
}

// listing is a list of sessions that is being made.
type listing struct {
	hub     *Hub
	limit   int
	ids     []string
	workdir string // the only one, if any, without symlinks
	home    string // the daemon's, without symlinks
}

// elsewhere reports that a session lives in a folder that is not asked for.
func (l listing) elsewhere(info protocol.SessionInfo) bool {
	at := info.Workdir
	if at == l.hub.env.Workdir {
		at = l.home
	}
	return l.workdir != "" && at != l.workdir
}

// errUnread says that a session's journal has to be read first, errElsewhere that the
// session lives in another folder.
var (
	errUnread    = errors.New("not read yet")
	errElsewhere = errors.New("not of this folder")
)

// list asks about the sessions one after the other, until there are enough.
// Those that are gone or cannot be read are passed over.
func (l listing) list(about func(id string) (protocol.SessionInfo, error)) (protocol.Sessions, error) {
	out := protocol.Sessions{Sessions: make([]protocol.SessionInfo, 0, min(l.limit, len(l.ids)))}
	out.ActiveSessionID, _ = l.hub.env.Store.Active()
	for _, id := range l.ids {
		if len(out.Sessions) == l.limit {
			break
		}
		info, err := about(id)
		switch {
		case errors.Is(err, errUnread):
			return out, err
		case errors.Is(err, errElsewhere), err == nil && l.elsewhere(info):
		case err == nil:
			out.Sessions = append(out.Sessions, info)
		case !gone(err):
			l.hub.env.Fault(id, err)
		}
	}
	return out, nil
}

// read reads the journals that it takes, a few at a time, and lists then. It begins
// with the first and reads no further than there are enough.
func (l listing) read(ctx context.Context) (protocol.Sessions, error) {
	errs := make([]error, len(l.ids))
	if l.workdir == "" {
		errs = errs[:min(l.limit, len(l.ids))]
	}
	var next, found atomic.Int64
	var readers sync.WaitGroup
	for range listReaders {
		readers.Go(func() {
			for found.Load() < int64(l.limit) {
				i := next.Add(1) - 1
				if i >= int64(len(errs)) {
					return
				}
				info, err := l.hub.sessionInfo(ctx, l.ids[i])
				switch {
				case err != nil:
					errs[i] = err
				case l.elsewhere(info):
					errs[i] = errElsewhere
				default:
					found.Add(1)
				}
			}
		})
	}
	readers.Wait()
	if ctx.Err() != nil {
		return protocol.Sessions{}, context.Cause(ctx)
	}
	next.Store(0)
	return l.list(func(id string) (protocol.SessionInfo, error) {
		if i := next.Add(1) - 1; i < int64(len(errs)) && errs[i] != nil {
			return protocol.SessionInfo{}, errs[i]
		}
		return l.hub.sessionInfo(ctx, id)
	})
}

// sessionInfo reports a session, reading its journal where it is neither open
// nor known.
func (h *Hub) sessionInfo(ctx context.Context, id string) (protocol.SessionInfo, error) {
	info, err := h.known(id)
	if errors.Is(err, errUnread) {
		var s session.Summary
		s, err = h.env.Store.Summary(ctx, id)
		info = h.summaryInfo(s)
	}
	return info, err
}

// Known is what is known of a session without reading anything; false: nothing.
func (h *Hub) Known(id string) (protocol.SessionInfo, bool) {
	info, err := h.known(id)
	return info, err == nil
}

// known is what an open session has announced last, or what is known of a closed
// one; else errUnread. It waits for nobody's disk.
func (h *Hub) known(id string) (protocol.SessionInfo, error) {
	var l *loop
	if h.readLifecycle(func(s *lifecycle) { l = s.open(id) }); l != nil {
		return *l.shown.Load(), nil
	}
	if s, ok := h.env.Store.Known(id); ok {
		return h.summaryInfo(s), nil
	}
	return protocol.SessionInfo{}, errUnread
}

// summaryInfo is a closed session in a list.
func (h *Hub) summaryInfo(s session.Summary) protocol.SessionInfo {
	state, waits := protocol.StateIdle, protocol.Wait("")
	if s.Running && !s.ReadOnly {
		state = protocol.StateRunning
	}
	if s.Waiting && !s.ReadOnly {
		waits = protocol.WaitApproval
	}
	answers := chosen(s.Model, s.Answered, h.env.own())
	if s.Agent != "" {
		answers = model.Choice{Provider: s.Agent}
	}
	return protocol.SessionInfo{
		SessionID: s.ID, Title: s.Title, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
		Messages: s.Messages, RunState: state, ParentID: s.ParentID, Usage: *wireUsage(&s.Usage),
		Workdir: cmp.Or(s.Workdir, h.env.Workdir), LastStopReason: s.LastStop, Unread: s.Unread, LastText: s.Said,
		WaitingFor: waits, Agent: agentName(s.Agent), Parent: wireParent(s.Parent),
		Model: wireModel(answers, h.env.own()),
	}
}

// info is an open session in a list. It costs the same however long the session
// is.
func (m *machine) info() protocol.SessionInfo {
	s := m.s
	info := protocol.SessionInfo{
		SessionID: s.ID, Title: s.Title, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
		Messages: s.Messages, RunState: m.runState(), ParentID: s.ParentID, Usage: *wireUsage(&s.Usage),
		Workdir: m.workdir(), LastStopReason: s.LastRun.StopReason, Unread: s.Unread, LastText: s.Said,
		Model: wireModel(m.model(), m.ownModel()), Agent: agentName(s.Agent), Parent: wireParent(s.Parent),
	}
	if s.Run == nil {
		return info
	}
	if s.Run.Question.Open() {
		info.WaitingFor = protocol.WaitApproval
	}
	if m.phase == modelless {
		info.WaitingFor = protocol.WaitModel
	}
	info.Working = &protocol.Working{RunID: s.Run.ID, StartedAt: s.Run.Began.UTC(), Since: m.since.UTC()}
	switch m.phase {
	case calling:
		info.Working.ToolName = m.call.Name
	case streaming:
		info.LastText = cmp.Or(session.LastLine(m.msg.text.String()), info.LastText)
	}
	return info
}

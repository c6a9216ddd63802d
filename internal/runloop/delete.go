package runloop

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"noused/internal/protocol"
	"noused/internal/session"
)

// deleteIn ends the loop of a session that is to be deleted, unless something
// is going on in it, or it has children that exist. Its reply is the last thing
// the loop does.
type deleteIn struct {
	ticket ticket
	there  func(child string) bool
}

func (in deleteIn) step(m *machine) {
	switch {
	case m.s.Run != nil:
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s is running %s", m.s.ID, m.s.Run.ID))
	case m.phase == compacting:
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s is being compacted", m.s.ID))
	case m.phase == rewinding:
		m.refuse(in.ticket, protocol.Rejectf(protocol.Busy, "session %s is being rewound", m.s.ID))
	case slices.ContainsFunc(m.s.Children, in.there):
		m.refuse(in.ticket, hasChildren(m.s.ID))
	default:
		m.deleted = true
		m.reply(in.ticket, nil)
	}
}

func hasChildren(id string) *protocol.Error {
	return protocol.Rejectf(protocol.HasChildren,
		"session %s has child sessions: nous delete --children deletes them with it", id)
}

// deleteSession closes a session and removes it from the disk. The session's own
// loop says whether nothing is going on in it, and takes no input after that;
// anyone who asks for the session meanwhile waits, and is told that there is none.
func (h *Hub) deleteSession(ctx context.Context, p protocol.DeleteSessionParams) (protocol.SessionDeleted, error) {
	id := p.SessionID
	if err := h.unwanted(ctx, id); err != nil {
		return protocol.SessionDeleted{}, err
	}
	for {
		if err := h.deleteChildren(ctx, p); err != nil {
			return protocol.SessionDeleted{}, err
		}
		err := h.deleteAlone(ctx, id)
		if err == nil {
			return protocol.SessionDeleted{SessionID: id}, nil
		}
		h.openAgain(ctx, id)
		var wire *protocol.Error
		if !errors.As(err, &wire) || wire.Reason() != protocol.HasChildren { // else one was made meanwhile
			return protocol.SessionDeleted{}, err
		}
	}
}

// openAgain has a session that was closed to be deleted, and is not, look after its children again.
func (h *Hub) openAgain(ctx context.Context, id string) {
	if _, release, err := h.acquire(context.WithoutCancel(ctx), id); err == nil {
		release()
	}
}

// deleteChildren deletes a session's children, and theirs, or says that it has some.
func (h *Hub) deleteChildren(ctx context.Context, p protocol.DeleteSessionParams) error {
	children, err := h.childrenOf(ctx, p.SessionID)
	switch {
	case err != nil:
		return err
	case len(children) > 0 && !p.Children:
		return hasChildren(p.SessionID)
	}
	for _, child := range children {
		_, err := h.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: child, Children: true})
		if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// deleteAlone deletes a session that has no children.
func (h *Hub) deleteAlone(ctx context.Context, id string) error {
	l, unclaim, err := h.claim(ctx, id)
	if err != nil {
		return err
	}
	defer unclaim()
	if err := l.finish(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if slices.ContainsFunc(l.m.s.Children, h.env.Store.Exists) { // one was being made until the loop had ended
		return hasChildren(id)
	}
	switch err := h.erase(ctx, id); {
	case errors.Is(err, session.ErrNotFound): // somebody else took the file away
		return notFound(id)
	case err != nil:
		return &protocol.Error{
			Code:    protocol.SessionError,
			Message: "the session cannot be deleted", Cause: err.Error(),
		}
	}
	h.env.forest.forget(id)
	return nil
}

// unwanted says why a session cannot be deleted as its parent waits for it: else the next daemon
// would make it again, and have its work done once more.
func (h *Hub) unwanted(ctx context.Context, id string) error {
	parent, err := readSession(ctx, h, id, func(m *machine) (*session.Parent, error) { return m.s.Parent, nil })
	if err != nil || parent == nil || !h.env.Store.Exists(parent.SessionID) {
		return err
	}
	_, err = h.request(ctx, parent.SessionID, func(t ticket) input { return unwantIn{t, id} })
	if lost(err) {
		return nil
	}
	return err
}

// unwantIn asks whether a session has all that it wants of a child. A yes is on the disk: a power cut would have the
// child made again.
type unwantIn struct {
	ticket ticket
	child  string
}

func (in unwantIn) step(m *machine) {
	if m.works(in.child) {
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s waits for its child session %s", m.s.ID,
			in.child))
		return
	}
	m.out.vouched = true
	m.reply(in.ticket, nil)
}

// childrenOf are the child sessions of a session that are there.
func (h *Hub) childrenOf(ctx context.Context, id string) ([]string, error) {
	children, err := readSession(ctx, h, id, func(m *machine) ([]string, error) {
		there := slices.DeleteFunc(slices.Clone(m.s.Children), func(id string) bool { return !h.env.Store.Exists(id) })
		if len(there) > 0 && m.s.Run != nil {
			return nil, runInProgress(m.s.ID, m.s.Run.ID)
		}
		return there, nil
	})
	return children, err
}

// claim returns the loop of a session, and sees to it that nobody opens the
// session again after that loop's end before unclaim is called.
func (h *Hub) claim(ctx context.Context, id string) (l *loop, unclaim func(), err error) {
	for {
		l, release, err := h.acquire(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		var others chan struct{}
		if h.update(func(s *lifecycle) { others = s.claim(id) }); others == nil {
			return l, func() {
				release()
				h.unclaim(l)
			}, nil
		}
		release()
		if err := waited(ctx, others); err != nil {
			return nil, nil, err
		}
	}
}

func (h *Hub) unclaim(l *loop) {
	deleted := l.hasEnded() && l.failure == nil
	if deleted {
		h.env.forest.release(l.id)
	}
	h.update(func(s *lifecycle) {
		if deleted {
			if s.loops[l.id] == l {
				delete(s.loops, l.id)
			}
			delete(s.repairs, l.id)
		}
		s.release(l.id)
	})
}

// finish has the loop end for good, or tells why it may not.
func (l *loop) finish(ctx context.Context) error {
	c := newCall()
	err := l.post(ctx, deleteIn{c, l.env.Store.Exists})
	if err == nil {
		_, err = l.await(ctx, c.reply)
	}
	switch {
	case errors.Is(err, errStopped) && l.failure != nil:
		return l.failure
	case errors.Is(err, errStopped):
		return shuttingDown()
	case err != nil:
		return err
	}
	<-l.done
	return nil
}

// gone reports that a session was deleted while somebody looked at it.
func gone(err error) bool {
	var wire *protocol.Error
	return errors.Is(err, session.ErrNotFound) || errors.As(err, &wire) && wire.Code == protocol.SessionNotFound
}

// lost reports that nobody can open a session any more: it is gone, or its journal is damaged.
func lost(err error) bool {
	return gone(err) || errors.As(err, new(openError)) && !errors.As(err, new(syscall.Errno))
}

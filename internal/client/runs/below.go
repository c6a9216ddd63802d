package runs

import (
	"errors"
	"slices"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

const maxAbove = 32 // sessions above one; the daemon has 8 at most

// IsBelow reports that a session is the other one, or a child of it, or of one of these.
func IsBelow(id, of string, stateOf func(id string) (protocol.State, error)) (bool, error) {
	for range maxAbove {
		if id == of {
			return true, nil
		}
		state, err := stateOf(id)
		var wire *protocol.Error
		switch {
		case errors.As(err, &wire) && wire.Code == protocol.SessionNotFound, err == nil && state.Parent == nil:
			return false, nil
		case err != nil:
			return false, err
		}
		id = state.Parent.SessionID
	}
	return false, nil
}

// seeOther takes what another run says about the approvals of sessions below this run's: the
// run waits for them, too.
func (w *Watch) seeOther(line follow.Line) {
	switch ev := line.Event.Event.(type) {
	case protocol.Status:
		switch {
		case ev.Code == protocol.StatusApprovalRequested && ev.Approval != nil:
			below, err := w.isChilds(ev.SessionID, ev.Approval.SessionPath)
			w.Doubt = w.Doubt || err != nil // the state says it again
			if !below {
				return
			}
		case ev.Code != protocol.StatusApprovalResolved || !w.Asks.Knows(ev.ApprovalID):
			return
		}
		w.Tally.View.Event(ev, line.Raw)
		w.Asks.See(ev)
	case protocol.AgentEnd:
		w.Asks.See(ev)
	}
}

// isChilds reports a session below the run's; path are the titles from its root down to it.
func (w *Watch) isChilds(id string, path []string) (bool, error) {
	if len(path) < 2 {
		return false, nil
	}
	return IsBelow(id, w.Session, w.stateOf)
}

func (w *Watch) stateOf(id string) (protocol.State, error) {
	return client.Call(w.Keys.Hard, w.Console.Daemon, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
}

// waitingFor are the approvals that the run waits for, each in full: its own, and those of
// sessions below it.
func (w *Watch) waitingFor(state protocol.State) (list []protocol.Approval, err error) {
	for _, one := range state.PendingApprovals {
		below := one.RunID == w.Run
		if !below && state.RunID == w.Run {
			if below, err = w.isChilds(one.SessionID, one.SessionPath); err != nil {
				return nil, err
			}
		}
		if below && one.Shortened {
			whole, err := w.stateOf(one.SessionID)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(whole.PendingApprovals, func(p protocol.Approval) bool {
				return p.ApprovalID == one.ApprovalID
			})
			if i < 0 {
				continue // answered meanwhile
			}
			one = whole.PendingApprovals[i]
		}
		if below {
			list = append(list, one)
		}
	}
	return list, nil
}

package runloop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"noused/internal/protocol"
	"noused/internal/session"
)

// withdraw takes a text back. Its id is unique, so that no session need be named: the one
// that it waits in runs, and is open.
func (h *Hub) withdraw(ctx context.Context, p protocol.WithdrawParams) (protocol.Withdrawn, error) {
	in := func(t ticket) input { return withdrawIn{t, p.InputID} }
	if p.SessionID != "" {
		return requestAs[protocol.Withdrawn](ctx, h, p.SessionID, in)
	}
	var running []string
	h.readLifecycle(func(s *lifecycle) {
		for _, l := range s.all() {
			if s.open(l.id) == l && !l.evictable() {
				running = append(running, l.id)
			}
		}
	})
	var err error = protocol.Rejectf(protocol.NotPending, "no text %.80q waits in any session", p.InputID)
	for _, id := range running {
		r, wrong := requestAs[protocol.Withdrawn](ctx, h, id, in)
		var wire *protocol.Error
		switch {
		case wrong == nil:
			return r, nil
		case !errors.As(wrong, &wire) || wire.Reason() != protocol.NotPending && wire.Code != protocol.SessionNotFound:
			err = wrong
		}
	}
	return protocol.Withdrawn{}, err
}

type withdrawIn struct {
	ticket  ticket
	inputID string
}

// step takes a text out of the queue. A prompt is none of those: its run has been
// promised.
func (in withdrawIn) step(m *machine) {
	i := slices.IndexFunc(m.s.Pending, func(p session.Input) bool { return p.InputID == in.inputID })
	if i < 0 || m.s.Pending[i].Kind == protocol.KindPrompt {
		m.refuse(in.ticket, protocol.Rejectf(protocol.NotPending, "no text %.80q waits in session %s", in.inputID, m.s.ID))
		return
	}
	if m.cutFor(m.s.Pending[i]) {
		m.refuse(in.ticket, protocol.Rejectf(protocol.NotPending, "%s was stopped for text %.80q, which it is sent next",
			m.s.Agent, in.inputID))
		return
	}
	text := m.s.Pending[i]
	m.record(session.Withdrawn{InputID: text.InputID})
	counts := m.counts()
	m.publish(protocol.Status{
		Ref: m.turnRef(), Code: protocol.StatusInputWithdrawn, Message: fmt.Sprintf("taken back; %d still queued",
			counts.Steer+counts.FollowUp),
		InputID: text.InputID, PendingCounts: &counts,
	})
	m.reply(in.ticket, protocol.Withdrawn{
		Command: "withdraw", InputID: text.InputID, Kind: text.Kind, Text: text.Text,
		SessionID: m.s.ID,
	})
}

// cutFor reports that a hosted agent was stopped for a steer, and nothing else would have it go on: without that
// text the run would be over, and the agent might not even have heard what it is about.
func (m *machine) cutFor(in session.Input) bool {
	run := m.s.Run
	return m.hosted() && in.Kind == protocol.KindSteer && !run.TurnOpen && run.Ended.StopReason == protocol.StopSteered &&
		m.counts().Steer == 1
}

// queued are the texts that wait, in the order in which they will be delivered.
func (m *machine) queued() protocol.QueuedTexts {
	out := protocol.QueuedTexts{Steer: []string{}, FollowUp: []string{}, Inputs: []protocol.QueuedInput{}}
	var later []protocol.QueuedInput
	for _, in := range m.s.Pending {
		waits := protocol.QueuedInput{InputID: in.InputID, Kind: in.Kind, Text: in.Text}
		switch in.Kind {
		case protocol.KindSteer:
			out.Steer, out.Inputs = append(out.Steer, in.Text), append(out.Inputs, waits)
		case protocol.KindFollowUp:
			out.FollowUp, later = append(out.FollowUp, in.Text), append(later, waits)
		}
	}
	out.Inputs = append(out.Inputs, later...)
	return out
}

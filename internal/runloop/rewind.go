package runloop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

type (
	// rewindIn takes back what was done since a message; undoIn puts that back.
	rewindIn struct {
		ticket ticket
		p      protocol.RewindParams
	}
	undoIn struct {
		ticket ticket
		p      protocol.UndoRewindParams
	}
	// plannedIn has what a rewind would do, rewoundIn says that it is done.
	plannedIn struct {
		gen  int
		plan model.RewindPlan
		err  error
	}
	rewoundIn struct {
		gen int
		err error
	}
	// recoveredIn says how one ended that a former daemon had begun.
	recoveredIn struct {
		gen      int
		finished bool
		err      error
	}
)

// rewindWork is a part of a rewind: to plan it, to do it, or to finish what a former
// daemon had begun.
type rewindWork struct {
	workdir string
	steps   []model.ChangeStep
	force   []string
	dry     bool
	begun   session.RewindBegun // with its RewindID set: do that
	recover bool
}

// rewind is one that is under way.
type rewind struct {
	ticket ticket
	fact   session.RewindBegun
	dry    bool
	said   *session.Entry // the message that it takes back; nil: none
	plan   model.RewindPlan
}

// rewindReply is the wire's, with the message whose text it is to have.
type rewindReply struct {
	protocol.Rewound
	said *session.Entry
}

// idleForRewind refuses a rewind where something goes on.
func (m *machine) idleForRewind() *protocol.Error {
	switch {
	case m.draining:
		return protocol.Rejectf(protocol.ShuttingDown, "the daemon is stopping")
	case m.s.Run != nil:
		return protocol.Rejectf(protocol.Busy, "session %s is running %s: rewind when it has ended", m.s.ID, m.s.Run.ID)
	case m.phase != idle:
		return protocol.Rejectf(protocol.Busy, "session %s is being compacted, or rewound", m.s.ID)
	case m.late.gen != 0:
		return protocol.Rejectf(protocol.Busy, "what session %s has changed is still being recorded: try again in a moment",
			m.s.ID)
	}
	return nil
}

func (in rewindIn) step(m *machine) {
	if why := m.idleForRewind(); why != nil {
		m.refuse(in.ticket, why)
		return
	}
	to := m.s.Entry(in.p.To)
	talk := in.p.What != protocol.RewindFiles
	switch {
	case to == nil:
		m.refuse(in.ticket, protocol.Errorf(protocol.SessionError, "to: session %s has no message %.80q", m.s.ID, in.p.To))
		return
	case to.Role != model.User || to.IsCompaction():
		m.refuse(in.ticket, protocol.Errorf(protocol.InvalidPayload, "to: %.80q is no message of the user", in.p.To))
		return
	case talk && m.hosted():
		m.refuse(in.ticket, m.unsupported("go on from an earlier message: rewind the files alone"))
		return
	}
	r := rewind{
		ticket: in.ticket, dry: in.p.DryRun,
		fact: session.RewindBegun{To: in.p.To, What: in.p.What, Was: m.s.Leaf},
	}
	if talk {
		r.fact.Leaf, r.said = to.Parent(), to
	}
	var steps []session.Step
	if in.p.What != protocol.RewindConversation {
		steps, _ = m.s.StepsOf(in.p.To, "") // it is there
	}
	m.planRewind(r, steps, in.p.Force)
}

func (in undoIn) step(m *machine) {
	if why := m.idleForRewind(); why != nil {
		m.refuse(in.ticket, why)
		return
	}
	done, ok := m.s.Rewound(in.p.RewindID)
	switch {
	case !ok && in.p.RewindID == "":
		m.refuse(in.ticket, protocol.Rejectf(protocol.NoSuchRewind, "session %s has no rewind to undo", m.s.ID))
		return
	case !ok:
		m.refuse(in.ticket, protocol.Rejectf(protocol.NoSuchRewind, "rewind_id: session %s has no rewind %.80q", m.s.ID,
			in.p.RewindID))
		return
	case done.Undone:
		m.refuse(in.ticket, protocol.Rejectf(protocol.NoSuchRewind, "rewind_id: rewind %.80q was undone", in.p.RewindID))
		return
	}
	r := rewind{ticket: in.ticket, dry: in.p.DryRun, fact: session.RewindBegun{
		What: done.Rewind.What, Was: m.s.Leaf, Undoes: done.RewindID, Leaf: done.Rewind.Was,
	}}
	if r.fact.What == protocol.RewindFiles {
		r.fact.Leaf = ""
	}
	m.planRewind(r, []session.Step{done}, in.p.Force)
}

func (m *machine) planRewind(r rewind, steps []session.Step, force []string) {
	m.rewind = r
	m.await(rewinding, work{rewind: &rewindWork{workdir: m.workdir(), steps: stepsOf(steps), force: force, dry: r.dry}})
}

func (in plannedIn) step(m *machine) {
	if in.gen != m.gen || m.phase != rewinding {
		return
	}
	r := &m.rewind
	r.plan = in.plan
	if in.err != nil {
		m.endRewind(changesFailed(context.Background(), "the rewind cannot be planned", in.err))
		return
	}
	if r.dry || len(in.plan.Conflicts) > 0 {
		m.endRewind(nil)
		return
	}
	r.fact.RewindID, r.fact.Changes = m.newID("rew-"), in.plan.Changes
	m.record(r.fact)
	m.await(rewinding, work{rewind: &rewindWork{workdir: m.workdir(), begun: r.fact}})
}

func (in rewoundIn) step(m *machine) {
	if in.gen != m.gen || m.phase != rewinding {
		return
	}
	m.record(session.RewindEnded{RewindID: m.rewind.fact.RewindID, TakenBack: in.err != nil})
	if in.err != nil {
		m.endRewind(&protocol.Error{
			Code: protocol.SessionError, Message: "the rewind was not done, and the files are as they were",
			Cause: in.err.Error(),
		})
		return
	}
	m.tellRewind(m.rewind.fact)
	m.endRewind(nil)
}

// tellRewind has every screen show where the session goes on from.
func (m *machine) tellRewind(r session.RewindBegun) {
	if r.What != protocol.RewindFiles {
		m.publish(protocol.Status{
			Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusLeafSet, Message: "the session goes on from " +
				nameOfLeaf(m.s.Leaf),
		})
	}
}

func nameOfLeaf(id string) string {
	if id == "" {
		return "its beginning"
	}
	return id
}

// endRewind answers, and goes on with what waits.
func (m *machine) endRewind(err error) {
	r := m.rewind
	m.rewind = rewind{}
	if err != nil {
		m.refuse(r.ticket, err)
		m.becomeIdle()
		return
	}
	out := rewindReply{said: r.said, Rewound: protocol.Rewound{
		SessionID: m.s.ID, RewindID: r.fact.RewindID, LeafID: m.s.Leaf, Files: []protocol.RewoundFile{},
		Conflicts: []protocol.RewindConflict{},
	}}
	for _, f := range r.plan.Files {
		out.Files = append(out.Files, protocol.RewoundFile(f))
	}
	for _, c := range r.plan.Conflicts {
		out.Conflicts = append(out.Conflicts, protocol.RewindConflict(c))
	}
	if len(out.Conflicts) > 0 {
		out.said = nil
	}
	m.reply(r.ticket, out)
	m.becomeIdle()
}

// recoverRewind takes up a rewind that a former daemon had begun.
func (m *machine) recoverRewind() {
	m.rewind = rewind{fact: *m.s.Rewind}
	m.await(rewinding, work{rewind: &rewindWork{workdir: m.workdir(), begun: *m.s.Rewind, recover: true}})
}

func (in recoveredIn) step(m *machine) {
	if in.gen != m.gen || m.phase != rewinding {
		return
	}
	r := m.rewind.fact
	m.rewind = rewind{}
	done := "was finished"
	if !in.finished {
		done = "was taken back, as files had changed meanwhile"
	}
	if in.err != nil {
		done = fmt.Sprintf("could not be finished: %v", in.err)
	}
	m.record(session.RewindEnded{RewindID: r.RewindID, TakenBack: !in.finished})
	said := fmt.Sprintf("the rewind %s, which was interrupted, %s", r.RewindID, done)
	m.publish(protocol.Status{Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusRewindRecovered, Message: said})
	m.out.faults = append(m.out.faults, errors.New(said))
	if in.finished {
		m.tellRewind(r)
	}
	m.becomeIdle()
}

// doRewind does a part of a rewind.
func (l *loop) doRewind(ctx context.Context, gen int, w rewindWork) {
	var in input
	defer func() {
		if v := recover(); v != nil {
			l.env.Fault(l.id, fmt.Errorf("panic in a rewind: %v\n%s", v, debug.Stack()))
			in = plannedIn{gen: gen, err: errors.New("internal error; the daemon's log has the detail")}
			if w.begun.RewindID != "" {
				in = nil // the next daemon sees to it
			}
		}
		if in != nil {
			_ = l.post(context.Background(), in)
		}
	}()
	c, id := l.env.Changes, w.begun.RewindID
	switch {
	case c == nil && id == "" && len(w.steps) == 0, c == nil && id != "" && w.begun.Changes == "":
		in = plannedIn{gen: gen}
		if id != "" {
			in = rewoundIn{gen: gen}
		}
	case c == nil:
		in = plannedIn{gen: gen, err: noChanges()}
	case id == "":
		plan, err := c.Plan(ctx, l.id, w.workdir, w.steps, w.force, !w.dry)
		in = plannedIn{gen, plan, err}
	case w.recover:
		finished, err := c.Recover(l.id, w.workdir, w.begun.Changes, id)
		in = recoveredIn{gen, finished, err}
	default:
		in = rewoundIn{gen, c.Apply(l.id, w.workdir, w.begun.Changes, id)}
	}
}

func (h *Hub) rewind(ctx context.Context, p protocol.RewindParams) (a protocol.Answer[protocol.Rewound], err error) {
	return h.rewinding(ctx, protocol.Rewind.Name(), p.SessionID, func(t ticket) input { return rewindIn{t, p} })
}

func (h *Hub) undoRewind(ctx context.Context, p protocol.UndoRewindParams) (a protocol.Answer[protocol.Rewound],
	err error,
) {
	return h.rewinding(ctx, protocol.UndoRewind.Name(), p.SessionID, func(t ticket) input { return undoIn{t, p} })
}

func (h *Hub) rewinding(ctx context.Context, command, sessionID string, in func(ticket) input) (
	a protocol.Answer[protocol.Rewound], err error,
) {
	if _, err := personOf(ctx, command); err != nil {
		return a, err
	}
	h.awaitTakenUp(ctx) // a former rewind may be under way
	id, err := h.sessionID(sessionID)
	if err != nil {
		return a, err
	}
	s, err := h.send(ctx, id, in)
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (out protocol.Rewound, err error) {
		r, err := h.first(ctx, id, s)
		if err != nil {
			return out, err
		}
		done := r.value.(rewindReply)
		texts, err := h.env.texts(ctx, id, done.said)
		if err == nil {
			done.Text = texts[0]
		}
		return done.Rewound, nil // the rewind is done, whether its text can be read or not
	}
	return a, nil
}

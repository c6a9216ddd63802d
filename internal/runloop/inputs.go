package runloop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// The commands, as they reach the machine. A ticket may be nil.
type (
	promptIn struct {
		ticket ticket
		p      protocol.PromptParams
		wait   bool
		images []model.Attachment // kept already
		as     *model.NamedAgent  // of p.As
	}
	queueIn struct { // steer and follow_up
		ticket ticket
		kind   protocol.Kind
		p      protocol.SteerParams
		images []model.Attachment // kept already
	}
	abortIn struct {
		ticket ticket
		runID  string
	}
	toolsIn struct {
		ticket ticket
		tools  []string
		count  int
	}
	modeIn struct {
		ticket  ticket
		command string
		kind    protocol.Kind
		mode    protocol.Mode
	}
	modelIn struct {
		ticket ticket
		choice model.Choice
	}
	leafIn struct {
		ticket ticket
		leafID string
	}
	titleIn struct {
		ticket ticket
		title  string
	}
	readIn    struct{ ticket ticket } // mark_read
	compactIn struct {
		ticket      ticket
		instruction string
	}
	// queryIn reads the machine; its reply waits, as all do, until what was
	// decided before it is on the disk. With last set nothing is decided between
	// it and the reply, so that what it read is as of the reply's seq.
	queryIn struct {
		ticket ticket
		read   func(m *machine) (any, error)
		last   bool
	}
)

func (in promptIn) step(m *machine) {
	if m.answeredBefore(in.ticket, in.p.IdempotencyKey, in.wait) {
		return
	}
	run := m.s.Run
	kind := protocol.Kind(in.p.StreamingBehavior)
	switch {
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
	case m.phase == rewinding:
		m.postpone(in.ticket, in)
	case run == nil && m.phase == compacting && in.p.LeafID != "" && in.p.LeafID != m.s.Leaf, run != nil && run.Aborting &&
		kind != "":
		m.postpone(in.ticket, in)
	case in.p.LeafID != "" && m.s.Entry(in.p.LeafID) == nil:
		m.refuse(in.ticket, unknownLeaf(m.s.ID, in.p.LeafID))
	case run != nil && kind == "":
		m.refuse(in.ticket, runInProgress(m.s.ID, run.ID))
	case m.hosted() && in.p.LeafID != "" && in.p.LeafID != m.s.Leaf:
		m.refuse(in.ticket, m.unsupported("go on from an earlier message"))
	case run != nil && !in.terms().IsZero():
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "as, output_schema, max_cost and max_model_calls are "+
			"for the run that a prompt starts, and session %s is running %s", m.s.ID, run.ID))
	case m.hosted() && in.as != nil:
		m.refuse(in.ticket, m.unsupported("make a run as "+in.as.Name))
	case run != nil && in.p.LeafID != "" && in.p.LeafID != m.s.Leaf:
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "leaf_id: run %s of session %s has another leaf", run.ID,
			m.s.ID))
	case run != nil:
		before := m.waiters
		m.waitIf(in.wait, in.ticket)
		if !m.enqueue(in.ticket, kind, protocol.Prompt.Name(), in.p.Text, in.p.IdempotencyKey, in.images) {
			m.waiters = before
		}
	case m.missingFor(in.as) != nil:
		m.refuse(in.ticket, noModel(m.missingFor(in.as)))
	case m.agentMissing() != nil:
		m.refuse(in.ticket, m.agentMissing())
	default:
		if in.p.LeafID != "" && in.p.LeafID != m.s.Leaf {
			m.record(session.LeafSet{LeafID: in.p.LeafID})
		}
		m.waitIf(in.wait, in.ticket)
		runID := m.beginRun(in.ticket, session.Input{
			Command: protocol.Prompt.Name(), Text: in.p.Text, Key: in.p.IdempotencyKey, Attachments: in.images,
			Approvals: in.p.Approvals, Terms: in.terms(),
		})
		if in.wait {
			m.out.captures = append(m.out.captures, capturing{in.ticket, runID})
		}
	}
}

func (in queueIn) step(m *machine) {
	command := string(in.kind)
	if m.answeredBefore(in.ticket, in.p.IdempotencyKey, false) {
		return
	}
	run, orPrompt := m.s.Run, in.p.IfIdle == protocol.KindPrompt
	switch {
	case m.phase == rewinding && orPrompt:
		m.postpone(in.ticket, in)
	case run != nil && !run.Aborting:
		m.enqueue(in.ticket, in.kind, command, in.p.Text, in.p.IdempotencyKey, in.images)
	case !orPrompt && run != nil:
		m.refuse(in.ticket, protocol.Rejectf(protocol.NoActiveRun, "run %s of session %s is being aborted", run.ID, m.s.ID))
	case !orPrompt:
		m.refuse(in.ticket, noActiveRun(m.s.ID))
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
	case run != nil:
		m.postpone(in.ticket, in)
	case m.modelMissing() != nil:
		m.refuse(in.ticket, noModel(m.modelMissing()))
	case m.agentMissing() != nil:
		m.refuse(in.ticket, m.agentMissing())
	default:
		m.beginRun(in.ticket, session.Input{
			Command: command, Text: in.p.Text, Key: in.p.IdempotencyKey, Attachments: in.images,
		})
	}
}

// waitIf answers when the run ends that is active or begins now. It is called before the text is taken, which may end
// the run at once.
func (m *machine) waitIf(wait bool, to ticket) {
	if wait {
		m.waiters = append(m.waiters, to)
	}
}

func noModel(why error) *protocol.Error { return protocol.Rejectf(protocol.NoModel, "%v", why) }

// beginRun starts a run with a text and answers the command that brought it.
func (m *machine) beginRun(to ticket, in session.Input) (runID string) {
	in.InputID, in.Kind, in.RunID = m.newID("in-"), protocol.KindPrompt, m.newID("run-")
	m.reply(to, accepted(in, m.s.ID))
	m.record(in)
	m.openRun(in)
	return in.RunID
}

// enqueue owes a text to the active run. It tells whether it was accepted.
func (m *machine) enqueue(to ticket, kind protocol.Kind, command, text, key string, images []model.Attachment) bool {
	if len(m.s.Pending) >= maxPending || pendingBytes(m.s.Pending)+len(text) > maxPendingBytes {
		m.refuse(to, protocol.Rejectf(protocol.QueueFull, "%d texts wait already, at most %d (%d MiB) may", len(m.s.Pending),
			maxPending, maxPendingBytes>>20))
		return false
	}
	in := session.Input{
		InputID: m.newID("in-"), Kind: kind, Command: command, Text: text, RunID: m.s.Run.ID, Key: key,
		Attachments: images,
	}
	m.owe(in)
	m.reply(to, accepted(in, m.s.ID))
	m.steered()
	return true
}

// owe records a text that the active run has to deliver, and announces it.
func (m *machine) owe(in session.Input) {
	m.record(in)
	counts := m.counts()
	m.publish(protocol.Status{
		Ref: m.turnRef(), Code: protocol.Code(in.Kind + "_queued"), InputID: in.InputID, PendingCounts: &counts,
		Message: fmt.Sprintf("queued: %d to steer, %d to follow up", counts.Steer, counts.FollowUp),
	})
}

func accepted(in session.Input, sessionID string) protocol.PromptAccepted {
	return protocol.PromptAccepted{Command: in.Command, RunID: in.RunID, SessionID: sessionID, InputID: in.InputID}
}

// answeredBefore gives the answer that an idempotency key was given already.
func (m *machine) answeredBefore(to ticket, key string, wait bool) bool {
	if key == "" {
		return false
	}
	before, ok := m.s.Key(key, m.now)
	if !ok {
		return false
	}
	m.out.vouched = true
	m.reply(to, accepted(before.Input, m.s.ID))
	is := func(in session.Input) bool { return in.InputID == before.InputID }
	switch {
	case !wait:
	case before.Ended != nil:
		m.out.replies = append(m.out.replies, reply{to: to, ended: endOf(*before.Ended, "", m.s.RunOutput(before.RunID))})
	case m.s.Run != nil && m.s.Run.ID == before.RunID, slices.ContainsFunc(m.s.Pending, is):
		m.waiters = append(m.waiters, to)
	default:
		m.out.replies = append(m.out.replies, reply{to: to, ended: endOf(session.RunEnded{
			RunID: before.RunID, StopReason: protocol.StopError, Code: protocol.SessionError,
			Error: "the journal cannot be read where it says how this run ended",
		}, "", m.s.RunOutput(before.RunID))})
	}
	return true
}

// postpone keeps an input until the session is idle.
func (m *machine) postpone(to ticket, in input) {
	if len(m.postponed) >= maxPending {
		m.refuse(to, protocol.Rejectf(protocol.QueueFull, "%d commands wait already", len(m.postponed)))
		return
	}
	m.postponed = append(m.postponed, in)
	if to != nil {
		m.out.replies = append(m.out.replies, reply{to: to, postponed: true})
	}
}

func (in abortIn) step(m *machine) {
	run := m.s.Run
	switch {
	case run == nil && m.phase == compacting && in.runID == "":
		m.dropCompaction(aborted())
		m.refuse(in.ticket, protocol.Rejectf(protocol.NoActiveRun, "session %s has no active run; its compaction is given "+
			"up", m.s.ID))
		m.becomeIdle()
		return
	case run == nil:
		m.refuse(in.ticket, noActiveRun(m.s.ID))
		return
	case in.runID != "" && in.runID != run.ID:
		m.refuse(in.ticket, protocol.Rejectf(protocol.NoActiveRun, "session %s is running %s, not %.80q", m.s.ID, run.ID,
			in.runID))
		return
	}
	answer := protocol.AbortAccepted{Command: protocol.Abort.Name(), RunID: run.ID, Discarded: []protocol.DiscardedInput{}}
	if run.Aborting {
		m.reply(in.ticket, answer)
		return
	}
	answer.Discarded = append(answer.Discarded, discarded(m.s.Pending)...)
	m.record(session.AbortRequested{RunID: run.ID, AtEnd: in.ticket == nil})
	m.publish(protocol.Status{Ref: m.turnRef(), Code: protocol.StatusAbortRequested, Message: "the run is being aborted"})
	m.reply(in.ticket, answer)
	if m.phase == parked && (run.Open.ID != "" || run.Started != "" || len(run.Awaited()) > 0) { // the next daemon ends it
		return
	}
	switch m.phase {
	case calling: // its result ends the run
		m.withdraw(protocol.ByAbort)
		if !m.stopChildren() {
			m.out.work = append(m.out.work, work{gen: m.gen})
		}
	case streaming:
		m.cancel()
		if m.msg.started {
			m.endMessage(model.StopAborted)
		}
		m.finishAbort()
	case recording: // it ends the run
	case looking, ending:
		m.cancel()
		m.finishAbort()
	case compacting:
		m.dropCompaction(aborted())
		m.finishAbort()
	default:
		m.finishAbort()
	}
}

// finishAbort ends an aborted run once nothing of it runs any more.
func (m *machine) finishAbort() {
	m.withdraw(protocol.ByAbort)
	if m.awaitStopped() {
		return
	}
	for _, call := range m.s.Run.Calls {
		m.notRun(call)
	}
	if m.s.Run.TurnOpen {
		m.endTurn(protocol.StopAborted, nil)
		return
	}
	end := func() { m.endRun(protocol.StopAborted, nil) }
	if !m.recordTurn(end) { // what a former daemon has not come to
		end()
	}
}

func (in toolsIn) step(m *machine) {
	same := m.s.ToolsChosen && slices.Equal(m.s.Tools, in.tools)
	m.record(session.ToolsSet{Tools: in.tools})
	m.tellSetting(same, "active tools", strconv.Itoa(in.count))
	m.reply(in.ticket, protocol.ToolsAccepted{Command: protocol.SetActiveTools.Name(), Count: in.count})
}

func (in modelIn) step(m *machine) {
	if m.hosted() {
		m.refuse(in.ticket, m.unsupported("have another model"))
		return
	}
	was := m.model()
	set := session.ModelSet{Model: in.choice}
	if m.s.Run != nil && in.choice.Provider == "" { // a next daemon may have another
		set.Answered = plainly(m.ownModel())
	}
	m.record(set)
	m.away = nil // anyone who chooses a model wants it asked
	is := m.model()
	if m.phase == modelless {
		defer m.callModel()
	}
	m.tellSetting(is == was, "model", strings.Trim(is.Provider+"/"+is.Name, "/"))
	m.reply(in.ticket, protocol.ModelAccepted{
		Command: protocol.SetModel.Name(),
		Model:   wireModel(m.model(), m.ownModel()),
	})
}

// tellSetting tells every client that a session has another setting.
func (m *machine) tellSetting(same bool, name, value string) {
	if !same {
		m.publish(protocol.Status{Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusSettingChanged, Message: name +
			": " + value})
	}
}

func (in modeIn) step(m *machine) {
	mode, name := &m.s.SteeringMode, "steering mode"
	if in.kind == protocol.KindFollowUp {
		mode, name = &m.s.FollowUpMode, "follow-up mode"
	}
	was := *mode
	m.record(session.ModeSet{Kind: in.kind, Mode: in.mode})
	m.tellSetting(*mode == was, name, string(in.mode))
	m.reply(in.ticket, protocol.ModeAccepted{Command: in.command, Mode: in.mode})
}

func (in titleIn) step(m *machine) {
	if in.title != m.s.Title {
		m.record(session.TitleSet{Title: in.title})
		m.publish(protocol.Status{
			Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusTitleSet, Message: "the session is called " + in.title,
			Title: in.title,
		})
	}
	m.reply(in.ticket, protocol.TitleAccepted{Command: "set_title", Title: in.title})
}

func (in readIn) step(m *machine) {
	if m.s.Unread {
		m.record(session.MarkedRead{})
		m.publish(protocol.Status{
			Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusMarkedRead,
			Message: "the session has been read",
		})
	}
	m.reply(in.ticket, protocol.MarkedRead{Command: "mark_read"})
}

func (in leafIn) step(m *machine) {
	switch {
	case m.s.Run != nil:
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s is running %s", m.s.ID, m.s.Run.ID))
	case m.phase == compacting: // it would hold up whatever its client sends next
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s is being compacted", m.s.ID))
	case m.phase == rewinding:
		m.refuse(in.ticket, protocol.Rejectf(protocol.Busy, "session %s is being rewound", m.s.ID))
	case m.s.Entry(in.leafID) == nil:
		m.refuse(in.ticket, unknownLeaf(m.s.ID, in.leafID))
	case m.hosted() && in.leafID != m.s.Leaf:
		m.refuse(in.ticket, m.unsupported("go on from an earlier message"))
	default:
		m.moveLeaf(in.leafID)
		m.reply(in.ticket, protocol.Leaf{SessionID: m.s.ID, LeafID: in.leafID})
	}
}

// moveLeaf has the session go on from an entry, and tells every screen.
func (m *machine) moveLeaf(id string) {
	m.record(session.LeafSet{LeafID: id})
	m.publish(protocol.Status{
		Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusLeafSet,
		Message: "the session goes on from " + id,
	})
}

func (in queryIn) step(m *machine) {
	value, err := in.read(m)
	if err != nil {
		m.refuse(in.ticket, err)
		return
	}
	m.reply(in.ticket, value)
}

func noActiveRun(sessionID string) error {
	return protocol.Rejectf(protocol.NoActiveRun, "session %s has no active run", sessionID)
}

func runInProgress(sessionID, runID string) error {
	return protocol.Rejectf(protocol.RunInProgress, "session %s is running %s", sessionID, runID)
}

func shuttingDown() error { return protocol.Rejectf(protocol.ShuttingDown, "the daemon is stopping") }

func aborted() error { return protocol.Rejectf(protocol.Aborted, "the compaction was given up") }

func unknownLeaf(sessionID, leafID string) error {
	return protocol.Errorf(protocol.SessionError, "leaf_id: session %s has no entry %.80q", sessionID, leafID)
}

package runloop

import (
	"fmt"
	"slices"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// What happens to the daemon.
type (
	// resumeIn takes up what a former daemon left in the middle, or with fault set
	// this one when its disk failed.
	resumeIn struct{ fault bool }
	// drainIn stops at the next boundary; drainNowIn does not wait for it.
	drainIn    struct{}
	drainNowIn struct{}
)

func (in resumeIn) step(m *machine) {
	m.keepRules()
	m.resumeChildren()
	if m.s.Run != nil {
		m.resumeChange()
	}
	if m.takenUp() {
		return
	}
	run := m.s.Run
	if m.s.Rewind != nil {
		m.recoverRewind()
		return
	}
	if run == nil { // a crash between a prompt's record and its run's
		if prompts := m.prompts(); len(prompts) > 0 {
			m.openRun(prompts[0])
		}
		return
	}
	why := "the daemon was restarted and takes the run up again"
	if in.fault {
		why = "the session's journal can be written again, and the run goes on"
	}
	m.endInterrupted()
	m.record(session.RunResumed{RunID: run.ID, Fault: in.fault})
	m.publish(protocol.Status{Ref: m.turnRef(), Code: protocol.StatusRunResumed, Message: why})
	if run.Question.Form() {
		m.withdraw(protocol.ByRestart)
	}
	cut := m.s.Run.Call(run.Started).Name
	interrupted := m.answerInterrupted()
	switch {
	case m.hosted():
		m.resumeAgent(cut)
	case run.Outside && run.Turn == 1:
		m.dropOutside()
	}
	switch {
	case run.Aborting:
		m.finishAbort()
	case run.Crashes >= maxCrashes:
		m.giveUp(&protocol.Error{Code: protocol.CrashLoop, Message: fmt.Sprintf("the daemon crashed %d times during this "+
			"run", run.Crashes)})
	case run.Faults > maxFaults:
		m.giveUp(&protocol.Error{
			Code:    protocol.SessionError,
			Message: fmt.Sprintf("the session's journal failed %d times in a row", run.Faults),
		})
	case run.Damaged && len(run.Calls) > 0:
		m.giveUp(&protocol.Error{
			Code:    protocol.SessionError,
			Message: "the journal cannot be read where it says which calls were made or allowed: none is made now",
		})
	case m.hosted() && m.agents != nil && !m.agents.Resumes(m.s.Agent):
		m.giveUp(&protocol.Error{
			Code:    protocol.AgentCut,
			Message: fmt.Sprintf("the daemon ended while %s worked, and its runs are not to go on after that", m.s.Agent),
		})
	case run.Question != nil:
		m.resumeQuestion()
	case run.Turn == 0:
		m.startTurn(protocol.KindPrompt, m.prompts())
	case !run.TurnOpen:
		m.afterTurn()
	case m.hosted():
		m.resumeAgentTurn()
	default:
		m.resumeTurn(interrupted)
	}
}

// prompts are the owed inputs that open a run.
func (m *machine) prompts() []session.Input {
	return slices.DeleteFunc(slices.Clone(m.s.Pending), func(in session.Input) bool {
		return kindOf(in) != protocol.KindPrompt
	})
}

// endInterrupted ends the message that was being streamed when a former daemon ended, if
// any was (wire-v1 §4.3), with what was announced of it. One without any is announced
// as ended, which the record of the resumption stands for, and is nowhere else.
func (m *machine) endInterrupted() {
	run := m.s.Run
	if run.Open.ID == "" {
		return
	}
	m.msg = message{id: run.Open.ID, model: run.Open.Model}
	if run.Said == (session.Piece{}) {
		m.publish(protocol.MessageEnd{
			Ref: m.turnRef(), MessageID: m.msg.id, Role: string(model.Assistant),
			StopReason: protocol.StopReason(model.StopError),
		})
		return
	}
	m.msg.text.WriteString(run.Said.Text)
	m.msg.thinking.WriteString(run.Said.Thinking)
	m.endMessage(model.StopError)
}

// answerInterrupted gives a result to the call that was running when a former
// daemon ended, if any was. It is not run again. One that waits for its child waits on.
func (m *machine) answerInterrupted() bool {
	i := slices.IndexFunc(m.s.Run.Calls, func(c model.ToolCall) bool { return c.ID == m.s.Run.Started })
	if i < 0 || m.s.Run.WaitsForChild() {
		return false
	}
	if child, delegated := m.s.Run.Child(m.s.Run.Started); delegated {
		m.callBackground(m.s.Run.Calls[i], child)
		return true
	}
	m.endCall(m.s.Run.Calls[i], model.Failed(model.Interrupted,
		"the daemon stopped while this call ran; it may have done part of its work; check"), false,
		m.now.Sub(m.s.Run.StartedAt))
	return true
}

// giveUp ends the run, once the children have ended that it waits for.
func (m *machine) giveUp(why *protocol.Error) {
	m.stopChildren()
	m.withdraw(protocol.ByAbort)
	if m.givesUp = why; m.awaitStopped() {
		return
	}
	end := func() { m.endRun(protocol.StopError, why) }
	if m.s.Run.TurnOpen {
		ref := m.turnRef()
		m.record(session.TurnEnded{
			RunID: m.s.Run.ID, Turn: m.s.Run.Turn, StopReason: protocol.StopError, Code: why.Code,
			Error: why.Message,
		})
		m.publish(protocol.TurnEnd{Ref: ref, StopReason: protocol.StopError, Error: wireRunError(why)})
	}
	if !m.recordTurn(end) {
		end()
	}
}

// resumeTurn goes on inside an open turn, from the last entry that is kept.
func (m *machine) resumeTurn(interrupted bool) {
	m.deliver(m.undelivered())
	last := m.s.Entry(m.s.Leaf)
	switch {
	case last == nil:
		m.endTurn(protocol.StopError, &protocol.Error{
			Code:    protocol.InternalError,
			Message: "the journal has lost the turn's text",
		})
	case m.s.Run.Asked:
		m.callModel()
	case m.s.Run.Skips:
		m.skipRest()
	case m.s.Run.WaitsForChild(): // no call has ended, at which a steer is looked for
		m.nextCall()
	case interrupted, last.Role == model.Tool:
		m.afterCall() // a steer may have been waiting when the call ended
	case last.Role != model.Assistant, last.Broken():
		m.callModel()
	default:
		m.afterMessage()
	}
}

func (drainIn) step(m *machine) {
	m.draining = true
	m.refusePostponed()
	switch m.phase {
	case waiting, modelless:
		m.park()
	case ending: // the next daemon asks them again
		m.cancel()
		m.park()
	case calling: // the call may end without an answer, and cannot outlive the daemon with one
		m.withdraw(protocol.ByRestart)
		if len(m.s.Run.Awaited()) > 0 { // the next daemon waits on
			m.cancel()
			m.park()
		}
	}
}

func (drainNowIn) step(m *machine) {
	m.draining = true
	m.giveUpLate(errShutdown)
	m.refusePostponed()
	switch m.phase {
	case calling:
		m.withdraw(protocol.ByRestart)
		m.cancel()
	case streaming, looking, ending:
		m.cancel()
	case compacting: // of a run: it is asked for again
		m.dropCompaction(shuttingDown())
	}
	if m.s.Run != nil && m.phase != parked {
		m.park()
	}
}

func (m *machine) refusePostponed() {
	for _, in := range m.postponed {
		switch in := in.(type) {
		case promptIn:
			m.refuse(in.ticket, shuttingDown())
		case queueIn:
			m.refuse(in.ticket, shuttingDown())
		case compactIn:
			m.refuse(in.ticket, shuttingDown())
		case callIn:
			m.refuse(in.ticket, shuttingDown())
		}
	}
	m.postponed = nil
}

// resting reports that nothing is under way: a draining machine may be closed.
func (m *machine) resting() bool {
	return (m.phase == idle || m.phase == parked) && !m.quieting && m.late.gen == 0
}

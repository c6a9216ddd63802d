package runloop

import (
	"errors"
	"fmt"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// trouble is what the open turn has had with its model (models-today.md §4).
type trouble struct {
	overflows int  // refusals for the request's length that were met with a compaction
	again     int  // answers that broke off and were asked for again
	empty     bool // an empty answer was asked for again
	triedAt   int  // messages that the session had when a compaction was tried last
	gaveUp    bool // a summary failed: no other is tried
	refusals  []refusal
}

// requestFallbacks is how far a run went to have its request accepted by one model. Each
// rung is stepped on once.
type requestFallbacks struct {
	model    string // Key of the Choice that it is about
	repair   model.Repair
	climbed  bool
	rejected error // the first refusal
}

// failed meets an error of the model call: with a compaction, another way to put
// the request, another try, or the end of the turn.
func (m *machine) failed(err error) {
	untouched := !m.msg.started
	switch {
	case errors.Is(err, model.ErrContextTooLong) && untouched && m.trouble.overflows < maxOverflows:
		if m.park() { // and meet it at the next start
			return
		}
		if why := m.spent(); why != nil {
			m.endTurn(protocol.StopError, why)
			return
		}
		m.trouble.overflows++
		if m.summarise(&compaction{trigger: protocol.TriggerOverflow, why: providerError(err)}) {
			return
		}
	case errors.Is(err, model.ErrRejected) && untouched && m.climb(err):
		m.callModel()
		return
	case m.askAgain(err):
		m.callModel()
		return
	case len(m.msg.calls) == 0 && m.fallBack(err):
		if m.msg.started {
			m.endMessage(model.StopError)
		}
		m.callModel()
		return
	}
	if m.msg.started {
		m.endMessage(model.StopError)
	}
	if m.ladder.climbed && errors.Is(err, model.ErrRejected) {
		err = m.ladder.rejected // the others are about requests that nobody made
	}
	m.endTurn(protocol.StopError, providerError(m.withRefusals(err)))
}

// askAgain ends an answer that broke off before any tool call, and reports
// whether it is asked for once more.
func (m *machine) askAgain(err error) bool {
	passes := errors.Is(err, model.ErrTruncated) || errors.Is(err, model.ErrPassing)
	if !passes || !m.msg.started || len(m.msg.calls) > 0 || m.trouble.again >= maxAgain {
		return false
	}
	m.trouble.again++
	m.endMessage(model.StopError)
	m.publish(protocol.Warning{
		Ref: m.turnRef(), Code: model.NoticeRetry, Attempt: m.trouble.again + 1, Attempts: maxAgain + 1,
		Message: fmt.Sprintf("the answer is asked for again: %v", err),
	})
	return true
}

// saidNothing reports an answer of a provider that has neither text nor calls.
func (m *machine) saidNothing() bool {
	return m.msg.maker != "" && m.msg.text.Len() == 0 && !m.msg.spoke && len(m.msg.calls) == 0 &&
		m.msg.stop != model.StopLength
}

// climb puts the request in the next way, and says so. False: there is none
// left. What another model refused, before the session's was changed, says
// nothing about this one.
func (m *machine) climb(err error) bool {
	if m.ladder.model != m.answering().Key() {
		return true
	}
	was := m.repair()
	var next model.Repair
	var how string
	if m.s.Run.Terms.OutputSchema != nil && !was.ToldOutput {
		next, how = was, "with the schema of its answer told in words"
		next.ToldOutput = true
	} else {
		next, how = rung(was, m.s.Conversation().Kinds(), errors.Is(err, model.ErrRoleOrder), !m.s.ToolsChosen ||
			len(m.s.Tools) > 0)
	}
	if next == was {
		return false
	}
	if !m.ladder.climbed {
		m.ladder.rejected = err
	}
	m.ladder.repair, m.ladder.climbed = next, true
	m.publish(protocol.Warning{
		Ref: m.turnRef(), Code: protocol.WarningRequestRepaired,
		Message: fmt.Sprintf("the provider refused the request; it is sent again %s: %v", how, err),
	})
	return true
}

// rung is the next way to put a request with those messages.
func rung(r model.Repair, has session.Kinds, order, tools bool) (next model.Repair, how string) {
	for _, step := range []struct {
		applies bool
		done    *bool
		how     string
	}{
		{order && has.Answered, &r.Bridged, "with a word of the assistant's before the user's"},
		{has.Images, &r.NoImages, "without images"},
		{tools, &r.PlainSchemas, "with reduced schemas of tools"},
		{has.Blocks, &r.NoOpaque, "without what models attached to their answers"},
		{has.Calls, &r.PlainCalls, "with tool calls told as text"},
	} {
		if step.applies && !*step.done {
			*step.done = true
			return r, step.how
		}
	}
	return r, ""
}

// repair is how the next request is put: as the run has found out, or as the
// session knows of its model.
func (m *machine) repair() model.Repair {
	if key := m.answering().Key(); m.ladder.model != key {
		m.ladder = requestFallbacks{model: key, repair: m.s.Repairs[key]}
	}
	return m.ladder.repair
}

// accepted keeps how the request had to be put for this model.
func (m *machine) accepted() {
	m.trouble.refusals = nil
	if m.ladder.climbed && m.ladder.repair != m.s.Repairs[m.ladder.model] {
		m.record(session.RequestRepaired{Model: m.ladder.model, Repair: m.ladder.repair})
	}
}

// crowded reports that the context should be compacted before the model is
// called, and that it has grown since that was tried.
func (m *machine) crowded() bool {
	return m.overThreshold() && !m.trouble.gaveUp && m.trouble.triedAt < m.s.Messages
}

// fits makes of a conversation what the model is to read. What cannot be summarised any
// more, the results of one step, is cut so that the request fits.
func (m *machine) fits() func([]model.Message) []model.Message {
	window := m.window()
	if window == 0 {
		return func(messages []model.Message) []model.Message { return messages }
	}
	most := window*sentPercent/100 - m.s.Fixed()
	return func(messages []model.Message) []model.Message { return session.Squeeze(messages, most) }
}

// maxResult is how long a tool's result may be, in bytes: as long as takes a
// quarter of the model's window, at four bytes a token.
func (m *machine) maxResult() int {
	return int(min(m.window(), protocol.MaxContextWindow))
}

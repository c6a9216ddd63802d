package runloop

import (
	"fmt"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (in compactIn) step(m *machine) {
	switch {
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
	case m.s.Run != nil:
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s is running %s", m.s.ID, m.s.Run.ID))
	case m.phase == compacting:
		m.postpone(in.ticket, in)
	case !m.summarise(&compaction{ticket: in.ticket, trigger: "manual"}, in.instruction):
		m.refuse(in.ticket, protocol.Rejectf(protocol.NothingToCompact, "session %s has nothing older than its newest turn", m.s.ID))
	}
}

// full reports that the context should be compacted before the next turn.
func (m *machine) full() bool {
	window := m.model().ContextWindow
	done := m.s.Run.Ended.StopReason == "end" || m.s.Run.Ended.StopReason == "steered"
	return done && window > 0 && m.s.Tokens() > window*fullPercent/100
}

// summarise asks for the summary that c wants. False: nothing is old enough.
func (m *machine) summarise(c *compaction, instruction string) bool {
	if m.draining {
		return false
	}
	c.before = m.s.Tokens()
	firstKept, older, ok := m.s.Cut(min(keptTokens, c.before/2))
	if !ok {
		return false
	}
	c.firstKept = firstKept
	if window := m.model().ContextWindow; window > 0 {
		older = session.Fit(older, window*readPercent/100)
	}
	if c.trigger == "overflow" {
		older = session.Fit(older, c.before/2)
	}
	m.compact = c
	if m.s.Run != nil {
		m.publish(protocol.Status{Ref: m.turnRef(), Code: "compacting", Message: fmt.Sprintf("the context has about %d tokens and is being summarised", c.before)})
	}
	m.await(compacting, work{call: &modelCall{choice: m.s.Model, req: model.Request{Messages: older, Summary: true, Instruction: instruction}}})
	return true
}

// endCompaction keeps the summary, and goes on with what it was made for.
func (m *machine) endCompaction(err error) {
	c := m.compact
	m.compact = nil
	summary := c.text.String()
	switch {
	case err != nil:
	case summary == "":
		err = fmt.Errorf("the model gave an empty summary")
	case m.s.After(c.firstKept, summary) >= c.before:
		err = fmt.Errorf("the model's summary is no shorter than what it is for")
	}
	if err == nil {
		m.keepSummary(c, summary)
	}
	if m.s.Run == nil {
		if err != nil {
			m.refuse(c.ticket, protocol.Errorf(protocol.ProviderError, "the summary failed: %v", err))
		}
		m.becomeIdle()
		return
	}
	if err != nil {
		m.publish(protocol.Warning{Ref: m.turnRef(), Code: "compaction_failed", Message: fmt.Sprintf("the context was not compacted: %v", err)})
	}
	switch {
	case c.trigger == "threshold":
		m.nextTurn()
	case err != nil:
		m.endTurn("error", c.why)
	default:
		m.callModel()
	}
}

func (m *machine) keepSummary(c *compaction, summary string) {
	fact := session.Compacted{
		ID: m.newID("cmp-"), ParentID: m.s.Leaf, Summary: summary, FirstKeptEntryID: c.firstKept, TokensBefore: c.before, Trigger: c.trigger,
	}
	ref := protocol.Ref{SessionID: m.s.ID}
	if m.s.Run != nil {
		ref, fact.RunID = m.turnRef(), m.s.Run.ID
	}
	if c.usage != (model.Usage{}) {
		fact.Usage = &c.usage
	}
	m.record(fact)
	m.publish(protocol.Status{Ref: ref, Code: "compacted", Message: fmt.Sprintf("about %d tokens of context became %d", c.before, m.s.Tokens())})
	m.reply(c.ticket, protocol.Compaction{
		SessionID: m.s.ID, Summary: summary, FirstKeptEntryID: c.firstKept, TokensBefore: c.before, Trigger: c.trigger,
	})
}

package runloop

import (
	"errors"
	"fmt"
	"strings"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (in compactIn) step(m *machine) {
	switch {
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
	case m.hosted():
		m.refuse(in.ticket, m.unsupported("compact a session"))
	case m.s.Run != nil:
		m.refuse(in.ticket, protocol.Rejectf(protocol.RunInProgress, "session %s is running %s", m.s.ID, m.s.Run.ID))
	case m.phase == compacting, m.phase == rewinding:
		m.postpone(in.ticket, in)
	case !m.summarise(&compaction{ticket: in.ticket, trigger: protocol.TriggerManual, instruction: in.instruction}):
		m.refuse(in.ticket, protocol.Rejectf(protocol.NothingToCompact, "session %s has nothing older than its newest turn",
			m.s.ID))
	}
}

// full reports that the context should be compacted before the next turn.
func (m *machine) full() bool {
	done := m.s.Run.Ended.StopReason == protocol.StopEnd || m.s.Run.Ended.StopReason == protocol.StopSteered
	return done && m.overThreshold()
}

// overThreshold reports that too much of the window is in use, and that it is
// conversation: nothing else can be summarised.
func (m *machine) overThreshold() bool {
	window := m.window()
	return window > 0 && m.s.Tokens() > window*fullPercent/100 && m.s.Estimated() > window/10
}

// summarise asks for the summary that c wants, from a quarter as much each time
// that the provider refused its length. False: nothing is old enough.
func (m *machine) summarise(c *compaction) bool {
	if m.draining {
		return false
	}
	c.before = m.s.Tokens()
	keep, most := int64(keptTokens), int64(protocol.MaxContextWindow)
	if window := m.window(); window > 0 {
		keep, most = min(keep, window/2), window*readPercent/100
	}
	firstKept, older, ok := m.s.Cut(keep)
	if !ok {
		return false
	}
	c.firstKept = firstKept
	if c.trigger == protocol.TriggerOverflow {
		most = min(most, m.s.Estimated()/2)
	}
	most >>= 2 * c.refused
	fit := func(messages []model.Message) []model.Message { return session.Fit(messages, most) }
	m.compact = c
	m.publish(protocol.Status{
		Ref: m.ref(), Code: protocol.StatusCompacting,
		Message: fmt.Sprintf("the context has about %d tokens and is being summarised", c.before),
	})
	m.asked = m.answering()
	call := &modelCall{choice: m.asked, req: model.Request{
		System: summaryPrompt(c.instruction), Summary: true, Effort: model.Effort{Level: m.asked.Effort},
	}, history: older, fit: fit}
	m.await(compacting, work{call: call})
	return true
}

// summaryPrompt is the system prompt of a request for a summary. Instruction may
// be empty.
func summaryPrompt(instruction string) string {
	const prompt = `Summarise the conversation. Another model goes on from your summary alone, so it must find everything there that it needs. Write these sections, each as short as it can be, in at most 1000 words together:

Goal: what the user wants, with their own words for every constraint they named.
Decisions: what was decided, and why.
Files: each file that was read or changed, by its path, and the state it is in.
Commands: those that work here, as they were typed.
Failed: what was tried and did not work, and why.
Next: the next step, and what is still open.

Leave out a section that would be empty. Say nothing else.`
	if instruction == "" {
		return prompt
	}
	return prompt + "\n\n" + instruction
}

// endCompaction keeps the summary, and goes on with what it was made for.
func (m *machine) endCompaction(err error) {
	c := m.compact
	m.compact, m.phase = nil, idle
	if errors.Is(err, model.ErrContextTooLong) && c.refused < maxOverflows {
		c.refused++
		c.text.Reset()
		c.size = 0
		if m.summarise(c) {
			return
		}
	}
	if m.fallBack(err) {
		c.text.Reset()
		c.size = 0
		if m.summarise(c) {
			return
		}
	}
	m.trouble.refusals = nil
	summary := c.text.String()
	switch {
	case err != nil:
	case c.stop == "":
		err = errors.New("the model's stream broke off without a stop reason")
	case c.stop == model.StopLength:
		err = errors.New("the model's summary was cut off at its length limit")
	case strings.TrimSpace(summary) == "":
		err = errors.New("the model gave an empty summary")
	case m.s.After(c.firstKept, summary) >= m.s.Estimated():
		err = protocol.Rejectf(protocol.NothingToCompact, "the model's summary is no shorter than what it is for")
	}
	if err == nil {
		m.keepSummary(c, summary)
	} else {
		m.trouble.gaveUp = true
		m.spend(c)
		m.publish(protocol.Warning{
			Ref: m.ref(), Code: protocol.WarningCompactionFailed,
			Message: fmt.Sprintf("the context was not compacted: %v", err),
		})
		var refusal *protocol.Error
		if !errors.As(err, &refusal) {
			refusal = protocol.Errorf(protocol.ProviderError, "the summary failed: %v", err)
		}
		m.refuse(c.ticket, refusal)
	}
	switch {
	case m.s.Run == nil:
		m.becomeIdle()
	case c.trigger == protocol.TriggerThreshold && !m.s.Run.TurnOpen:
		m.nextTurn()
	case c.trigger == protocol.TriggerOverflow && err != nil:
		m.endTurn(protocol.StopError, c.why)
	default:
		m.callModel()
	}
}

// dropCompaction gives up the summary that is being made.
func (m *machine) dropCompaction(why error) {
	m.cancel()
	m.spend(m.compact)
	m.refuse(m.compact.ticket, why)
	m.compact, m.phase = nil, idle
}

// spend counts what a summary has used that is not kept.
func (m *machine) spend(c *compaction) {
	if c.usage == (model.Usage{}) {
		return
	}
	runID := ""
	if m.s.Run != nil {
		runID = m.s.Run.ID
	}
	m.record(session.Spent(runID, c.usage))
}

func (m *machine) keepSummary(c *compaction, summary string) {
	fact := session.Compacted{
		ID: m.newID("cmp-"), ParentID: m.s.Leaf, Summary: summary, FirstKeptEntryID: c.firstKept, TokensBefore: c.before,
		Trigger:     c.trigger,
		FixedTokens: m.s.Fixed(), TokensAfter: m.s.After(c.firstKept, summary) + m.s.Fixed(),
	}
	if m.s.Run != nil {
		fact.RunID = m.s.Run.ID
	}
	var usage *protocol.Usage
	if c.usage != (model.Usage{}) {
		fact.Usage, usage = &c.usage, wireUsage(&c.usage)
	}
	m.record(fact)
	m.publish(protocol.Status{
		Ref: m.ref(), Code: protocol.StatusCompacted, Usage: usage,
		Message:      fmt.Sprintf("summarised: %s → %s tokens", format.Short(c.before), format.Short(fact.TokensAfter)),
		TokensBefore: c.before, TokensAfter: fact.TokensAfter,
	})
	m.reply(c.ticket, protocol.Compaction{
		SessionID: m.s.ID, Summary: summary, FirstKeptEntryID: c.firstKept, TokensBefore: c.before,
		TokensAfter: fact.TokensAfter,
		Trigger:     c.trigger,
	})
}

// ref ties an event to the turn or the run, or else to the session alone.
func (m *machine) ref() protocol.Ref {
	if m.s.Run == nil {
		return protocol.Ref{SessionID: m.s.ID}
	}
	return m.turnRef()
}

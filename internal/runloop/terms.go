package runloop

import (
	"cmp"
	"fmt"

	"noused/internal/format"
	"noused/internal/jsonschema"
	"noused/internal/protocol"
	"noused/internal/session"
)

// maxAskedAgain is how often an answer is asked for again that does not fit its schema.
const maxAskedAgain = 2

// schemaFits says what is wrong with the schema of an answer.
func schemaFits(schema []byte) error {
	if schema == nil {
		return nil
	}
	if _, err := jsonschema.Compile(schema); err != nil {
		return protocol.Errorf(protocol.InvalidPayload, "output_schema: no JSON Schema: %v", err)
	}
	return nil
}

// terms are what a prompt asks of its run.
func (in promptIn) terms() session.Terms {
	terms := session.Terms{OutputSchema: in.p.OutputSchema, MaxModelCalls: in.p.MaxModelCalls, As: in.as}
	if in.p.MaxCost > 0 {
		terms.MaxCost = max(1, int64(in.p.MaxCost*nano))
	}
	return terms
}

// spentTerms tells which of its own limits lets the run make no further call of the model.
func (m *machine) spentTerms() *protocol.Error {
	switch terms := m.s.Run.Terms; {
	case terms.MaxModelCalls > 0 && m.s.Run.Answers >= terms.MaxModelCalls:
		return protocol.Errorf(protocol.OverBudget, "the run has called the model %s, and that is its limit",
			format.Count(m.s.Run.Answers, "time"))
	case terms.MaxCost > 0 && m.treeUsage().Cost >= terms.MaxCost:
		return protocol.Errorf(protocol.OverBudget, "the run has cost %s USD, and its limit is %s",
			dollars(m.treeUsage().Cost), dollars(terms.MaxCost))
	}
	return nil
}

// spent tells which limit, the run's own or the daemon's, has been reached.
func (m *machine) spent() *protocol.Error { return cmp.Or(m.spentTerms(), m.overLimit()) }

// endAnswered ends a turn whose answer is whole. One that does not fit the run's schema is
// asked for again, a few times. Where a text waits, the answer to that one counts.
func (m *machine) endAnswered() {
	why := m.unfit()
	switch {
	case why == nil:
		m.endTurn(protocol.StopEnd, nil)
	case m.s.Run.AskedAgain >= maxAskedAgain:
		m.endTurn(protocol.StopError, protocol.Errorf(protocol.AnswerUnfit,
			"the answer does not fit the schema, asked for %d times: %v", maxAskedAgain+1, why))
	default:
		m.publish(protocol.Warning{
			Ref: m.turnRef(), Code: protocol.WarningAnswerUnfit, Attempt: m.s.Run.AskedAgain + 2,
			Message: fmt.Sprintf("the answer does not fit the schema and is asked for again: %v", why),
		})
		m.owe(session.Input{
			InputID: m.newID("in-"), Kind: protocol.KindFollowUp, Command: session.CommandOutputSchema, RunID: m.s.Run.ID,
			Text: fmt.Sprintf("That answer does not fit: %v. Answer again, with nothing but JSON that fits this JSON "+
				"Schema:\n%s", why, m.s.Run.Terms.OutputSchema),
		})
		m.endTurn(protocol.StopEnd, nil)
	}
}

// unfit says why the run's answer does not fit its schema.
func (m *machine) unfit() error {
	schema := m.s.Run.Terms.OutputSchema
	if schema == nil || len(m.s.Pending) > 0 {
		return nil
	}
	compiled, err := jsonschema.Compile(schema)
	if err != nil {
		return err
	}
	answer, err := jsonschema.Decode([]byte(format.JSONAnswer(m.s.Run.Output)))
	if err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	return compiled.Check(answer)
}

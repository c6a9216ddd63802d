package protocoltest

import (
	"bytes"
	"fmt"

	"noused/internal/protocol"
)

// requested takes a question in. One that is open is asked again by the next
// daemon only, word for word.
func (c *Checker) requested(t *track, ev protocol.Status) error {
	a := ev.Approval
	switch {
	case a == nil || a.ApprovalID == "" || len(a.Options) == 0:
		return fmt.Errorf("approvals: a question that says nothing: %+v", a)
	case a.Kind == protocol.ApprovalQuestion:
		return c.form(t, ev)
	case t.turn == "" || t.message != "" || t.tool != "":
		return fmt.Errorf("approvals: asked outside a turn, or inside message %q or tool call %q", t.message, t.tool)
	case a.Kind == protocol.ApprovalTool && (len(t.calls) == 0 || t.calls[0] != a.ToolCallID):
		return fmt.Errorf("approvals: asks about %s, the next call is the first of %v", a.ToolCallID, t.calls)
	}
	now := asked{session: ev.SessionID, call: a.ToolCallID, arguments: string(a.Arguments)}
	before := c.asked[a.ApprovalID]
	switch {
	case before == nil && t.question != "":
		return fmt.Errorf("approvals: %s is asked while %s is open", a.ApprovalID, t.question)
	case before != nil && (before.outcome != lost || before.call != now.call || before.arguments != now.arguments):
		return fmt.Errorf("approvals: %s is asked again: %+v, before %+v", a.ApprovalID, now, *before)
	}
	c.asked[a.ApprovalID] = &now
	if now.call != "" {
		c.about[now.call] = &now
	}
	t.question = a.ApprovalID
	t.answered = t.answered && a.Kind == protocol.ApprovalBudget // else the steers were looked at before it
	return nil
}

// form takes in what the call that runs asks. It is asked once, by that daemon, and
// has ended before its call has.
func (c *Checker) form(t *track, ev protocol.Status) error {
	a := ev.Approval
	switch {
	case t.turn == "" || t.tool == "" || t.tool != a.ToolCallID:
		return fmt.Errorf("approvals: %s is asked by call %q, and %q runs", a.ApprovalID, a.ToolCallID, t.tool)
	case t.question != "" || t.form != "":
		return fmt.Errorf("approvals: %s is asked while %s%s is open", a.ApprovalID, t.question, t.form)
	case c.asked[a.ApprovalID] != nil:
		return fmt.Errorf("approvals: the form %s is asked again", a.ApprovalID)
	case t.aborting || len(a.Schema) == 0:
		return fmt.Errorf("approvals: asks %+v, abort requested: %t", a, t.aborting)
	}
	c.asked[a.ApprovalID] = &asked{session: ev.SessionID}
	t.question, t.form = a.ApprovalID, a.ApprovalID
	return nil
}

func (c *Checker) resolved(t *track, ev protocol.Status) error {
	a := c.asked[ev.ApprovalID]
	switch {
	case a == nil || a.outcome != "" && a.outcome != lost:
		return fmt.Errorf("approvals: %s is resolved, and was not open: %+v", ev.ApprovalID, a)
	case t.question != ev.ApprovalID && a.outcome != lost:
		return fmt.Errorf("approvals: %s is resolved, and %q is open", ev.ApprovalID, t.question)
	case ev.Outcome == "" || len(ev.By) == 0:
		return fmt.Errorf("approvals: %s is resolved, by %s, as %q", ev.ApprovalID, ev.By, ev.Outcome)
	}
	a.outcome, t.question = ev.Outcome, ""
	if t.form != "" { // its call goes on
		t.form = ""
		return nil
	}
	if bytes.Equal(ev.By, protocol.ByWord(protocol.BySteer)) {
		t.skipping = true
	}
	return nil
}

// lost is the outcome of a question that was open when the daemon ended: it is
// asked again, unless the answer was on the disk and nobody heard of it.
const lost protocol.ApprovalOutcome = "lost"

// lose takes the end of a daemon in.
func (c *Checker) lose(t *track) {
	if t.question != "" {
		c.asked[t.question].outcome = lost
	}
	t.question = ""
}

// mayStart holds a call against what was asked about it: the same arguments, and
// an answer.
func (c *Checker) mayStart(ev protocol.ToolStart) error {
	a := c.about[ev.ToolCallID]
	switch {
	case a == nil:
	case a.outcome == "":
		return fmt.Errorf("approvals: the call starts while its question is open")
	case a.arguments != string(ev.Arguments):
		return fmt.Errorf("approvals: the call has arguments %s, asked was about %s", ev.Arguments, a.arguments)
	}
	return nil
}

// Resolved tells how a question ended, as far as it has.
func (c *Checker) Resolved(approvalID string) protocol.ApprovalOutcome {
	if a := c.asked[approvalID]; a != nil {
		return a.outcome
	}
	return ""
}

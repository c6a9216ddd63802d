package runloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/form"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/queue"
	"noused/internal/session"
)

// Bounds of what tools may ask of people, in bytes.
const (
	maxForms    = 4 << 20 // of forms that wait, in all sessions together
	maxFormText = 8 << 10 // of what a tool says to a form
	maxAsked    = 1 << 20 // of the forms of one call
	formCost    = 1 << 10 // of a form beside its schema and text: what is journaled and told
)

// What a running call asks. Both are of the call's generation.
type (
	askIn struct {
		gen      int
		ticket   ticket
		question model.Question
		form     *form.Form
	}
	// unaskIn says that nobody waits for the answer any more.
	unaskIn struct {
		gen    int
		ticket ticket
	}
)

// filling is the form that a call waits for, and what it was filled in with.
type filling struct {
	asker   ticket // nil: nobody waits
	id      string
	form    *form.Form
	content jsontext.Value
	spent   int // bytes of the forms of the call that runs
}

var (
	errOneForm   = errors.New("a call asks one thing at a time: ask again when this is answered")
	errManyForms = fmt.Errorf("the call has asked enough: its forms have more than %d bytes (%d MiB)", maxAsked,
		maxAsked>>20)
	errFormsFull = fmt.Errorf("too many forms wait for people: together they may have %d bytes (%d MiB)", maxForms,
		maxForms>>20)
	errFormText = fmt.Errorf("what is said to a form may have %d bytes (%d KiB)", maxFormText, maxFormText>>10)
)

// asks is how a call asks (model.Invocation.Ask).
func (l *loop) asks(running context.Context, gen int) func(context.Context, model.Question) (model.Answer, error) {
	var asking atomic.Bool
	return func(ctx context.Context, q model.Question) (model.Answer, error) {
		size := len(q.Schema) + len(q.Message)
		switch {
		case len(q.Message) > maxFormText:
			return model.Answer{}, errFormText
		case !asking.CompareAndSwap(false, true):
			return model.Answer{}, errOneForm
		}
		defer asking.Store(false)
		f, err := form.Parse(q.Schema)
		switch {
		case err != nil:
			return model.Answer{}, err
		case !sound(jsontext.Value(q.Schema)):
			return model.Answer{}, fmt.Errorf("the form is nested more than %d deep", maxDepth)
		}
		if !l.env.forms.Take(size) {
			return model.Answer{}, errFormsFull
		}
		defer l.env.forms.Give(size)
		return l.askPerson(running, ctx, gen, q, f)
	}
}

// askPerson waits for an answer as long as the call and its caller do.
func (l *loop) askPerson(running, ctx context.Context, gen int, q model.Question, f *form.Form) (model.Answer, error) {
	cancelled, c := model.Answer{Action: model.Cancel}, newCall()
	if l.post(running, askIn{gen, c, q, f}) != nil {
		return cancelled, nil
	}
	select {
	case r := <-c.reply:
		if r.err != nil {
			return model.Answer{}, r.err
		}
		return r.value.(model.Answer), nil
	case <-l.done:
	case <-running.Done(): // its end withdraws the question
	case <-ctx.Done():
		_ = l.post(running, unaskIn{gen, c})
	}
	return cancelled, nil
}

func (in askIn) step(m *machine) {
	switch {
	case in.gen != m.gen || m.phase != calling || m.s.Run.Aborting || m.draining || m.steerWaits():
		m.reply(in.ticket, model.Answer{Action: model.Cancel})
		return
	case m.s.Run.Question.Open():
		m.refuse(in.ticket, errOneForm)
		return
	}
	if m.filling.spent += len(in.question.Schema) + len(in.question.Message) + formCost; m.filling.spent > maxAsked {
		m.refuse(in.ticket, errManyForms)
		return
	}
	if m.approvals() == protocol.ApprovalsDeny {
		m.declineForm(in)
		return
	}
	m.filling.asker, m.filling.form = in.ticket, in.form
	m.filling.id = m.raise(session.ApprovalAsked{
		Kind: protocol.ApprovalQuestion, CallID: m.call.ID, Reason: in.question.Message, Rule: "ask: a form of " +
			m.call.Name, Schema: rawObject(in.question.Schema),
		Options: []session.ApprovalOption{
			{ID: protocol.OptionAccept, Decision: protocol.DecisionAllow},
			{ID: protocol.OptionDecline, Decision: protocol.DecisionDeny},
			{ID: protocol.OptionCancel, Decision: protocol.DecisionDeny},
		},
	})
	m.tellOpen()
}

// declineForm answers where nobody is asked, and says so.
func (m *machine) declineForm(in askIn) {
	m.said = true
	m.publish(protocol.ToolUpdate{
		Ref: m.turnRef(), ToolCallID: m.call.ID, ToolName: m.call.Name, Delta: "declined, because nobody can answer here: " +
			in.question.Message + "\n",
	})
	m.out.audits = append(m.out.audits, audit(m.s.ID, m.call.ID, false, decision{
		Tool: m.call.Name, Decision: model.Deny,
		Rule: "nobody can answer here",
	}))
	m.reply(in.ticket, model.Answer{Action: model.Decline})
}

func (m *machine) steerWaits() bool {
	return queue.Count(m.s.Pending, kindOf, protocol.KindSteer) > 0
}

func (in unaskIn) step(m *machine) {
	if in.gen == m.gen && m.filling.asker != nil && in.ticket == m.filling.asker {
		m.withdraw(protocol.ByCall)
	}
}

// fill takes the answer to a form.
func (m *machine) fill(in answerIn, o session.ApprovalOption) {
	d := session.ApprovalDecided{
		Outcome: protocol.OutcomeDenied, Option: o.ID, PID: in.who.pid, UID: in.who.uid,
		Comm: in.who.comm, Peer: in.who.peer,
	}
	switch {
	case o.Decision == protocol.DecisionAllow:
		content, err := m.filling.form.Fill(in.content)
		if err != nil {
			m.refuse(in.ticket, protocol.Errorf(protocol.InvalidPayload, "content: %v", err))
			return
		}
		d.Outcome, m.filling.content = protocol.OutcomeAllowed, content
	case in.content != nil:
		m.refuse(in.ticket, protocol.Errorf(protocol.InvalidPayload, "content: goes with accept, not with %s", o.ID))
		return
	}
	m.decide(d)
	m.reply(in.ticket, protocol.ApproveAccepted{
		Command: protocol.Approve.Name(), ApprovalID: in.approvalID,
		Outcome: d.Outcome,
	})
}

// tellAsker tells the call how its form ended.
func (m *machine) tellAsker(d session.ApprovalDecided) {
	a := model.Answer{Action: model.Cancel}
	switch {
	case d.Outcome == protocol.OutcomeAllowed:
		a = model.Answer{Action: model.Accept, Content: []byte(m.filling.content)}
	case d.Option == protocol.OptionDecline:
		a.Action = model.Decline
	}
	m.reply(m.filling.asker, a)
	m.filling.asker = nil
}

// sameFilled reports that an answer is the one that was taken, its content too: of
// the latest form, for which that is known.
func (m *machine) sameFilled(in answerIn, d session.ApprovalDecided) bool {
	if d.Option != protocol.OptionAccept {
		return in.content == nil
	}
	if m.filling.id != in.approvalID || m.filling.form == nil {
		return false
	}
	content, err := m.filling.form.Fill(in.content)
	return err == nil && bytes.Equal(content, m.filling.content)
}

package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// prompt is a request whose answer is the end of the turn that delivers its text.
type prompt struct {
	request   *acp.Request
	text      string
	blocks    []acp.ContentBlock
	run       string // "" until the text is accepted
	input     string
	turn      string // that delivers it, "" until then
	cancelled bool
	ready     bool                   // answered as soon as the abort is
	giveUp    context.CancelFunc     // ends the waiting for a daemon
	sent      protocol.InputAccepted // for what is in line behind it; empty where it was not accepted
}

func (p *prompt) fail(why *acp.Error) {
	p.giveUp()
	p.request.Fail(why)
}

// prompt sends a text. A session that runs takes it when it is done.
func (w *window) prompt(r *acp.Request) {
	params, text, images, ok := w.readPrompt(r)
	if !ok || w.command(r, text) {
		return
	}
	ctx, giveUp := context.WithCancel(w.ctx)
	p := &prompt{request: r, text: text, blocks: params.Prompt, giveUp: giveUp}
	w.prompts = append(w.prompts, p)
	no := false
	send := protocol.PromptParams{
		Scope: protocol.Scope{SessionID: *params.SessionID}, Text: text, Wait: &no, StreamingBehavior: protocol.KindFollowUp,
		IdempotencyKey: "acp-" + rand.Text(), Attachments: images,
	}
	w.deliver(ctx, r, &send.Text, &send.Attachments, func() (protocol.InputAccepted, error) {
		if planning, settled := w.isPlanning(); planning { // refused while a run goes on, which may have all tools
			send.As, send.StreamingBehavior = modePlan, ""
			select {
			case <-settled:
			case <-ctx.Done():
				return protocol.InputAccepted{}, errNotSent
			}
		}
		reply, err := persist(ctx, w, protocol.Prompt, send)
		if err != nil || reply.Accepted == nil {
			return protocol.InputAccepted{}, err
		}
		p.sent = protocol.InputAccepted(*reply.Accepted)
		return p.sent, nil
	}, func(a protocol.InputAccepted, err error) { w.accepted(p, a, err) })
}

// deliver makes of a text what is meant by it and sends it, in its turn. From the
// moment when it is sent until it is accepted the window minds whose texts are whose.
func (w *window) deliver(ctx context.Context, r *acp.Request, text *string, images *[]protocol.AttachmentParams,
	send func() (protocol.InputAccepted, error), accepted func(protocol.InputAccepted, error),
) {
	sent := false
	answering(w, r, inLine(ctx, w, func() (a protocol.InputAccepted, err error) {
		if _, err := w.payAbort(); err != nil {
			return a, err
		}
		*text, *images, err = meant(ctx, w, *text, *images)
		switch {
		case ctx.Err() != nil:
			return a, errNotSent
		case err != nil:
			return a, err
		}
		sent = true
		w.sending.Add(1)
		return send()
	}), func(a protocol.InputAccepted, err error) {
		accepted(a, err)
		if sent && w.sending.Add(-1) == 0 {
			w.release()
		}
	})
}

func (w *window) readPrompt(r *acp.Request) (p acp.PromptParams, text string, images []protocol.AttachmentParams,
	ok bool,
) {
	p, err := acp.Decode[acp.PromptParams](r.Params)
	if err == nil {
		text, images, err = textOf(p.Prompt)
	}
	if err != nil {
		r.Fail(err)
	}
	return p, text, images, err == nil
}

// accepted takes in what the daemon says to a text.
func (w *window) accepted(p *prompt, a protocol.InputAccepted, err error) {
	switch {
	case errors.Is(err, errNotSent):
		w.answer(p, acp.StopCancelled)
	case err != nil && p.cancelled:
		w.answer(p, acp.StopCancelled)
	case err != nil:
		w.failed(p, aboutPrompt(w.b.explain(err), p.blocks))
	default:
		p.run, p.input = a.RunID, a.InputID
		w.own[a.InputID] = true
	}
}

// steer puts a text before everything that waits, and is answered when it is
// accepted.
func (w *window) steer(r *acp.Request) {
	params, text, images, ok := w.readPrompt(r)
	if !ok {
		return
	}
	send := protocol.SteerParams{
		Scope: protocol.Scope{SessionID: *params.SessionID}, Text: text, IfIdle: protocol.KindPrompt,
		IdempotencyKey: "acp-" + rand.Text(), Attachments: images,
	}
	ctx := w.texts
	w.deliver(ctx, r, &send.Text, &send.Attachments, func() (protocol.InputAccepted, error) {
		if planning, _ := w.isPlanning(); planning { // else it begins a run with all tools
			send.IfIdle = ""
		}
		return persist(ctx, w, protocol.Steer, send)
	},
		func(a protocol.InputAccepted, err error) {
			if errors.Is(err, errNotSent) {
				r.Fail(acp.Errorf(acp.Cancelled, "%v", err))
				return
			}
			if err != nil {
				r.Fail(aboutPrompt(w.b.explain(err), params.Prompt))
				return
			}
			w.own[a.InputID] = true
			r.Reply(acp.SteerResult{RunID: a.RunID, InputID: a.InputID})
		})
}

// handBack reports a text that will not be delivered.
func (w *window) handBack(input, text string) {
	w.say(input, "[Not delivered, the run was ended: "+text+"]")
}

// answer answers a prompt, a cancelled one when it is known what was handed back.
func (w *window) answer(p *prompt, why acp.StopReason) {
	if p.cancelled {
		why = acp.StopCancelled
		if p.ready = w.aborts > 0; p.ready {
			return
		}
	}
	w.close(p)
	w.tellOutput()
	p.request.Reply(acp.PromptResult{StopReason: why})
}

func (w *window) failed(p *prompt, why *acp.Error) {
	if p.cancelled {
		w.answer(p, acp.StopCancelled)
		return
	}
	w.close(p)
	w.tellOutput()
	p.request.Fail(why)
}

func (w *window) close(p *prompt) {
	p.giveUp()
	w.prompts = slices.DeleteFunc(w.prompts, func(q *prompt) bool { return q == p })
	delete(w.own, p.input)
}

// lost answers a prompt whose text will not be delivered.
func (w *window) undelivered(p *prompt, why error) {
	w.handBack(p.input, p.text)
	if why != nil {
		w.failed(p, w.b.explain(why))
		return
	}
	w.answer(p, acp.StopCancelled)
}

func (w *window) withdrawn(input string) {
	for _, p := range slices.Clone(w.prompts) {
		if p.input == input && input != "" {
			w.undelivered(p, nil)
		}
	}
}

func (w *window) turnStarted(e protocol.TurnStart) {
	w.settledNow()
	for _, p := range slices.Clone(w.prompts) {
		switch {
		case p.run != e.RunID:
		case slices.Contains(e.InputIDs, p.input):
			p.turn = e.TurnID
		case p.turn != "": // its end was not told
			w.answer(p, acp.EndTurn)
		}
	}
}

func (w *window) turnEnded(e protocol.TurnEnd) {
	w.unsettled()
	for _, p := range slices.Clone(w.prompts) {
		if p.run == e.RunID && p.turn == e.TurnID && p.run != "" {
			w.ended(p, e.StopReason, e.Error)
		}
	}
}

func (w *window) runEnded(e protocol.AgentEnd) {
	w.settledNow()
	for _, d := range e.Discarded {
		if !slices.ContainsFunc(w.prompts, func(p *prompt) bool { return p.input == d.InputID }) {
			w.handBack(d.InputID, d.Text)
		}
	}
	for _, p := range slices.Clone(w.prompts) {
		switch {
		case p.run != e.RunID || p.run == "":
		case p.turn != "":
			w.ended(p, e.StopReason, e.Error)
		default:
			w.undelivered(p, wireError(e.Error))
		}
	}
}

func wireError(e *protocol.RunError) error {
	if e == nil {
		return nil
	}
	return protocol.Errorf(e.Code, "%s", e.Message)
}

// ended answers a prompt for the reason that its turn, or its run, ended.
func (w *window) ended(p *prompt, why protocol.StopReason, err *protocol.RunError) {
	switch {
	case why == protocol.StopAborted:
		w.answer(p, acp.StopCancelled)
	case err != nil && (err.Code == protocol.StepLimit || err.Code == protocol.OverBudget):
		w.answer(p, acp.MaxTurnRequests)
	case err != nil && err.Code == protocol.Refused:
		w.answer(p, acp.Refusal)
	case err != nil:
		w.failed(p, w.b.explain(wireError(err)))
	case why == protocol.StopError:
		w.failed(p, acp.Errorf(acp.InternalError, "the run ended in an error"))
	case w.draw.stop == protocol.StopLength:
		w.answer(p, acp.MaxTokens)
	default:
		w.answer(p, acp.EndTurn)
	}
}

// settle finds out what happened to texts while no event came.
func (w *window) settle(s follow.Snapshot) {
	for _, p := range slices.Clone(w.prompts) {
		if p.input == "" || slices.ContainsFunc(s.State.Queued.Inputs, func(q protocol.QueuedInput) bool {
			return q.InputID == p.input
		}) {
			continue
		}
		w.settleOne(p, s)
	}
}

func (w *window) settleOne(p *prompt, s follow.Snapshot) {
	t := fateOf(p.input, s)
	turn := s.State.Turn
	running := s.State.RunID == p.run
	switch {
	case running && turn != nil && slices.Contains(turn.InputIDs, p.input):
		p.turn = turn.TurnID
	case t.delivered || p.turn != "":
		w.draw.stop = t.stop
		if running || t.over {
			w.ended(p, protocol.StopEnd, nil)
			return
		}
		why, err, _ := endOf(p.run, s)
		w.ended(p, why, err)
	default: // it may have been accepted since: what happens then is still to come
		if _, err, over := endOf(p.run, s); over {
			w.undelivered(p, wireError(err))
		}
	}
}

// fate is what the messages say of a text.
type fate struct {
	delivered bool
	over      bool // another turn followed
	stop      protocol.StopReason
}

func fateOf(input string, s follow.Snapshot) (f fate) {
	answered := false
	for _, raw := range s.Messages {
		e := decodeEntry(raw)
		switch {
		case e.InputID == input:
			f.delivered = true
		case !f.delivered || f.over:
		case e.Role == "assistant":
			answered, f.stop = true, e.StopReason
		case e.Role == "user" && answered:
			f.over = true
		}
	}
	return f
}

// endOf is how a run ended, as far as a snapshot knows that it did.
func endOf(run string, s follow.Snapshot) (why protocol.StopReason, err *protocol.RunError, over bool) {
	for _, r := range s.Runs {
		if r.RunID == run {
			return r.StopReason, r.Error, true
		}
	}
	if last := s.State.LastRun; last != nil && last.RunID == run {
		return last.StopReason, last.Error, true
	}
	return protocol.StopEnd, nil, false
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/client/follow"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// watch follows one run to its end, across a lost connection and a restarted
// daemon.
type watch struct {
	a     *app
	keys  cmdline.Interrupts
	feed  *follow.Feed
	asks  *approvalPrompt
	tally *tally // shows the run

	run, session string
	aborting     bool
	detach       bool          // Ctrl-C leaves the run alone
	limit        time.Duration // of the run; 0: none
	late         bool          // the limit was reached
	broken       error         // why approvals cannot be answered any more

	// doubt says that the run's end may have been missed; horizon then is the
	// event up to which it may still be found.
	doubt   bool
	horizon *uint64

	missed bool // events of the message that is made, or of one before it

	// Where events may be missed, and the run may have ended before this reader was there.
	answered bool // an answer was shown whole
	gone     bool // the run was not there at the last look
}

// errTimeUp says that --timeout has passed.
var errTimeUp = errors.New("the time is up")

// runView shows the events of one run.
type runView interface {
	event(ev protocol.Event, raw []byte)
}

// follow returns nil for a completed run, a *quietExit for another end. The
// first Ctrl-C aborts the run, wherever in a step it falls.
func (w *watch) follow() error {
	for {
		done, err := w.step()
		if w.isCut(err) {
			err = w.abort()
		}
		if err != nil || done {
			return err
		}
		if err := w.a.out.Failure(); err != nil {
			return err
		}
	}
}

// isCut reports that the run is to be aborted now.
func (w *watch) isCut(err error) bool {
	if w.aborting || w.keys.Hard.Err() != nil {
		return false
	}
	switch {
	case errors.Is(err, errTimeUp):
		w.late = true
		w.a.complain(fmt.Sprintf("--timeout: the run has not ended within %s", w.limit))
		return true
	case errors.Is(err, cmdline.ErrInterrupted) && w.detach:
		w.a.notef("the run goes on; nous wait %s waits for its end, nous abort ends it", w.session)
		return false
	}
	return errors.Is(err, cmdline.ErrInterrupted)
}

// step goes on by one event, or by one question about lost ones.
func (w *watch) step() (done bool, err error) {
	if w.doubt {
		return false, w.askWhetherActive()
	}
	if w.horizon != nil && w.feed.Last() >= *w.horizon {
		return true, w.endedUnseen(nil)
	}
	look := time.Duration(0)
	if w.feed.First.Lacks != nil {
		look = w.a.look
	}
	var h follow.Update
	err = w.asks.typed(w.patient(), func(ctx context.Context) (err error) {
		h, err = w.feed.Next(ctx, look)
		return err
	})
	switch {
	case errors.Is(err, follow.ErrQuiet):
		return w.look()
	case err != nil:
		return false, err
	}
	switch h := h.(type) {
	case follow.Connected:
		w.doubt, w.missed = w.doubt || h.Gap, w.missed || h.Gap
	case follow.Gap:
		w.a.notef("%s", h.Message)
		w.doubt, w.missed = true, true
	case follow.Line:
		if end := w.applyLine(h); end != nil {
			return w.ended(end)
		}
		if w.broken != nil {
			return false, errors.Join(w.broken, w.abort())
		}
	}
	return false, nil
}

// ended is the end of a run that was seen. Where events may be missed it may be
// all that was.
func (w *watch) ended(end *protocol.AgentEnd) (done bool, err error) {
	if w.feed.First.Lacks != nil && end.StopReason == protocol.StopCompleted &&
		(w.feed.LostAnswer() || !w.answered) {
		return true, w.endedUnseen(nil)
	}
	if w.lacksAnswer(*end) {
		return true, w.endedUnseen(end)
	}
	return true, w.exit(*end)
}

// lacksAnswer reports that a part of the run's answer was missed, as a reader misses it that
// is too slow. Who gets the events as they are is told that.
func (w *watch) lacksAnswer(end protocol.AgentEnd) bool {
	return w.missed && end.StopReason == protocol.StopCompleted && (!w.a.json || w.a.result)
}

func (w *watch) exit(end protocol.AgentEnd) error {
	if w.late && end.StopReason == protocol.StopAborted {
		return &quietExit{exitSpent}
	}
	return exitOfRun(end, w.tally.denied)
}

// allow says yes to what asks, but not to what goes past a limit, nor to a form, whose
// answers nobody has given.
func (w *watch) allow(one protocol.Approval) {
	option := approval.Yes(one)
	if no := approval.No(one); one.Kind != protocol.ApprovalTool && no != nil {
		option = no.ID
	}
	_, err := ask(w.keys.Hard, w.a, protocol.Approve, protocol.ApproveParams{ApprovalID: one.ApprovalID, Option: option})
	if wire := (*protocol.Error)(nil); errors.As(err, &wire) && wire.Reason() == protocol.ApprovalResolved {
		return // somebody else was faster
	}
	w.broken = err
}

// look asks a daemon whose events may be missed whether the run is still there. Its end
// may be on its way when it is not; at the second look it is not any more.
func (w *watch) look() (done bool, err error) {
	state, err := ask(w.keys.Hard, w.a, protocol.GetState, protocol.GetStateParams{})
	switch {
	case err != nil:
		return false, err
	case state.RunID == w.run:
		return false, nil
	case w.gone:
		return true, w.endedUnseen(nil)
	}
	w.gone = true
	return false, nil
}

// patient is the context that the next Ctrl-C ends.
func (w *watch) patient() context.Context {
	if w.aborting {
		return w.keys.Hard
	}
	return w.keys.Soft
}

// applyLine shows an event of the run, and returns the one that ends it.
func (w *watch) applyLine(line follow.Line) *protocol.AgentEnd {
	if line.Err != nil {
		w.a.complain(line.Err.Error())
		return nil
	}
	ev := line.Event.Event
	if ev.Where().RunID != w.run {
		return nil
	}
	if end, ok := ev.(protocol.AgentEnd); ok && w.lacksAnswer(end) {
		return &end // it is told when the answer is there
	}
	w.tally.event(ev, line.Raw)
	w.asks.see(ev)
	if _, begins := ev.(protocol.MessageStart); begins {
		w.missed = false
	}
	if message, ok := ev.(protocol.MessageEnd); ok && message.Role == "assistant" {
		w.answered = true
	}
	if end, ok := ev.(protocol.AgentEnd); ok {
		return &end
	}
	return nil
}

func (w *watch) abort() error {
	w.aborting = true
	return w.a.abortRun(w.keys.Hard, protocol.AbortParams{
		Scope: protocol.Scope{SessionID: w.session}, RunID: w.run,
	})
}

// askWhetherActive asks whether the run is still active. If it is not, its end is among
// the events up to the horizon or was missed. The horizon is asked for after
// the run is known to be over, so that its end cannot lie beyond it.
func (w *watch) askWhetherActive() error {
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: w.session}}
	state, err := ask(w.keys.Hard, w.a, protocol.GetState, p)
	if err == nil && state.RunID != w.run {
		state, err = ask(w.keys.Hard, w.a, protocol.GetState, p)
	}
	if errors.Is(err, client.ErrLost) || isNoDaemon(err) {
		_, err := w.feed.Reconnect(w.patient(), err)
		return err // in doubt still
	}
	if err != nil {
		return err
	}
	w.doubt, w.horizon = false, nil
	w.asks.catchUp(w.run, state.PendingApprovals)
	if state.RunID != w.run {
		w.horizon = &state.LastSeq
	}
	return nil
}

func isNoDaemon(err error) bool {
	var gone *client.NoDaemonError
	return errors.As(err, &gone)
}

// endedUnseen makes up for the missed answer of a run, or its missed end, which is nil then,
// with what the session remembers of it.
func (w *watch) endedUnseen(seen *protocol.AgentEnd) error {
	w.a.notef("%s has ended; its last answer, from the session:", w.run)
	c, err := w.a.dial(w.keys.Hard)
	if err != nil {
		return err
	}
	defer c.Close()
	var last protocol.Message
	var text jsontext.Value // last, as the daemon has it
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: w.session}}
	for page, err := range client.Pages(p, client.Messages(w.keys.Hard, sender{w.a, c})) {
		if err != nil {
			return err
		}
		for _, raw := range page.Messages {
			var m protocol.Message
			if err := json.Unmarshal(raw, &m); err != nil {
				return fmt.Errorf("decode message: %w", err)
			}
			if (m.RunID == w.run || w.feed.First.Lacks != nil && m.RunID == "") && m.Role == "assistant" {
				last, text = m, raw
			}
		}
	}
	var end protocol.AgentEnd
	if seen != nil {
		end = *seen
	} else {
		end = w.endOf(last)
	}
	switch {
	case text == nil:
		return fmt.Errorf("%s is not on the session's current branch", w.run)
	case w.a.json && !w.a.result:
		w.a.printJSON(text)
	default:
		w.tally.unseen(last.Text, end)
	}
	return w.exit(end)
}

// endOf is how a run has ended whose end was missed: as the session tells it, or else as
// its last message does.
func (w *watch) endOf(last protocol.Message) protocol.AgentEnd {
	state, err := ask(w.keys.Hard, w.a, protocol.GetState, protocol.GetStateParams{
		Scope: protocol.Scope{SessionID: w.session},
	})
	if run := state.LastRun; err == nil && run != nil && run.RunID == w.run {
		return protocol.AgentEnd{StopReason: run.StopReason, Error: run.Error}
	}
	switch last.StopReason {
	case protocol.StopAborted, protocol.StopError:
		return protocol.AgentEnd{StopReason: last.StopReason}
	}
	return protocol.AgentEnd{StopReason: protocol.StopCompleted}
}

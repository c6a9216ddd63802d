// Package runs follows one run to its end, across a lost connection and a restarted daemon, shows it line
// by line, and asks for its approvals where a person is there: it is what nous prompt does after it has
// sent its text.
//
// All of it belongs to one goroutine, but for the reader of what is typed. The package refuses to start
// a run, and to know an exit status: its caller says what an end means.
package runs

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

// Watch follows one run to its end, across a lost connection and a restarted
// daemon.
type Watch struct {
	Console *Console
	Keys    cmdline.Interrupts
	Feed    *follow.Feed
	Asks    *ApprovalPrompt
	Tally   *Tally // shows the run

	Run, Session string
	Detach       bool          // Ctrl-C leaves the run alone
	Limit        time.Duration // of the run; 0: none
	// Doubt says that the run's end may have been missed.
	Doubt bool
	// Abort aborts the run, and says so.
	Abort func(context.Context, protocol.AbortParams) error
	// Exit is what the end of a run means for who has waited for it: denied, a call was; late, the
	// limit has ended it.
	Exit func(end protocol.AgentEnd, denied, late bool) error

	aborting bool
	late     bool              // the limit was reached
	broken   error             // why approvals cannot be answered any more
	horizon  *uint64           // the event up to which an end that is in doubt may still be found
	latest   *protocol.LastRun // how the session's latest run had ended then

	missed bool // events of the message that is made, or of one before it

	// Where events may be missed, and the run may have ended before this reader was there.
	answered bool // an answer was shown whole
	gone     bool // the run was not there at the last look
}

// ErrTimeUp says that --timeout has passed.
var ErrTimeUp = errors.New("the time is up")

// View shows the events of one run. raw is an event as it came.
type View interface {
	Event(ev protocol.Event, raw []byte)
}

// Follow blocks until the run has ended, and returns what Exit makes of the end. The
// first Ctrl-C aborts the run, wherever in a step it falls.
func (w *Watch) Follow() error {
	for {
		done, err := w.step()
		if w.isCut(err) {
			err = w.abort()
		}
		if err != nil || done {
			return err
		}
		if err := w.Console.Output.Failure(); err != nil {
			return err
		}
	}
}

// isCut reports that the run is to be aborted now.
func (w *Watch) isCut(err error) bool {
	if w.aborting || w.Keys.Hard.Err() != nil {
		return false
	}
	switch {
	case errors.Is(err, ErrTimeUp):
		w.late = true
		w.Tally.late = fmt.Sprintf("--timeout: the run has not ended within %s", w.Limit)
		w.Console.Complain(w.Tally.late)
		return true
	case errors.Is(err, cmdline.ErrInterrupted) && w.Detach:
		w.Console.Notef("the run goes on; nous wait %s waits for its end, nous --session %[1]s abort ends it", w.Session)
		return false
	}
	return errors.Is(err, cmdline.ErrInterrupted)
}

// step goes on by one event, or by one question about lost ones.
func (w *Watch) step() (done bool, err error) {
	if w.Doubt {
		return false, w.askWhetherActive()
	}
	if w.horizon != nil && w.Feed.Last() >= *w.horizon {
		return true, w.endedUnseen(nil)
	}
	look := time.Duration(0)
	if w.Feed.First.Lacks != nil {
		look = w.Console.Quiet
	}
	var h follow.Update
	err = w.Asks.Typed(w.patient(), func(ctx context.Context) (err error) {
		h, err = w.Feed.Next(ctx, look)
		return err
	})
	switch {
	case errors.Is(err, follow.ErrQuiet):
		return w.checkActive()
	case err != nil:
		return false, err
	}
	switch h := h.(type) {
	case follow.Connected:
		w.Doubt, w.missed = w.Doubt || h.Gap, w.missed || h.Gap
	case follow.Gap:
		w.Console.Notef("%s", h.Message)
		w.Doubt, w.missed = true, true
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
func (w *Watch) ended(end *protocol.AgentEnd) (done bool, err error) {
	if w.Feed.First.Lacks != nil && end.StopReason == protocol.StopCompleted &&
		(w.Feed.LostAnswer() || !w.answered) {
		return true, w.endedUnseen(nil)
	}
	if w.lacksAnswer(*end) {
		return true, w.endedUnseen(end)
	}
	return true, w.exit(*end)
}

// lacksAnswer reports that a part of the run's answer was missed, as a reader misses it that
// is too slow. Who gets the events as they are is told that.
func (w *Watch) lacksAnswer(end protocol.AgentEnd) bool {
	return w.missed && end.StopReason == protocol.StopCompleted && (!w.Console.JSON || w.Console.Result)
}

func (w *Watch) exit(end protocol.AgentEnd) error {
	return w.Exit(end, w.Tally.denied, w.late && end.StopReason == protocol.StopAborted)
}

// Allow says yes to what asks, but not to what goes past a limit, nor to a form, whose
// answers nobody has given.
func (w *Watch) Allow(one protocol.Approval) {
	option := approval.Yes(one)
	if no := approval.No(one); one.Kind != protocol.ApprovalTool && no != nil {
		option = no.ID
	}
	p := protocol.ApproveParams{ApprovalID: one.ApprovalID, Option: option}
	_, err := client.Call(w.Keys.Hard, w.Console.Daemon, protocol.Approve, p)
	if wire := (*protocol.Error)(nil); errors.As(err, &wire) && wire.Reason() == protocol.ApprovalResolved {
		return // somebody else was faster
	}
	w.broken = err
}

// checkActive asks a daemon whose events may be missed whether the run is still there. Its end
// may be on its way when it is not; at the second look it is not any more.
func (w *Watch) checkActive() (done bool, err error) {
	state, err := client.Call(w.Keys.Hard, w.Console.Daemon, protocol.GetState, protocol.GetStateParams{})
	switch {
	case err != nil:
		return false, err
	case state.RunID == w.Run:
		return false, nil
	case w.gone:
		return true, w.endedUnseen(nil)
	}
	w.gone = true
	return false, nil
}

// patient is the context that the next Ctrl-C ends.
func (w *Watch) patient() context.Context {
	if w.aborting {
		return w.Keys.Hard
	}
	return w.Keys.Soft
}

// applyLine shows an event of the run, and returns the one that ends it.
func (w *Watch) applyLine(line follow.Line) *protocol.AgentEnd {
	if line.Err != nil {
		w.Console.Complain(line.Err.Error())
		return nil
	}
	ev := line.Event.Event
	if ev == nil || ev.Where().RunID != w.Run {
		w.seeOther(line)
		return nil
	}
	end, over := ev.(protocol.AgentEnd)
	if over && w.lacksAnswer(end) {
		return &end // it is told when the answer is there
	}
	if over {
		w.Asks.End() // children in the background may ask on
	}
	w.show(ev, line.Raw)
	w.Asks.See(ev)
	if _, begins := ev.(protocol.MessageStart); begins {
		w.missed = false
	}
	if message, ok := ev.(protocol.MessageEnd); ok && message.Role == "assistant" {
		w.answered = true
	}
	if over {
		return &end
	}
	return nil
}

// show shows an event of the run. What is open to be answered is offered again behind it, but not
// behind each piece of a text.
func (w *Watch) show(ev protocol.Event, raw []byte) {
	status, is := ev.(protocol.Status)
	if !is || status.Code != protocol.StatusApprovalRequested && status.Code != protocol.StatusApprovalResolved {
		w.Asks.Pause()
	}
	w.Tally.Event(ev, raw)
	switch ev.(type) {
	case protocol.MessageUpdate, protocol.ToolUpdate, protocol.AgentEnd:
	default:
		w.Asks.Resume()
	}
}

func (w *Watch) abort() error {
	w.aborting = true
	return w.Abort(w.Keys.Hard, protocol.AbortParams{
		Scope: protocol.Scope{SessionID: w.Session}, RunID: w.Run,
	})
}

// askWhetherActive asks whether the run is still active. If it is not, its end is among
// the events up to the horizon or was missed. The horizon is asked for after
// the run is known to be over, so that its end cannot lie beyond it.
func (w *Watch) askWhetherActive() error {
	state, err := w.stateOf(w.Session)
	if err == nil && state.RunID != w.Run {
		state, err = w.stateOf(w.Session)
	}
	var waiting []protocol.Approval
	if err == nil {
		waiting, err = w.waitingFor(state)
	}
	if errors.Is(err, client.ErrLost) || noDaemon(err) {
		_, err := w.Feed.Reconnect(w.patient(), err)
		return err // in doubt still
	}
	if err != nil {
		return err
	}
	w.Doubt, w.horizon = false, nil
	w.Asks.CatchUp(waiting)
	if state.RunID != w.Run {
		w.horizon, w.latest = &state.LastSeq, state.LastRun
	}
	return nil
}

// endedUnseen makes up for the missed answer of a run, or its missed end, which is nil then,
// with what the session remembers of it.
func (w *Watch) endedUnseen(seen *protocol.AgentEnd) error {
	var last protocol.Message
	var text jsontext.Value // last, as the daemon has it
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: w.Session}}
	for page, err := range client.Pages(p, client.Messages(w.Keys.Hard, w.Console.Daemon)) {
		if err != nil {
			return err
		}
		for _, raw := range page.Messages {
			var m protocol.Message
			if err := json.Unmarshal(raw, &m); err != nil {
				return fmt.Errorf("decode message: %w", err)
			}
			if (m.RunID == w.Run || w.Feed.First.Lacks != nil && m.RunID == "") && m.Role == "assistant" {
				last, text = m, raw
			}
		}
	}
	if text == nil && seen == nil && !w.isLatest() {
		return fmt.Errorf("%s is not on the session's current branch", w.Run)
	}
	end := w.endOf(last)
	if seen != nil {
		end = *seen
	}
	if text == nil {
		w.Console.Notef("%s has ended without an answer", w.Run)
	} else {
		w.Console.Notef("%s has ended; its last answer, from the session:", w.Run)
	}
	if w.Console.JSON && !w.Console.Result {
		if text != nil {
			w.Console.JSONLine(text)
		}
		w.Console.explainEnd(end)
	} else {
		w.Tally.unseen(last.Text, end)
	}
	return w.exit(end)
}

// isLatest reports that the session knows how this run has ended.
func (w *Watch) isLatest() bool { return w.latest != nil && w.latest.RunID == w.Run }

// endOf is how a run has ended whose end was missed: as the session tells it, or else as
// its last message does.
func (w *Watch) endOf(last protocol.Message) protocol.AgentEnd {
	if w.isLatest() {
		return protocol.AgentEnd{StopReason: w.latest.StopReason, Error: w.latest.Error}
	}
	switch last.StopReason {
	case protocol.StopAborted, protocol.StopError:
		return protocol.AgentEnd{StopReason: last.StopReason}
	}
	return protocol.AgentEnd{StopReason: protocol.StopCompleted}
}

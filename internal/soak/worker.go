package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

const (
	retryTime = 50 * time.Millisecond // between tries to reach a daemon that restarts
	lookTime  = 20 * time.Millisecond // between looks at a run that goes on
)

// worker is a client that uses one session after the other.
type worker struct {
	world *world
	rng   *rand.Rand
	n     int
	keys  int
	conn  *client.Client

	session  string
	accepted map[string]bool // inputs
}

func (w *worker) run(ctx context.Context) {
	defer w.hangUp()
	first, cancel := context.WithTimeout(context.WithoutCancel(ctx), hang) // is told to its end, however short the time is
	defer cancel()
	if w.story(first) {
		w.check()
	}
	for ctx.Err() == nil {
		if w.story(ctx) {
			w.check()
		}
	}
}

func (w *worker) hangUp() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// story is one session, from its making until nothing goes on in it. False: there
// was no time.
func (w *worker) story(ctx context.Context) bool {
	made, err := command(ctx, w, protocol.NewSession, protocol.NewSessionParams{Title: fmt.Sprintf("worker %d", w.n)})
	if err != nil {
		return false
	}
	w.session, w.accepted = made.SessionID, map[string]bool{}
	w.world.report.count("sessions")
	if w.rng.IntN(3) == 0 {
		w.do(command(ctx, w, protocol.SetModel, protocol.SetModelParams{Scope: w.scope(), Model: "local/soak"}))
	}
	for range 2 + w.rng.IntN(3) {
		w.prompt(ctx)
		if !w.idle(ctx) {
			return false
		}
	}
	switch w.rng.IntN(4) {
	case 0:
		w.do(command(ctx, w, protocol.CompactSession, protocol.CompactSessionParams{Scope: w.scope()}))
	case 1:
		w.do(command(ctx, w, protocol.BranchSession, protocol.BranchSessionParams{SessionID: w.session, Activate: new(bool)}))
	}
	return w.idle(ctx)
}

func (w *worker) scope() protocol.Scope { return protocol.Scope{SessionID: w.session} }

// do takes a command's outcome in: refusals are the daemon's to make, and what goes
// wrong inside it is a violation.
func (w *worker) do(_ any, err error) {
	var wire *protocol.Error
	if errors.As(err, &wire) && wire.Code == protocol.InternalError {
		w.world.report.violation("%s: %v", w.world.name, err)
	}
}

func (w *worker) key() string {
	w.keys++
	return fmt.Sprintf("k%d-%d", w.n, w.keys)
}

// prompt starts a run and does something to it.
func (w *worker) prompt(ctx context.Context) {
	wait := false
	a, err := command(ctx, w, protocol.Prompt, protocol.PromptParams{
		Scope: w.scope(), Text: texts[w.rng.IntN(len(texts))],
		Wait: &wait, IdempotencyKey: w.key(),
	})
	if w.do(a, err); err != nil || a.Accepted == nil {
		return
	}
	w.accept(a.Accepted.InputID)
	switch w.rng.IntN(5) {
	case 0:
		s, err := command(ctx, w, protocol.Steer, protocol.SteerParams{
			Scope: w.scope(), Text: "no, " + texts[0],
			IfIdle: protocol.KindPrompt, IdempotencyKey: w.key(),
		})
		if w.do(s, err); err == nil {
			w.accept(s.InputID)
		}
	case 1:
		f, err := command(ctx, w, protocol.FollowUp, protocol.FollowUpParams{
			Scope: w.scope(), Text: "and " + texts[1],
			IfIdle: protocol.KindPrompt, IdempotencyKey: w.key(),
		})
		if w.do(f, err); err == nil {
			w.accept(f.InputID)
		}
	case 2:
		pause(ctx, time.Duration(w.rng.IntN(100))*time.Millisecond)
		w.do(command(ctx, w, protocol.Abort, protocol.AbortParams{Scope: w.scope()}))
		w.world.report.count("aborts")
	}
}

func (w *worker) accept(input string) {
	w.accepted[input] = true
	w.world.report.count("texts accepted")
}

// idle waits until nothing goes on in the session, and answers what is asked, or
// aborts the run that asks. False: there was no time.
func (w *worker) idle(ctx context.Context) bool {
	for began := time.Now(); ; pause(ctx, lookTime) {
		s, err := command(ctx, w, protocol.GetState, protocol.GetStateParams{Scope: w.scope()})
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			w.world.report.violation("%s: the state of %s: %v", w.world.name, w.session, err)
			return false
		case s.RunState == protocol.StateIdle:
			return true
		case time.Since(began) > hang:
			w.world.report.violation("%s: the run %s of %s does not end: %s", w.world.name, s.RunID, w.session, s.RunState)
			w.do(command(ctx, w, protocol.Abort, protocol.AbortParams{Scope: w.scope()}))
			return false
		}
		for _, q := range s.PendingApprovals {
			if q.SessionID == w.session {
				w.answer(ctx, q)
			}
		}
	}
}

// answer says yes or no, or waits for a while and gives up.
func (w *worker) answer(ctx context.Context, q protocol.Approval) {
	option := [...]string{"once", "deny", ""}[w.rng.IntN(3)]
	if option == "" {
		pause(ctx, time.Second)
		w.do(command(ctx, w, protocol.Abort, protocol.AbortParams{Scope: w.scope()}))
		w.world.report.count("questions left open")
		return
	}
	w.do(command(ctx, w, protocol.Approve, protocol.ApproveParams{ApprovalID: q.ApprovalID, Option: option}))
	w.world.report.count("questions answered")
}

// check accounts for the session, by its journal.
func (w *worker) check() {
	path := filepath.Join(w.world.dir, "state", "sessions", w.session+".jsonl")
	text, err := os.ReadFile(path)
	if err == nil {
		err = account(text, w.accepted)
	}
	if err != nil {
		w.world.report.violation("%s: session %s: %v", w.world.name, w.session, err)
	}
	w.world.report.count("journals checked")
}

// command sends a command, again where the connection is lost or the daemon stops, until
// there is an answer. Now and then it loses the connection itself.
func command[P protocol.Params, R protocol.Reply](ctx context.Context, w *worker, def protocol.Def[P, R], p P) (r R,
	err error,
) {
	if w.rng.IntN(20) == 0 && w.conn != nil {
		w.hangUp()
		w.world.report.count("connections cut")
	}
	for {
		if w.conn == nil {
			w.conn, err = client.Dial(ctx, w.world.socket())
		}
		if w.conn != nil {
			r, err = client.Call(ctx, w.conn, def, p)
		}
		var wire *protocol.Error
		switch {
		case err == nil, ctx.Err() != nil:
			return r, err
		case errors.As(err, &wire) && wire.Reason() != protocol.ShuttingDown:
			return r, err
		}
		w.hangUp()
		pause(ctx, retryTime)
	}
}

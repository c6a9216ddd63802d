package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

// What nous does where the daemon is another v1 core, one that has the frozen
// commands only.

// call is client.Call that does not wait for ever.
func call[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R], p P) (R, error) {
	ctx, done := a.bounded(ctx, p)
	defer done()
	var r R
	payload, err := raw(ctx, a, c, def, p)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%s: decode reply: %w", def.Name(), err)
	}
	return r, nil
}

// bounded ends the wait for an answer that is given at once, and reports one
// that may take its time.
func (a *app) bounded(ctx context.Context, p protocol.Params) (context.Context, func()) {
	ctx, cancel := client.Bounded(ctx, p, a.answer)
	if !client.AnsweredLate(p) {
		return ctx, cancel
	}
	late := time.AfterFunc(a.answer, func() { a.notef("the daemon has not answered yet; Ctrl-C stops the waiting") })
	return ctx, func() { late.Stop(); cancel() }
}

// meet asks which daemon it is, and refuses what an older core would leave
// undone without a word.
func (a *app) meet(ctx context.Context, c *client.Client, p *protocol.PromptParams) (old bool, err error) {
	old, err = a.older(ctx, c, p.SessionID)
	switch {
	case err != nil || !old:
		return old, err
	case len(p.Attachments) > 0:
		return old, errors.New("this core is an older one and takes no images")
	case p.IdempotencyKey != "":
		return old, errors.New("this core is an older one and knows no --key: it would start another run")
	}
	return old, nil
}

// older tells whether the daemon is an older core. Such a one works in its active
// session only: another one that is asked for is an error.
func (a *app) older(ctx context.Context, c *client.Client, session string) (bool, error) {
	state, err := call(ctx, a, c, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
	if err != nil || state.Daemon.Epoch != "" || session == "" {
		return err == nil && state.Daemon.Epoch == "", err
	}
	active, err := a.activeOf(ctx, c, state)
	if err == nil && active != session {
		err = fmt.Errorf("this core is an older one and works in its active session only, which is %s; run nous switch %s first", active, session)
	}
	return true, err
}

// activeOf is the session that a state is of, which an older core may leave out.
func (a *app) activeOf(ctx context.Context, c *client.Client, state protocol.State) (string, error) {
	if state.SessionID != "" {
		return state.SessionID, nil
	}
	all, err := call(ctx, a, c, protocol.GetMessages, protocol.GetMessagesParams{})
	return all.SessionID, err
}

// checkSession asks before a command that names a session whether the daemon
// goes by that name.
func (a *app) checkSession(ctx context.Context, c *client.Client, p protocol.Params) error {
	if _, reads := p.(protocol.GetMessagesParams); reads || a.session == "" || !reflect.ValueOf(p).FieldByName("Scope").IsValid() {
		return nil
	}
	_, err := a.older(ctx, c, a.session)
	return err
}

// sendPrompt prompts. An older core does not queue a prompt that finds a run:
// what --if-running asks for is done with its own commands.
func (a *app) sendPrompt(ctx context.Context, c *client.Client, p protocol.PromptParams, old bool) (protocol.PromptReply, error) {
	reply, err := call(ctx, a, c, protocol.Prompt, p)
	var wire *protocol.Error
	if !old || p.StreamingBehavior == "" || !errors.As(err, &wire) || wire.Code != protocol.CommandRejected {
		return reply, err
	}
	queue := protocol.SteerParams{Scope: p.Scope, Text: p.Text}
	var queued protocol.InputAccepted
	if p.StreamingBehavior == protocol.KindSteer {
		queued, err = call(ctx, a, c, protocol.Steer, queue)
	} else {
		queued, err = call(ctx, a, c, protocol.FollowUp, protocol.FollowUpParams(queue))
	}
	return protocol.PromptReply{Accepted: &protocol.PromptAccepted{RunID: queued.RunID, SessionID: cmp.Or(queued.SessionID, p.SessionID)}}, err
}

// branchOfOlder completes a branch for an older core, which branches at a
// session's end and may not say which session is the active one.
func (a *app) branchOfOlder(ctx context.Context, p *protocol.BranchSessionParams) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	state, err := call(ctx, a, c, protocol.GetState, protocol.GetStateParams{})
	if err != nil || state.Daemon.Epoch != "" {
		return err
	}
	if p.LeafID != "" {
		return errors.New("this core is an older one and branches at the end of a session only, without --leaf")
	}
	if p.SessionID == "" {
		p.SessionID, err = a.activeOf(ctx, c, state)
	}
	return err
}

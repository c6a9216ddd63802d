package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// emulate has an older core do a command as far as its own commands can.
func (k *core) emulate(ctx context.Context, c *Client, command string, params protocol.Params) (jsontext.Value, error) {
	if err := k.refusal(command, params); err != nil {
		return nil, err
	}
	if id := sessionOf(params); id != "" {
		if err := k.meet(ctx, c, id); err != nil {
			return nil, err
		}
	}
	switch p := params.(type) {
	case protocol.PromptParams:
		return k.prompt(ctx, c, p)
	case protocol.SteerParams:
		return k.queue(ctx, c, protocol.KindSteer, p)
	case protocol.FollowUpParams:
		return k.queue(ctx, c, protocol.KindFollowUp, protocol.SteerParams(p))
	case protocol.BranchSessionParams:
		return k.branch(ctx, c, p)
	case protocol.SwitchSessionParams, protocol.NewSessionParams:
		return k.activate(ctx, c, command, params)
	}
	return k.plain(ctx, c, command, params)
}

// refusal is why an older core cannot do a command, or would leave a part of it undone
// without a word.
func (k *core) refusal(command string, params protocol.Params) error {
	branch, branches := params.(protocol.BranchSessionParams)
	switch {
	case isAdded(command) && !k.hasLists():
		return &OlderError{Command: command, Err: &protocol.Error{
			Code: protocol.InvalidCommand, Message: fmt.Sprintf("%s: %q", protocol.UnknownCommand, command),
		}}
	case imagesOf(params):
		return errNoImages
	case branches && branch.LeafID != "":
		return errNoEntry
	}
	return nil
}

// Refusal is what Call would answer of itself, an *OlderError or nil, as far as it is known
// what daemon it is.
func Refusal[P protocol.Params, R protocol.Reply](c *Client, def protocol.Def[P, R], p P) error {
	if c.core.is() != older {
		return nil
	}
	return c.core.refusal(def.Name(), p)
}

// prompt prompts. An older core does not queue a prompt that finds a run.
func (k *core) prompt(ctx context.Context, c *Client, p protocol.PromptParams) (jsontext.Value, error) {
	p.IdempotencyKey = "" // it keeps none
	payload, err := k.text(ctx, c, protocol.KindPrompt, p.Text, p)
	if p.StreamingBehavior == "" || !isStateRejection(err) {
		return payload, err
	}
	payload, err = k.text(ctx, c, p.StreamingBehavior, p.Text, protocol.SteerParams{Scope: p.Scope, Text: p.Text})
	if err != nil {
		return nil, err
	}
	var queued protocol.InputAccepted
	if err := json.Unmarshal(payload, &queued); err != nil {
		return nil, fmt.Errorf("decode reply: %w", err)
	}
	return json.Marshal(protocol.PromptAccepted{
		Command: protocol.Prompt.Name(), RunID: queued.RunID, SessionID: cmp.Or(queued.SessionID, p.SessionID),
	})
}

// queue steers, or queues a follow-up. An older core does not start a run where there is none.
func (k *core) queue(ctx context.Context, c *Client, kind protocol.Kind, p protocol.SteerParams) (jsontext.Value,
	error,
) {
	p.IdempotencyKey = ""
	payload, err := k.text(ctx, c, kind, p.Text, p)
	if p.IfIdle != protocol.KindPrompt || !isStateRejection(err) {
		return payload, err
	}
	return k.text(ctx, c, protocol.KindPrompt, p.Text, protocol.PromptParams{
		Scope: p.Scope, Text: p.Text,
		Wait: new(bool),
	})
}

// text sends a text, which the readers of events may have to know.
func (k *core) text(ctx context.Context, c *Client, kind protocol.Kind, text string, p protocol.Params) (jsontext.Value,
	error,
) {
	k.eachFill(func(f *Filler) { f.Sent(kind, text) })
	payload, err := c.roundTrip(ctx, string(kind), p)
	if refused := (*protocol.Error)(nil); errors.As(err, &refused) {
		k.eachFill(func(f *Filler) { f.Unsent(kind) })
	}
	return payload, err
}

// isStateRejection tells whether a text was refused for the run it found, or did not find.
func isStateRejection(err error) bool {
	var wire *protocol.Error
	if !errors.As(err, &wire) || wire.Code != protocol.CommandRejected {
		return false
	}
	why := strings.ReplaceAll(strings.ToLower(wire.Message), " ", "_")
	return strings.Contains(why, "active_run") || strings.Contains(why, "in_progress") || strings.Contains(why, "running")
}

// branch branches at a session's end, and needs the session's name for it.
func (k *core) branch(ctx context.Context, c *Client, p protocol.BranchSessionParams) (jsontext.Value, error) {
	if p.SessionID == "" {
		var err error
		if p.SessionID, err = k.findActive(ctx, c, false); err != nil {
			return nil, err
		}
	}
	return k.activate(ctx, c, protocol.BranchSession.Name(), p)
}

// activate sends a command whose session is the active one from then on.
func (k *core) activate(ctx context.Context, c *Client, command string, p protocol.Params) (jsontext.Value, error) {
	payload, err := c.roundTrip(ctx, command, p)
	var r protocol.Session
	if err == nil && json.Unmarshal(payload, &r) == nil {
		k.setActive(r.SessionID)
	}
	return payload, err
}

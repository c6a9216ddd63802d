package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// query sends one command and prints its reply: as it came with --json,
// through show otherwise.
func query[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P,
	show func(R),
) error {
	_, err := fetch(ctx, a, def, p, show)
	return err
}

// fetch is query for those who want the reply too.
func fetch[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P,
	show func(R),
) (R, error) {
	var r R
	payload, err := client.Raw(ctx, a.daemonSender(), def, p)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%s: decode reply: %w", def.Name(), err)
	}
	if a.json {
		a.printJSON(payload)
	} else {
		show(r)
	}
	return r, nil
}

// act does something that a person can do, and prints what came of it: the daemon's reply as it
// came with --json, through show otherwise.
func act[R protocol.Reply](a *app, do func(client.Sender) (R, error), show func(R)) (R, error) {
	last := &keeper{Sender: a.daemonSender()}
	r, err := do(last)
	switch {
	case err != nil:
	case a.json:
		a.printJSON(last.reply)
	default:
		show(r)
	}
	return r, err
}

// keeper keeps the last reply as it came.
type keeper struct {
	client.Sender
	reply jsontext.Value
}

// Send is client.Sender.
func (k *keeper) Send(ctx context.Context, command string, p protocol.Params) (reply jsontext.Value, err error) {
	reply, err = k.Sender.Send(ctx, command, p)
	k.reply = reply
	return reply, err
}

// ask sends one command on a connection of its own and returns its reply.
func ask[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P) (R, error) {
	return client.Call(ctx, a.daemonSender(), def, p)
}

// call is client.Call that does not wait for ever, and sends again what a restart kept from
// being done.
func call[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R],
	p P,
) (R, error) {
	return client.Call(ctx, sender{a, c}, def, p)
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

// A command that the daemon did not do, as it goes or has gone, is sent again to the one
// that comes next: nobody is refused because of a restart.

// keyOr is the key that a text is sent with: the user's, or one of its own.
func keyOr(given string) string { return cmp.Or(given, uuid.NewString()) }

// send sends a command, and again as follow.Resend has it.
func (a *app) send(ctx context.Context, c *client.Client, command string, p protocol.Params) (jsontext.Value, error) {
	var next *client.Client
	defer func() {
		if next != nil {
			_ = next.Close()
		}
	}()
	return follow.Resend(p, c, func(c *client.Client) (jsontext.Value, error) { return c.Send(ctx, command, p) },
		func(before *client.Client, why error) *client.Client {
			after, err := a.anew(ctx, before, why)
			if err != nil {
				switch {
				case ctx.Err() != nil:
				case errors.Is(why, client.ErrLost):
					a.notef("%v; it may have been done", err)
				default:
					a.notef("%v", err)
				}
				return nil
			}
			if next != nil {
				_ = next.Close()
			}
			next = after
			return next
		})
}

// sender sends commands as this program does: over one connection, or where that is nil over
// one for each command, waiting as long as a.bounded allows.
type sender struct {
	a *app
	c *client.Client
}

// Send is client.Sender.
func (s sender) Send(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	if s.c == nil {
		c, err := s.a.dial(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		s.c = c
	}
	ctx, done := s.a.bounded(ctx, p)
	defer done()
	return s.a.send(ctx, s.c, command, p)
}

// daemonSender sends each command on a connection of its own.
func (a *app) daemonSender() client.Sender { return sender{a: a} }

// anew connects again to a daemon that knows of keys, and says what it waits for. One that
// is going is waited for; after that the app is patient.
func (a *app) anew(ctx context.Context, before *client.Client, why error) (*client.Client, error) {
	if errors.Is(why, client.ErrLost) {
		a.notef("connection to the daemon lost before it answered; trying again for %s", a.patience)
	} else if a.going.CompareAndSwap(false, true) {
		a.notef("the daemon is stopping; waiting for the next one")
	}
	limited, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	c, err := follow.Next(limited, a.dialer(), before, why)
	if err != nil && !errors.Is(err, follow.ErrNoKeys) {
		err = fmt.Errorf("not back after %s: %w", a.patience, err)
	}
	return c, err
}

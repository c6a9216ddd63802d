package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// A command that the daemon did not do, as it goes or has gone, is sent again to the one
// that comes next: nobody is refused because of a restart.

// keyOr is the key that a text is sent with: the user's, or one of its own.
func keyOr(given string) string { return cmp.Or(given, uuid.NewString()) }

// raw sends a command, and again as follow.Resend has it.
func raw[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R],
	p P,
) (jsontext.Value, error) {
	var next *client.Client
	defer func() {
		if next != nil {
			_ = next.Close()
		}
	}()
	return follow.Resend(p, c, func(c *client.Client) (jsontext.Value, error) { return client.Raw(ctx, c, def, p) },
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

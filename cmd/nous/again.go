package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// A command that the daemon did not do, as it goes or has gone, is sent again to the one
// that comes next: nobody is refused because of a restart.

const (
	againPause = 50 * time.Millisecond // between tries
	goingPause = time.Second           // between questions to a daemon that is going
)

// keyOr is the key that a text is sent with: the user's, or one of its own.
func keyOr(given string) string { return cmp.Or(given, uuid.NewString()) }

// raw sends a command, and again as follow.Resend has it.
func raw[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R], p P) (jsontext.Value, error) {
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

var errNoKeys = errors.New("an older core answers now, which may do it twice: it was not sent again")

// anew connects again to a daemon that knows of keys. One that is going is waited for; after
// that the app is patient.
func (a *app) anew(ctx context.Context, before *client.Client, why error) (*client.Client, error) {
	if errors.Is(why, client.ErrLost) {
		a.notef("connection to the daemon lost before it answered; trying again for %s", a.patience)
	} else if err := a.outlast(ctx, before); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	for {
		older, err := follow.Older(limited, a.dialer(), a.answer)
		if older {
			return nil, errNoKeys
		}
		if err == nil {
			var c *client.Client
			if c, err = a.dial(limited); err == nil {
				return c, nil
			}
		}
		select {
		case <-time.After(againPause):
		case <-limited.Done():
			return nil, fmt.Errorf("not back after %s: %w", a.patience, err)
		}
	}
}

// outlast waits until a daemon that is going hangs up, or for a moment: over a fleet none
// does.
func (a *app) outlast(ctx context.Context, going *client.Client) error {
	if a.going.CompareAndSwap(false, true) {
		a.notef("the daemon is stopping; waiting for the next one")
	}
	select {
	case <-going.Gone():
	case <-time.After(goingPause):
	case <-ctx.Done():
		return errors.New("it has not stopped in time")
	}
	return nil
}

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

// A text whose answer is lost with the connection is sent again, with its idempotency
// key: the daemon does it once.

const againPause = 50 * time.Millisecond // between tries

// keyOr is the key that a text is sent with: the user's, or one of its own.
func keyOr(given string) string { return cmp.Or(given, uuid.NewString()) }

func isKeyed(params protocol.Params) bool {
	switch p := params.(type) {
	case protocol.PromptParams:
		return p.IdempotencyKey != ""
	case protocol.SteerParams:
		return p.IdempotencyKey != ""
	case protocol.FollowUpParams:
		return p.IdempotencyKey != ""
	default:
		return false
	}
}

// raw sends a command, and again where its answer was lost and it has a key.
func raw[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R], p P) (jsontext.Value, error) {
	payload, err := client.Raw(ctx, c, def, p)
	for isKeyed(p) && errors.Is(err, client.ErrLost) {
		next, wrong := a.anew(ctx)
		if wrong != nil {
			a.notef("%v; it may have been accepted", wrong)
			return nil, err
		}
		payload, err = client.Raw(ctx, next, def, p)
		_ = next.Close()
	}
	return payload, err
}

var errNoKeys = errors.New("an older core answers now, which may do it twice: it was not sent again")

// anew connects again, for as long as the app is patient, to a daemon that knows of keys.
func (a *app) anew(ctx context.Context) (*client.Client, error) {
	a.notef("connection to the daemon lost before it answered; trying again for %s", a.patience)
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

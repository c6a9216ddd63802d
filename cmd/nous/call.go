package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

// call is client.Call that does not wait for ever.
func call[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R],
	p P,
) (R, error) {
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

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/protocol"
)

// fillIn has the user fill in a form, line by line.
func (a *app) fillIn(ctx context.Context, q protocol.Approval) (jsontext.Value, error) {
	f, err := approval.NewFiller(q.Schema)
	if err != nil {
		return nil, err
	}
	a.notef("%s", approval.FormAsks(q))
	in := bufio.NewScanner(a.in)
	for !f.Done() {
		fmt.Fprint(a.err, f.Prompt())
		if !in.Scan() {
			return nil, errors.New("the form was not filled in to its end; it still waits")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := f.Fill(in.Text()); err != nil {
			a.complain(err.Error())
		}
	}
	return f.Content(), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// feed is a stream of the daemon's events that gives up after a while without a
// daemon, and reports its connection on standard error.
type feed struct {
	a      *app
	events *follow.Stream
	first  follow.Connected
}

// subscribe listens to a daemon. It fails where none listens.
func (a *app) subscribe(ctx context.Context, p protocol.SubscribeParams) (*feed, error) {
	f := &feed{a: a, events: follow.NewStream(a.dialer(), follow.Options{Filter: p, Answer: a.answer})}
	h, err := f.events.Next(ctx)
	switch h := h.(type) {
	case follow.Connected:
		f.first = h
	case follow.Disconnected:
		if err = h.Err; !errors.Is(err, client.ErrLost) || errors.As(err, new(*client.ForeignError)) {
			break
		}
		var again follow.Update // the daemon may be starting anew
		if again, err = f.await(ctx, h.Err); err == nil {
			f.first = again.(follow.Connected)
		}
	}
	return f, err
}

// next is the next Line or Gap, or the Connected after a loss. ErrLost or a
// *client.NoDaemonError says that the daemon did not come back, errLook that
// nothing has happened for a while: 0 is for ever.
func (f *feed) next(ctx context.Context, look time.Duration) (follow.Update, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if look > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, look, errLook)
	}
	defer cancel()
	h, err := f.events.Next(bounded)
	switch h := h.(type) {
	case follow.Disconnected:
		return f.await(ctx, h.Err)
	case follow.Connected: // after a wait that was cut short
		f.announce(h)
	}
	return h, err
}

// reconnect gives the connection up for a reason and makes another one.
func (f *feed) reconnect(ctx context.Context, why error) (follow.Update, error) {
	f.events.Close()
	return f.await(ctx, why)
}

// await tries to come back for as long as the app is patient.
func (f *feed) await(ctx context.Context, why error) (follow.Update, error) {
	f.a.notef("connection to the daemon lost; trying again for %s", f.a.patience)
	limited, cancel := context.WithTimeout(ctx, f.a.patience)
	defer cancel()
	for {
		h, err := f.events.Next(limited)
		var refused *protocol.Error
		switch h := h.(type) {
		case follow.Connected:
			f.announce(h)
			return h, nil
		case follow.Disconnected:
			why = h.Err
		}
		var gone *client.NoDaemonError
		switch {
		case errors.As(why, &refused):
			return nil, why
		case err == nil:
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(why, &gone):
			return nil, why
		default:
			return nil, fmt.Errorf("%w, not back after %s", client.ErrLost, f.a.patience)
		}
	}
}

func (f *feed) announce(c follow.Connected) {
	switch {
	case c.Lacks != nil:
		f.a.notef("connected again; what happened meanwhile is not known: %v", c.Lacks)
	case c.Restarted:
		f.a.notef("connected again: the daemon was restarted")
	case c.Gap:
		f.a.notef("connected again: the events up to %d are gone", c.After)
	default:
		f.a.notef("connected again")
	}
}

// interrupts are two contexts: the first Ctrl-C ends soft, the second hard.
type interrupts struct {
	soft, hard context.Context
	stop       func()
}

var errInterrupted = errors.New("interrupted")

// watchInterrupts takes over Ctrl-C until stop is called.
func watchInterrupts(ctx context.Context) interrupts {
	hard, cutHard := context.WithCancelCause(ctx)
	soft, cutSoft := context.WithCancelCause(hard)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, cut := range []context.CancelCauseFunc{cutSoft, cutHard} {
			select {
			case <-signals:
				cut(errInterrupted)
			case <-done:
				return
			}
		}
	}()
	return interrupts{soft, hard, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cutHard(nil)
	}}
}

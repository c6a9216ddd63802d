package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// feed is a subscription that can outlive its connection, and its daemon.
type feed struct {
	a      *app
	filter protocol.SubscribeParams // without a place to start
	events *client.Events
	old    bool // of an older core, which answers no subscribe
	fill   client.Filler
}

// subscribe listens to a daemon; old says that it is an older core, whose events
// come without being asked for, all of them.
func (a *app) subscribe(ctx context.Context, p protocol.SubscribeParams, old bool) (*feed, error) {
	f := &feed{a: a, old: old}
	events, err := f.listen(ctx, p)
	if err != nil {
		return nil, err
	}
	p.Epoch, p.After = "", nil
	f.filter, f.events = p, events
	return f, nil
}

func (f *feed) listen(ctx context.Context, p protocol.SubscribeParams) (*client.Events, error) {
	if f.old {
		return client.Live(ctx, f.a.socket)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.a.answer, &client.SilentError{For: f.a.answer})
	defer cancel()
	return client.Subscribe(ctx, f.a.socket, p)
}

// decode is client.Decode, with what an older core leaves out.
func (f *feed) decode(env protocol.EventEnvelope) (protocol.Event, error) {
	ev, err := client.Decode(env)
	if err == nil && f.old {
		ev = f.fill.Fill(env, ev)
	}
	return ev, err
}

func (f *feed) close() { f.events.Close() }

// resume subscribes again from the last event on, trying for as long as the
// app is patient. ErrLost or a *client.NoDaemonError says that it was in vain.
func (f *feed) resume(ctx context.Context) error {
	f.events.Close()
	p, last := f.filter, f.events.Last()
	p.Epoch, p.After = f.events.Epoch(), &last
	f.a.notef("connection to the daemon lost; trying again for %s", f.a.patience)
	limited, cancel := context.WithTimeout(ctx, f.a.patience)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		events, err := f.listen(limited, p)
		var refused *protocol.Error
		switch {
		case err == nil:
			f.announce(events)
			f.events = events
			return nil
		case errors.As(err, &refused):
			return err
		}
		select {
		case <-time.After(pause):
			continue
		case <-limited.Done():
		}
		var gone *client.NoDaemonError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &gone):
			return err
		default:
			return fmt.Errorf("%w, not back after %s", client.ErrLost, f.a.patience)
		}
	}
}

func (f *feed) announce(events *client.Events) {
	switch {
	case f.old:
		f.a.notef("connected again; what happened meanwhile is not known to this older core")
	case events.Epoch() != f.events.Epoch():
		f.a.notef("connected again: the daemon was restarted")
	case events.Gap():
		f.a.notef("connected again: the events up to %d are gone", events.Last())
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

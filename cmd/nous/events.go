package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) eventsCommand() *cobra.Command {
	var after uint64
	var epoch string
	var types []string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print events as they happen, until Ctrl-C",
		Long: `Print the daemon's events as they happen, until Ctrl-C. With --after, the events
after that one come first, as far as the daemon still has them. --json prints
the event lines as they are on the wire.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := protocol.SubscribeParams{Epoch: epoch, SessionID: a.session, Types: types}
			if cmd.Flags().Changed("after") {
				p.After = &after
			}
			switch {
			case a.several() && (p.After != nil || epoch != ""):
				return cmdline.Errorf("--after and --epoch are of one host: give %s once", a.hostFlag())
			case a.several():
				return a.eventsOfHosts(cmd.Context(), types)
			}
			return a.followEvents(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&after, "after", 0, "begin with the event after number `n` instead of now")
	flags.StringVar(&epoch, "epoch", "", "`id` of the epoch that --after counts in; nous state shows it")
	flags.StringSliceVar(&types, "types", nil, "only events of these `types`, comma-separated")
	var names []string
	for _, ev := range protocol.EventTypes() {
		names = append(names, ev.Type())
	}
	completeWords(cmd, "types", names...)
	return cmd
}

func (a *app) followEvents(ctx context.Context, p protocol.SubscribeParams) error {
	keys := watchInterrupts(ctx)
	defer keys.stop()
	if p.SessionID != "" { // the event socket would wait for it for ever
		scope, err := a.scope(keys.soft, needOne)
		if err == nil {
			_, err = ask(keys.soft, a, protocol.GetState, protocol.GetStateParams{Scope: scope})
		}
		if err != nil {
			return err
		}
		p.SessionID = scope.SessionID
	}
	f, err := a.subscribe(keys.soft, p)
	if err != nil {
		return leftOr(err)
	}
	a.noteStart(p, f.first)
	err = a.printEvents(keys.soft, f)
	f.events.Close()
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// noteStart says where the events begin, if that is not where they were asked to.
func (a *app) noteStart(p protocol.SubscribeParams, c follow.Connected) {
	switch {
	case c.Lacks != nil:
		a.notef("%v: here are all, from now on", c.Lacks)
	case p.After != nil && c.Gap && *p.After > c.After && (p.Epoch == "" || p.Epoch == c.Epoch):
		a.notef("there is no event %d yet; here is what is kept", *p.After)
	case p.Epoch != "" && p.Epoch != c.Epoch:
		a.notef("that was an earlier start of the daemon; here is what this one keeps")
	case c.Gap:
		a.notef("the events up to %d are gone", c.After)
	}
}

func (a *app) printEvents(ctx context.Context, f *feed) error {
	for {
		h, err := f.next(ctx, 0)
		if err != nil {
			return err
		}
		switch h := h.(type) {
		case follow.Line:
			err = a.printLine(h)
		case follow.Gap:
			err = a.printLine(h.Line)
		}
		if err != nil {
			return err
		}
	}
}

func (a *app) printLine(line follow.Line) error {
	if a.json {
		a.printJSON(line.Raw)
		return a.out.failure()
	}
	a.printLineOf("", line)
	return a.out.failure()
}

// printLineOf prints an event; host is where it is of, and a space, or "".
func (a *app) printLineOf(host string, line follow.Line) {
	detail, where := "", protocol.Ref{}
	if line.Err != nil {
		detail = plain.OneLine(string(line.Payload), plain.LineWidth)
	} else {
		detail, where = plain.Event(line.Event.Event), line.Where()
	}
	head := fmt.Sprintf("%6d %s %-8s", line.Seq, line.At.Local().Format("15:04:05.000"),
		plain.Tail(plain.Cell(where.RunID)))
	a.printSpans(plain.Span{Text: host + head, Look: plain.Dim},
		plain.Span{Text: strings.TrimRight(fmt.Sprintf(" %-21s %s", line.Type, plain.Cell(detail)), " ")})
}

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

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	if p.SessionID != "" { // the event socket would wait for it for ever
		scope, err := a.scope(keys.Soft, needOne)
		if err == nil {
			_, err = request(keys.Soft, a, protocol.GetState, protocol.GetStateParams{Scope: scope})
		}
		if err != nil {
			return err
		}
		p.SessionID = scope.SessionID
	}
	f, err := a.subscribe(keys.Soft, p)
	if err != nil {
		return interruptedExit(err)
	}
	a.noteStart(p, f.First)
	err = a.printEvents(keys.Soft, f)
	f.Close()
	if errors.Is(err, cmdline.ErrInterrupted) {
		return nil
	}
	return err
}

// noteStart says where the events begin, if that is not where they were asked to.
func (a *app) noteStart(p protocol.SubscribeParams, c follow.Connected) {
	switch {
	case c.Lacks != nil:
		a.Notef("%v: here are all, from now on", c.Lacks)
	case p.After != nil && c.Gap && *p.After > c.After && (p.Epoch == "" || p.Epoch == c.Epoch):
		a.Notef("there is no event %d yet; here is what is kept", *p.After)
	case p.Epoch != "" && p.Epoch != c.Epoch:
		a.Notef("that was an earlier start of the daemon; here is what this one keeps")
	case c.Gap:
		a.Notef("the events up to %d are gone", c.After)
	}
}

func (a *app) printEvents(ctx context.Context, f *follow.Feed) error {
	for {
		line, err := f.NextLine(ctx)
		if err == nil {
			err = a.printLine(line)
		}
		if err != nil {
			return err
		}
	}
}

func (a *app) printLine(line follow.Line) error {
	if a.JSON {
		a.JSONLine(line.Raw)
		return a.out.Failure()
	}
	a.printLineOf("", line)
	return a.out.Failure()
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
	a.Spans(plain.Span{Text: host + head, Look: plain.Dim},
		plain.Span{Text: strings.TrimRight(fmt.Sprintf(" %-21s %s", line.Type, plain.Cell(detail)), " ")})
}

// subscribe listens to a daemon. It fails where none listens.
func (a *app) subscribe(ctx context.Context, p protocol.SubscribeParams) (*follow.Feed, error) {
	return follow.Subscribe(ctx, a.dialer(), follow.FeedOptions{
		Options: follow.Options{Filter: p, Answer: a.answer}, Patience: a.patience, Note: a.Notef,
	})
}

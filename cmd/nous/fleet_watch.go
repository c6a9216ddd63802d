package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/via"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

const (
	drawEvery  = 50 * time.Millisecond // at most, where drawing takes long
	pauseFleet = 500 * time.Millisecond
	restFor    = 4 // times as long as drawing took, the terminal is left alone
)

func (a *app) fleetWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show the sessions of all hosts as they change",
		Long: `Show the sessions of all hosts of the fleet, or with --on of one, as they change, until
Ctrl-C: on a terminal the table, those that need somebody first, and in a pipe a line for
each change. A host that does not answer has a line, and is asked again. With --json a line
is a session as its daemon tells it, in "session", with its "host", and with "deleted":true
when it is no more, or its host has left.`,
		Example: "  nous fleet watch\n  nous fleet watch --json",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := a.openFleet()
			if err != nil {
				return err
			}
			return a.watchFleet(cmd.Context(), f)
		},
	}
}

// watchFleet goes on until Ctrl-C, or until nobody reads any more.
func (a *app) watchFleet(ctx context.Context, f *via.Fleet) error {
	b := &fleetBoard{a: a, f: f}
	b.watch = hosts.NewWatch(hosts.Options{
		Host: func(name string) hosts.Host { return hostOfFleet(f, name) }, Only: a.via.on, Raw: a.json,
		AtOnce: atOnce, Stays: fleet.PresenceTTL, Every: fleet.PresenceEvery, View: b,
	})
	return a.watching(ctx, b.run)
}

// watchHosts is watchFleet for the hosts that are named: those stay, whatever happens.
func (a *app) watchHosts(ctx context.Context, all bool) error {
	named := map[string]hosts.Host{}
	var meant []hosts.Host
	news := make(chan hosts.News, len(a.hosts))
	for _, h := range a.hosts {
		at := a.at(h)
		one := at.asHost()
		one.Events = func(ctx context.Context, tell func(follow.Line) error) error { return at.followAll(ctx, nil, tell) }
		if list := one.Sessions; !all {
			one.Sessions = func(ctx context.Context, p protocol.ListSessionsParams) (jsontext.Value, error) {
				p.Workdir = h.workdir
				return list(ctx, p)
			}
		}
		named[h.name], meant = one, append(meant, one)
		news <- hosts.News{Host: h.name, Here: true}
	}
	b := &fleetBoard{a: a}
	b.watch = hosts.NewWatch(hosts.Options{
		Host: func(name string) hosts.Host { return named[name] }, Raw: a.json,
		AtOnce: mostHosts, Every: listAgain, View: b,
	})
	return a.watching(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var following sync.WaitGroup
		defer following.Wait()
		defer cancel()
		following.Go(func() { tellNews(ctx, meant, news) })
		return b.watch.Follow(ctx, func(ctx context.Context) (hosts.News, error) {
			select {
			case n := <-news:
				return n, nil
			case <-ctx.Done():
				return hosts.News{}, context.Cause(ctx)
			}
		})
	})
}

// tellNews says of which hosts the sessions may be others, until ctx ends. A host whose events
// do not come back is listed now and then.
func tellNews(ctx context.Context, all []hosts.Host, news chan<- hosts.News) {
	_ = hosts.Follow(ctx, all, func(h hosts.Host, line follow.Line) error {
		if changesSessions(line.Type) {
			select {
			case news <- hosts.News{Host: h.Name, MayHaveChanged: true}:
			case <-ctx.Done():
			}
		}
		return nil
	}, func(hosts.Host, error) {})
}

// watching goes on until Ctrl-C, or until nobody reads any more.
func (a *app) watching(ctx context.Context, run func(context.Context) error) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // a write tells it
	defer signal.Stop(broken)
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // lists come and go all the time
	err := run(keys.Soft)
	switch {
	case errors.Is(a.out.Failure(), syscall.EPIPE):
		return &quietExit{exitOK}
	case errors.Is(err, cmdline.ErrInterrupted):
		return nil
	}
	return err
}

// fleetBoard shows what is known of the sessions of several hosts. One goroutine owns it.
type fleetBoard struct {
	a     *app
	f     *via.Fleet // nil of hosts that are named
	watch *hosts.Watch

	late bool      // what is on the terminal is not what is known
	rest time.Time // nothing is drawn before
	rows []string  // on the terminal
	size [2]int    // of the terminal
	lost string    // what was said of the connection, while it is lost
}

func (b *fleetBoard) run(ctx context.Context) error {
	for first := true; ; first = false {
		err := b.connected(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case b.a.out.Failure() != nil:
			return b.a.out.Failure()
		case first && b.watch.Hosts() == 0 || !mayComeBack(err):
			return err
		}
		if text := err.Error(); text != b.lost {
			b.lost = text
			b.a.notef("%s; trying again", err)
		}
		select {
		case <-time.After(pauseFleet):
		case <-ctx.Done():
		}
	}
}

// mayComeBack tells whether it helps to try again. A server that was started anew has not
// the bucket of hosts until a daemon has joined.
func mayComeBack(err error) bool {
	refused := (*via.RefusedError)(nil)
	return errors.Is(err, client.ErrLost) || errors.As(err, &refused) && refused.Missing
}

// connected watches for as long as the connection lasts.
func (b *fleetBoard) connected(ctx context.Context) error {
	w, err := b.f.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if b.lost != "" {
		b.lost = ""
		b.a.notef("connected again")
	}
	return b.watch.Follow(ctx, func(ctx context.Context) (hosts.News, error) {
		n, err := w.Next(ctx)
		return hosts.News{Host: n.Host, Gone: n.Gone, Here: n.Seen != nil, MayHaveChanged: changesSessions(n.Type)}, err
	})
}

// changesSessions tells whether a list of sessions may be another one after an event.
func changesSessions(typ string) bool {
	return typ != (protocol.MessageUpdate{}).Type() && typ != (protocol.ToolUpdate{}).Type()
}

// Failed is hosts.View.
func (b *fleetBoard) Failed(host string, err error) {
	b.late = true
	if !b.onScreen() {
		b.a.complain(host + ": " + err.Error())
	}
}

func (b *fleetBoard) onScreen() bool { return b.a.outStyle.Terminal && !b.a.json }

// Listed is hosts.View: in a pipe it writes what has changed of a host's sessions.
func (b *fleetBoard) Listed(before, now []hosts.Session) {
	b.late = true
	if b.onScreen() {
		return
	}
	changed, gone := hosts.Changes(before, now, func(x, y *hosts.Session) bool {
		return b.lineOf(*x, false) == b.lineOf(*y, false)
	})
	var text []byte
	for _, s := range changed {
		text = append(append(text, b.lineOf(s, false)...), '\n')
	}
	for _, s := range gone {
		text = append(append(text, b.lineOf(s, true)...), '\n')
	}
	if len(text) > 0 {
		_, _ = b.a.out.Write(text) // its failure is remembered
	}
}

// lineOf is a session's line without its end.
func (b *fleetBoard) lineOf(s hosts.Session, deleted bool) string {
	if b.a.json {
		return string(plaintext.JSON(s.Line(deleted)))
	}
	state := plain.StateWord(s.SessionInfo)
	if deleted {
		state = "deleted"
	}
	return b.a.fit(strings.TrimRight(fmt.Sprintf("%s  %-9s  %s  %s  %s", s.Host, state, s.SessionID,
		plain.OneLine(s.Workdir, 4096), plain.OneLine(s.Title, 60)), " "))
}

// Show is hosts.View: it draws what has changed on the terminal.
func (b *fleetBoard) Show() (again time.Duration, err error) {
	now := time.Now()
	switch {
	case !b.late || !b.onScreen():
	case now.Before(b.rest):
		again = b.rest.Sub(now)
	default:
		b.redraw(now)
	}
	return again, b.a.out.Failure()
}

func (b *fleetBoard) redraw(now time.Time) {
	b.late = false
	width, height := b.a.terminalSize()
	var rows []string
	for _, line := range b.lines(height - 1) {
		rows = append(rows, b.a.outStyle.Paint(line.Look, plain.CutLine(line.Text, width)))
	}
	b.draw(rows, [2]int{width, height})
	b.rest = time.Now().Add(min(drawEvery, time.Since(now)*restFor))
}

// draw writes the rows that are not there already.
func (b *fleetBoard) draw(rows []string, size [2]int) {
	var text strings.Builder
	if size != b.size {
		b.rows, b.size = nil, size
		text.WriteString("\x1b[H\x1b[J")
	}
	for i, row := range rows {
		if i >= len(b.rows) || b.rows[i] != row {
			fmt.Fprintf(&text, "\x1b[%dH\x1b[K%s", i+1, row)
		}
	}
	switch {
	case len(rows) < len(b.rows):
		fmt.Fprintf(&text, "\x1b[%dH\x1b[J", len(rows)+1)
	case text.Len() > 0:
		fmt.Fprintf(&text, "\x1b[%dH", len(rows)+1)
	}
	b.rows = rows
	io.WriteString(b.a.out, text.String())
}

// lines are at most so many: the status, the hosts with a problem, and sessions.
func (b *fleetBoard) lines(most int) []plain.Span {
	var problems []string
	b.watch.Problems(func(host, why string) { problems = append(problems, host+": "+plain.OneLine(why, 200)) })
	some, count, waiting := b.watch.First(max(most-len(problems)-2, 0))
	lines := []plain.Span{{
		Text: fmt.Sprintf("%d hosts, %d sessions, %d need you", b.watch.Hosts(), count, waiting), Look: plain.Bold,
	}}
	for _, p := range problems {
		lines = append(lines, plain.Span{Text: p, Look: plain.Red})
	}
	for i, line := range plain.Table(fleetRows(some)) {
		look := plain.Span{Text: line}
		if i == 0 {
			look.Look = plain.Dim
		}
		lines = append(lines, look)
	}
	return lines[:min(len(lines), most)]
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/live"
	"noused/internal/client/machine"
	"noused/internal/client/plain"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// What is asked of several hosts at once: --host a --host b.

// at is the app for one of the hosts.
func (a *app) at(h *machine.Host) *app {
	at := &app{
		Printer: a.Printer, in: a.in, out: a.out,
		patience: a.patience, answer: a.answer, look: a.look,
		socket: a.socket, socketGiven: a.socketGiven, via: a.via, noStart: a.noStart,
		session: a.session, active: a.active, far: h,
	}
	at.daemon = client.Adapt(dialer{at})
	return at
}

func (a *app) several() bool { return len(a.hosts) > 1 }

// asHost is the host that is meant, as one of several.
func (a *app) asHost() hosts.Host {
	return hosts.Host{
		Name: a.far.Name,
		Sessions: func(ctx context.Context, p protocol.ListSessionsParams) (jsontext.Value, error) {
			return client.Raw(ctx, a.daemonSender(), protocol.ListSessions, p)
		},
		State: func(ctx context.Context, p protocol.GetStateParams) (jsontext.Value, error) {
			return client.Raw(ctx, a.daemonSender(), protocol.GetState, p)
		},
	}
}

// eachHost asks all hosts at once, and returns what they said in the order of the hosts.
// Of those that said nothing standard error tells, and the error says that some are missing.
func eachHost[R any](ctx context.Context, a *app, ask func(context.Context, *app, hosts.Host) (R, error)) (
	[]hosts.Answer[R], error,
) {
	at := map[string]*app{}
	var all []hosts.Host
	for _, h := range a.hosts {
		at[h.Name] = a.at(h)
		all = append(all, at[h.Name].asHost())
	}
	answers := hosts.Ask(ctx, all, len(all), func(ctx context.Context, h hosts.Host) (R, error) {
		return ask(ctx, at[h.Name], h)
	})
	errs := make([]error, len(answers))
	for i, one := range answers {
		errs[i] = one.Err
	}
	return hosts.Said(answers), a.complainOf(errs)
}

// complainOf reports the hosts that failed. The worst exit status counts.
func (a *app) complainOf(errs []error) error {
	status := 0
	for i, err := range errs {
		if err != nil {
			status = max(status, a.complainOfHost(a.hosts[i].Name, err))
		}
	}
	if status == 0 {
		return nil
	}
	return &quietExit{status}
}

func (a *app) complainOfHost(name string, err error) (status int) {
	var (
		away *ssh.Error
		gone *client.NoDaemonError
		mute *client.SilentError
	)
	switch {
	case errors.As(err, &away):
		a.Complain(name + ": " + away.What)
		a.notes(away.Said, away.Next)
		return exitNoDaemon
	case errors.As(err, &gone):
		a.Complain(gone.Error())
		a.Notef("start one with `nous --host %s`", name)
		return exitNoDaemon
	case errors.Is(err, client.ErrLost), errors.As(err, &mute):
		a.Complain(name + ": " + err.Error())
		return exitNoDaemon
	}
	a.Complain(name + ": " + protocol.ErrorText(err))
	return exitFailed
}

// printOf prints what a host said, of some kind.
func (a *app) printOf(host, kind string, value jsontext.Value) {
	a.JSONLine(hosts.Line(host, kind, value, false))
}

func (a *app) sessionsOfHosts(ctx context.Context, p protocol.ListSessionsParams, all bool) error {
	lists, failed := eachHost(ctx, a, func(ctx context.Context, at *app, h hosts.Host) ([]hosts.Session, error) {
		p := p
		if !all {
			p.Workdir = at.far.Workdir
		}
		return h.List(ctx, p, 1, nil)
	})
	sessions := hosts.Sorted(lists)
	if a.JSON || len(lists) == 0 {
		a.printSessionLines(sessions)
		return failed
	}
	rows := make([][]string, len(sessions))
	for i, s := range sessions {
		rows[i] = []string{
			s.Host, s.SessionID, plain.Stamp(s.UpdatedAt), strconv.Itoa(s.Messages), plain.StateWord(s.SessionInfo),
			plain.OneLine(s.Workdir, 60), plain.Title(s.Title),
		}
	}
	a.Table([]string{"HOST", "SESSION", "UPDATED", "MESSAGES", "STATE", "FOLDER", "TITLE"}, rows)
	return failed
}

// printSessionLines prints sessions of several hosts for a program.
func (a *app) printSessionLines(all []hosts.Session) {
	for _, s := range all {
		a.JSONLine(s.Line(false))
	}
}

func (a *app) statesOfHosts(ctx context.Context) error {
	states, failed := eachHost(ctx, a, func(ctx context.Context, at *app, h hosts.Host) (jsontext.Value, error) {
		scope, err := at.scope(ctx, needOne)
		if err != nil {
			return nil, err
		}
		return h.State(ctx, protocol.GetStateParams{Scope: scope})
	})
	for i, one := range states {
		if a.JSON {
			a.printOf(one.Host.Name, "state", one.Value)
			continue
		}
		var state protocol.State
		if err := json.Unmarshal(one.Value, &state); err != nil {
			return fmt.Errorf("get_state: decode reply: %w", err)
		}
		if i > 0 {
			a.Println("")
		}
		a.Spans(plain.Span{Text: plain.Cell(one.Host.Name), Look: plain.Bold})
		a.printState(state)
	}
	return failed
}

// approvalsOfHosts lists what waits on all hosts, the oldest first.
func (a *app) approvalsOfHosts(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return cmdline.Errorf("an ID is of one host: give %s once", a.hostFlag())
	}
	lists, failed := eachHost(ctx, a, func(ctx context.Context, at *app, h hosts.Host) ([]hosts.Approval, error) {
		q, err := at.waitingApprovals(ctx)
		q = q.of(at.session)
		all := make([]hosts.Approval, len(q.list))
		for i, one := range q.list {
			all[i] = hosts.Approval{Host: h.Name, Approval: one, Raw: q.raw[i], Session: q.sessions[one.SessionID]}
		}
		return all, err
	})
	all := hosts.Oldest(lists)
	for i, one := range all {
		if a.JSON {
			a.printOf(one.Host, "approval", one.Raw)
			continue
		}
		if i > 0 {
			a.Println("")
		}
		a.printWaiting(one.Host+"  ", one.Approval, one.Session, time.Now())
	}
	if len(all) == 0 && len(lists) > 0 && !a.JSON {
		a.Notef("no approval waits")
	}
	return failed
}

// eventsOfHosts prints the events of all hosts as they come, until Ctrl-C. A host that does
// not come back ends, and the others go on.
func (a *app) eventsOfHosts(ctx context.Context, types []string) error {
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	width := 0
	var all []hosts.Host
	for _, h := range a.hosts {
		width = max(width, len(h.Name))
		at := a.at(h)
		one := at.asHost()
		one.Events = func(ctx context.Context, tell func(follow.Line) error) error { return at.followAll(ctx, types, tell) }
		all = append(all, one)
	}
	errs := make([]error, len(all))
	err := hosts.Follow(keys.Soft, all, func(h hosts.Host, line follow.Line) error {
		if a.JSON {
			a.printOf(h.Name, "event", line.Raw)
		} else {
			a.printLineOf(h.Name+strings.Repeat(" ", width-len(h.Name)+1), line)
		}
		return a.out.Failure() // nobody reads: all end
	}, func(h hosts.Host, err error) {
		a.Notef("no more events of %s: %s", h.Name, strings.TrimPrefix(err.Error(), h.Name+": "))
		errs[slices.IndexFunc(all, func(o hosts.Host) bool { return o.Name == h.Name })] = err
	})
	return cmp.Or(err, a.complainOf(errs))
}

// followAll tells the events of a host until ctx ends, or it does not come back.
func (a *app) followAll(ctx context.Context, types []string, tell func(follow.Line) error) error {
	f, err := a.subscribe(ctx, protocol.SubscribeParams{Types: types})
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		line, err := f.NextLine(ctx)
		if err == nil {
			err = tell(line)
		}
		if err != nil {
			return err
		}
	}
}

// watching shows what changes until Ctrl-C, or until nobody reads any more.
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

// watchSessions lists sessions and then what changes.
func (a *app) watchSessions(ctx context.Context, p protocol.ListSessionsParams, all bool) error {
	l := &live.List{
		Printer: a.Printer, Output: a.out, Daemon: a.daemonSender(), Params: p, All: all,
		Table: a.sessionTable, Folder: a.folderText,
	}
	return a.watching(ctx, func(ctx context.Context) error {
		if _, err := l.Sessions(ctx); err != nil { // a daemon says here that it cannot
			return interruptedExit(err)
		}
		f, err := a.subscribe(ctx, protocol.SubscribeParams{})
		if err != nil {
			return err
		}
		defer f.Close()
		return l.Run(ctx, f)
	})
}

// watchHosts shows the sessions of the hosts that are named.
func (a *app) watchHosts(ctx context.Context, all bool) error {
	var named []hosts.Host
	for _, h := range a.hosts {
		at := a.at(h)
		one := at.asHost()
		one.Events = func(ctx context.Context, tell func(follow.Line) error) error { return at.followAll(ctx, nil, tell) }
		if list := one.Sessions; !all {
			one.Sessions = func(ctx context.Context, p protocol.ListSessionsParams) (jsontext.Value, error) {
				p.Workdir = h.Workdir
				return list(ctx, p)
			}
		}
		named = append(named, one)
	}
	return a.watching(ctx, live.NewHosts(a.Printer, a.out, named).Run)
}

package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// What is asked of several hosts at once: --host a --host b.

// at is the app for one of the hosts.
func (a *app) at(h *host) *app {
	at := &app{
		in: a.in, out: a.out, err: a.err, outStyle: a.outStyle, errStyle: a.errStyle,
		patience: a.patience, answer: a.answer, look: a.look,
		socket: a.socket, socketGiven: a.socketGiven, via: a.via, noStart: a.noStart,
		session: a.session, active: a.active, json: a.json, raw: a.raw, far: h,
	}
	at.daemon = client.Adapt(dialer{at})
	return at
}

func (a *app) several() bool { return len(a.hosts) > 1 }

// hostSaid is what a host said.
type hostSaid[R any] struct {
	host *host
	said R
}

// eachHost asks all hosts at once, and returns what they said in the order of the hosts.
// Of those that said nothing standard error tells, and the error says that there were some.
func eachHost[R any](ctx context.Context, a *app, ask func(context.Context, *app) (R, error)) ([]hostSaid[R], error) {
	said, errs := make([]R, len(a.hosts)), make([]error, len(a.hosts))
	var wg sync.WaitGroup
	for i, h := range a.hosts {
		wg.Go(func() { said[i], errs[i] = ask(ctx, a.at(h)) })
	}
	wg.Wait()
	var all []hostSaid[R]
	for i, h := range a.hosts {
		if errs[i] == nil {
			all = append(all, hostSaid[R]{h, said[i]})
		}
	}
	return all, a.complainOf(errs)
}

// complainOf reports the hosts that failed. The worst exit status counts.
func (a *app) complainOf(errs []error) error {
	status := 0
	for i, err := range errs {
		if err != nil {
			status = max(status, a.complainOfHost(a.hosts[i].name, err))
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
		a.complain(name + ": " + away.What)
		a.notes(away.Said, away.Next)
		return exitNoDaemon
	case errors.As(err, &gone):
		a.complain(gone.Error())
		a.notef("start one with `nous --host %s`", name)
		return exitNoDaemon
	case errors.Is(err, client.ErrLost), errors.As(err, &mute):
		a.complain(name + ": " + err.Error())
		return exitNoDaemon
	}
	a.complain(name + ": " + err.Error())
	return exitFailed
}

// rawReply is a reply as it is on the wire, and what it means.
type rawReply[R any] struct {
	text  jsontext.Value
	value R
}

// replyOf sends one command and returns its reply both ways.
func replyOf[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P) (r rawReply[R], err error) {
	c, err := a.dial(ctx)
	if err != nil {
		return r, err
	}
	defer c.Close()
	ctx, done := a.bounded(ctx, p)
	defer done()
	if r.text, err = raw(ctx, a, c, def, p); err == nil {
		err = json.Unmarshal(r.text, &r.value)
	}
	return r, err
}

// printOf prints what a host said, with its name as the first member.
func (a *app) printOf(h *host, object []byte) {
	name, err := jsontext.AppendQuote([]byte(`{"host":`), h.name)
	object = bytes.TrimSpace(object)
	if err != nil || len(object) < 2 || object[0] != '{' {
		return // it came as an object
	}
	if rest := bytes.TrimSpace(object[1:]); rest[0] != '}' {
		name = append(name, ',')
	}
	a.printJSON(append(name, object[1:]...))
}

func (a *app) sessionsOfHosts(ctx context.Context, p protocol.ListSessionsParams, all bool) error {
	lists, failed := eachHost(ctx, a, func(ctx context.Context, at *app) (r rawReply[protocol.Sessions], err error) {
		p := p
		if !all {
			p.Workdir = at.far.workdir
		}
		return replyOf(ctx, at, protocol.ListSessions, p)
	})
	type row struct {
		host string
		protocol.SessionInfo
	}
	var rows []row
	for _, l := range lists {
		if a.json {
			a.printOf(l.host, l.said.text)
		}
		for _, s := range l.said.value.Sessions {
			rows = append(rows, row{l.host.name, s})
		}
	}
	if a.json || len(lists) == 0 {
		return failed
	}
	slices.SortStableFunc(rows, func(x, y row) int { return protocol.ByNeed(x.SessionInfo, y.SessionInfo) })
	lines := make([][]string, len(rows))
	for i, r := range rows {
		lines[i] = []string{r.host, r.SessionID, stamp(r.UpdatedAt), strconv.Itoa(r.Messages), stateWord(r.SessionInfo), oneLine(r.Workdir, 60), oneLine(r.Title, 60)}
	}
	a.printTable([]string{"HOST", "SESSION", "UPDATED", "MESSAGES", "STATE", "FOLDER", "TITLE"}, lines)
	return failed
}

func (a *app) statesOfHosts(ctx context.Context) error {
	states, failed := eachHost(ctx, a, func(ctx context.Context, at *app) (r rawReply[protocol.State], err error) {
		scope, err := at.scope(ctx, needOne)
		if err != nil {
			return r, err
		}
		return replyOf(ctx, at, protocol.GetState, protocol.GetStateParams{Scope: scope})
	})
	for i, s := range states {
		if a.json {
			a.printOf(s.host, s.said.text)
			continue
		}
		if i > 0 {
			a.println("")
		}
		a.printSpans(span{cellText(s.host.name), asBold})
		a.at(s.host).printState(s.said.value)
	}
	return failed
}

// approvalsOfHosts lists what waits on all hosts, the oldest first.
func (a *app) approvalsOfHosts(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return cmdline.Errorf("an ID is of one host: give %s once", a.hostFlag())
	}
	lists, failed := eachHost(ctx, a, func(ctx context.Context, at *app) (questions, error) {
		q, err := at.questions(ctx)
		return q.of(at.session), err
	})
	type waiting struct {
		host *host
		protocol.Approval
		raw     jsontext.Value
		session protocol.SessionInfo
	}
	var all []waiting
	for _, l := range lists {
		for i, one := range l.said.list {
			all = append(all, waiting{l.host, one, l.said.raw[i], l.said.sessions[one.SessionID]})
		}
	}
	slices.SortStableFunc(all, func(x, y waiting) int { return x.CreatedAt.Compare(y.CreatedAt) })
	for i, w := range all {
		if a.json {
			a.printOf(w.host, w.raw)
			continue
		}
		if i > 0 {
			a.println("")
		}
		a.printWaiting(w.host.name+"  ", w.Approval, w.session, time.Now())
	}
	if len(all) == 0 && len(lists) > 0 && !a.json {
		a.notef("no approval waits")
	}
	return failed
}

// eventsOfHosts prints the events of all hosts as they come, until Ctrl-C. A host that does
// not come back ends, and the others go on.
func (a *app) eventsOfHosts(ctx context.Context, types []string) error {
	keys := watchInterrupts(ctx)
	defer keys.stop()
	ctx, cancel := context.WithCancelCause(keys.soft)
	defer cancel(nil)
	width := 0
	for _, h := range a.hosts {
		width = max(width, len(h.name))
	}
	var printing sync.Mutex
	_, failed := eachHost(ctx, a, func(ctx context.Context, at *app) (none struct{}, err error) {
		err = at.followAll(ctx, types, func(line follow.Line) error {
			printing.Lock()
			defer printing.Unlock()
			if a.json {
				a.printOf(at.far, line.Raw)
			} else {
				at.printLineOf(at.far.name+strings.Repeat(" ", width-len(at.far.name)+1), line)
			}
			if err := a.out.failure(); err != nil { // nobody reads: all end
				cancel(err)
			}
			return nil
		})
		if ctx.Err() != nil {
			return none, nil
		}
		printing.Lock()
		defer printing.Unlock()
		a.notef("no more events of %s: %s", at.far.name, strings.TrimPrefix(err.Error(), at.far.name+": "))
		return none, err
	})
	return failed
}

// followAll tells the events of a host until ctx ends, or it does not come back.
func (a *app) followAll(ctx context.Context, types []string, tell func(follow.Line) error) error {
	f, err := a.subscribe(ctx, protocol.SubscribeParams{Types: types})
	if err != nil {
		return err
	}
	defer f.events.Close()
	for {
		h, err := f.next(ctx, 0)
		switch h := h.(type) {
		case follow.Line:
			err = tell(h)
		case follow.Gap:
			err = tell(h.Line)
		}
		if err != nil {
			return err
		}
	}
}

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/live"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

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
		Printer: a.printer(), Output: a.out, Daemon: a.daemonSender(), Params: p, All: all,
		Table: a.sessionTable, Folder: a.folderText,
	}
	return a.watching(ctx, func(ctx context.Context) error {
		if _, err := l.Sessions(ctx); err != nil { // a daemon says here that it cannot
			return leftOr(err)
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
	return a.watching(ctx, live.NewHosts(a.printer(), a.out, named).Run)
}
